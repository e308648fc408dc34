"""Results of rollups and scheduled work, with the keyboard alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from playwright.sync_api import expect

from tests.browser.test_on_call import api, set_rate
from tests.support.published import publish, row_of

if TYPE_CHECKING:
    import httpx

    from tests.browser.tab import Tab
    from tests.support.servers import Database

__all__ = ["api"]

CLUSTER: Final = "/console/clusters/default"
_BUDGETS: Final = {"payments": 20, "orders": 14, "search": 9, "reports": 6, "billing": 5, "fraud": 4, "mail": 1}


def test_the_largest_quotas_are_found(tab: Tab, module_database: Database) -> None:
    page, rows = tab.page, []
    for team, rate in _BUDGETS.items():
        entity = f"user={team}"
        value = rate * 1048576
        given = {"config_key": "producer_byte_rate", "entity_id": entity, "value": value, "share": value / 125000000}
        rows.append(row_of("quotas", **given, clients=1, source=entity))
    publish(module_database.service_dsn, "quotas", rows)
    tab.open("/console/clusters/default/entities")
    tab.press("link", "Rollups", exact=True)
    expect(page.get_by_role("heading", name="Rollups")).to_be_visible()
    tab.check()
    tab.press("link", "Quotas")
    expect(page.get_by_role("row", name="user payments 20 MiB/s", exact=True)).to_be_visible()
    tab.check()
    tab.picture("console-rollup")
    tab.type("Conditions on columns", "value >= 10485760")
    page.keyboard.press("Enter")
    page.wait_for_url("**filter=value**")
    expect(page.get_by_role("row", name="user orders 14 MiB/s", exact=True)).to_be_visible()
    expect(page.get_by_role("row", name="user search 9 MiB/s", exact=True)).to_have_count(0)
    tab.check()


def test_a_change_for_an_hour_is_made_and_ended_early(tab: Tab, api: httpx.Client) -> None:
    page = tab.page
    set_rate(api, "user=brief-reports", 1048576)
    for name, rate, left in (("brief-payments", 20971520, "21600"), ("brief-search", 5242880, "86400")):
        path = f"/v1/clusters/default/client-quotas/user={name}"
        query = {"expiresIn": left, "reason": f"the sale of {name.removeprefix('brief-')}"}
        api.put(path, json={"quotas": {"producer_byte_rate": rate}}, params=query).raise_for_status()
    tab.open(f"{CLUSTER}/entities/user=brief-reports/edit/client-quotas")
    tab.type("producer_byte_rate", "2")
    tab.tab_to(page.get_by_label("For"))
    page.keyboard.press("ArrowDown")
    tab.type("Reason", "reports of the quarter")
    tab.press("button", "Review the change", exact=True)
    expect(page.get_by_text("A temporary change: after 1h the keys")).to_be_visible()
    tab.check()
    tab.press("button", "Save")
    expect(page.get_by_role("link", name="Revert")).to_be_visible()
    tab.press("link", "Schedules", exact=True)
    expect(page.locator("tbody tr")).to_have_count(3)
    tab.check()
    tab.picture("console-schedules")
    tab.tab_to(page.locator("summary", has_text="Pause the ends"))
    page.keyboard.press("Enter")
    tab.type("Reason", "an incident")
    tab.press("button", "Pause the ends")
    expect(page.get_by_text("No temporary change ends by itself")).to_be_visible()
    tab.check()
    tab.press("button", "Resume the ends")
    expect(page.locator("summary", has_text="Pause the ends")).to_be_visible()
    tab.press("button", "End now the change of user brief-reports")
    expect(page.locator("tbody tr")).to_have_count(2)
    shown = api.get("/v1/clusters/default/client-quotas/user=brief-reports").json()
    assert shown["quotas"] == {"producer_byte_rate": 1048576}
    tab.press("link", "Ended", exact=True)
    expect(page.get_by_role("link", name="what it restored")).to_be_visible()
    tab.check()
