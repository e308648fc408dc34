"""Webhooks with the keyboard alone: one is created, tried, changed, and removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.test_on_call import api

if TYPE_CHECKING:
    import httpx

    from tests.browser.tab import Tab

__all__ = ["api"]

HOOKS = "/console/clusters/default/webhooks"
PLANTED = "planted-in-a-browser"


def test_a_webhook_is_managed(tab: Tab, api: httpx.Client) -> None:
    page = tab.page
    tab.open("/console/clusters/default/audit")
    tab.press("link", "Webhooks", exact=True)
    expect(page.get_by_role("heading", name="New webhook")).to_be_visible()
    tab.check()
    tab.type("Name", "keyboard")
    tab.type("URL", f"http://127.0.0.1:1/{PLANTED}")
    tab.type("Note", "the pipeline of the platform")
    tab.press("button", "Create the webhook")
    expect(page.get_by_role("status").filter(has_text="The signing secret of keyboard")).to_contain_text("whsec_")
    tab.check()
    tab.press("button", "Send a sample")
    expect(page.get_by_role("status").filter(has_text="The sample was not taken")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(1)
    tab.check()
    tab.picture("console-webhook")
    tab.tab_to(page.locator("summary", has_text="URL, format and filter"))
    page.keyboard.press("Enter")
    tab.check()
    tab.type("Key", "retention.ms")
    tab.press("button", "Save")
    expect(page.get_by_role("status").filter(has_text="Saved")).to_be_visible()
    stored = api.get("/v1/clusters/default/webhooks/keyboard").json()
    assert stored["filter"]["key"] == "retention.ms"
    assert PLANTED not in page.content()
    # Synthetic events send nothing, so this sees only that the page refuses the second one.
    form = page.locator("form:has(button[value=rotate])")
    submit = "form => form.dispatchEvent(new SubmitEvent('submit', {bubbles: true, cancelable: true}))"
    sent = [form.evaluate(submit) for _ in range(2)]
    assert sent == [True, False]
    tab.press("link", "Webhooks of default")
    expect(page.get_by_role("heading", name="New webhook")).to_be_visible()
    tab.check()
    tab.press("link", "keyboard")
    tab.tab_to(page.locator("summary", has_text="Remove it"))
    page.keyboard.press("Enter")
    tab.press("button", "Remove the webhook")
    expect(page.get_by_text("No webhook that you may see")).to_be_visible()
    assert api.get("/v1/clusters/default/webhooks/keyboard").status_code == 404
