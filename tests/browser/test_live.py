"""The live tail in a browser: changes appear without a reload, a pause holds them back, and an edit is warned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.test_on_call import api, set_rate

if TYPE_CHECKING:
    import httpx

    from tests.browser.tab import Tab

__all__ = ["api"]

HOME = "/console/clusters/default"


def live(tab: Tab, path: str) -> None:
    """Open a page, and wait until its tail is connected."""
    tab.page.goto(path)
    expect(tab.page.locator("[data-live] [role=status]")).to_have_text("Live")


def test_changes_appear_on_the_audit_page_until_it_is_paused(tab: Tab, api: httpx.Client) -> None:
    set_rate(api, "user=tailed", 1)
    live(tab, f"{HOME}/audit")
    rows = tab.page.locator("tbody tr")
    set_rate(api, "user=tailed", 2048, reason="seen at once")
    expect(rows.first).to_contain_text("seen at once")
    assert rows.first.locator("time").get_attribute("title") is not None
    tab.check()
    tab.press("button", "Pause")
    set_rate(api, "user=tailed", 3072, reason="seen later")
    expect(tab.page.locator("[data-live] [role=status]")).to_have_text("Paused")
    expect(rows.first).to_contain_text("seen at once")
    tab.press("button", "Resume")
    expect(rows.first).to_contain_text("seen later")
    assert len(set(ids := rows.evaluate_all("all => all.map(each => each.id)"))) == len(ids)
    tab.picture("console-live")


@pytest.mark.parametrize("view", ["", "/history"])
def test_a_page_of_an_entity_has_the_values_of_now(tab: Tab, api: httpx.Client, view: str) -> None:
    set_rate(api, "user=watched", 1048576)
    live(tab, f"{HOME}/entities/user=watched{view}")
    set_rate(api, "user=watched", 5242880, reason="from elsewhere")
    expect(tab.page.get_by_role("status").filter(has_text="Changed since")).to_contain_text("from elsewhere")
    expect(tab.page.locator("[data-live-part]")).to_contain_text("5 MiB/s")
    tab.check()


def test_who_edits_an_entity_learns_of_a_change(tab: Tab, api: httpx.Client) -> None:
    set_rate(api, "user=both", 1048576)
    live(tab, f"{HOME}/entities/user=both/edit/client-quotas")
    tab.type("producer_byte_rate", "7")
    set_rate(api, "user=both", 2097152, reason="somebody was faster")
    expect(tab.page.get_by_role("status").filter(has_text="Changed since")).to_contain_text("somebody was faster")
    assert tab.page.get_by_label("producer_byte_rate").first.input_value() == "7"
    tab.check()


def test_a_tab_that_is_not_shown_is_not_connected_and_misses_nothing(tab: Tab, api: httpx.Client) -> None:
    live(tab, f"{HOME}/audit?entity=user=hidden-tab")
    set_rate(api, "user=hidden-tab", 1024, reason="before")
    rows = tab.page.locator("tbody tr")
    expect(rows.first).to_contain_text("before")
    become = """([hidden]) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    tab.page.evaluate(become, [True])
    for value, reason in ((2048, "first while hidden"), (3072, "second while hidden")):
        set_rate(api, "user=hidden-tab", value, reason=reason)
    assert "while hidden" not in tab.page.locator("tbody").inner_text()
    tab.page.evaluate(become, [False])
    expect(rows.first).to_contain_text("second while hidden")
    expect(rows.nth(1)).to_contain_text("first while hidden")
