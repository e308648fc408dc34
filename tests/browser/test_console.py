"""The console in a real Chromium: by keyboard, in both colours, on a wide and a narrow screen, without a violation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.tab import Tab
from tests.support.published import publish_all

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.support.servers import Database
    from tests.support.service import Service

CLUSTER = "/console/clusters/default"
ENTITIES = f"{CLUSTER}/entities"
PAIR = f"{ENTITIES}/user=payments,client-id=billing"
PATHS = ("/console/", "/console/design", ENTITIES, f"{ENTITIES}?prefix=pay", PAIR, f"{PAIR}/history", f"{PAIR}/clients",
         f"{PAIR}/access", f"{PAIR}/edit/client-quotas?key=consumer_byte_rate", f"{CLUSTER}/audit",
        f"{CLUSTER}/definitions?search=retention", f"{CLUSTER}/access", f"{CLUSTER}/access/who?principal=User:a",
        f"{CLUSTER}/access/tokens", f"{CLUSTER}/access/grants", f"{CLUSTER}/webhooks",
        f"{CLUSTER}/rollups", f"{CLUSTER}/rollups/quotas", f"{CLUSTER}/schedules")  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _content(service: Service, module_database: Database) -> None:
    """Quotas of a team on two levels, a long list, and a result of each rollup."""
    publish_all(module_database.service_dsn)
    headers = {"Authorization": f"Bearer {service.token}"}
    with httpx.Client(base_url=f"{service.url}/v1/clusters/default", headers=headers, trust_env=False) as client:
        for entity, rate in {"user": 3, "user=payments": 10485760, "user=payments,client-id=billing": 1048576}.items():
            body = {"quotas": {"producer_byte_rate": rate, "request_percentage": 200}}
            client.put(f"/client-quotas/{entity}", json=body, params={"reason": "a test"}).raise_for_status()
        for number in range(60):
            body = {"quotas": {"producer_byte_rate": number + 1}}
            client.put(f"/client-quotas/user=team-{number:02d}", json=body).raise_for_status()


def test_every_page_is_accessible_and_fits(browser: Browser, service: Service) -> None:
    with Tab(browser, service) as opened:
        opened.page.goto("/console/sign-in")
        opened.check()
        opened.sign_in()
        for path in PATHS:
            opened.open(path)
            opened.check()
        assert opened.faults == []
        opened.open("/console/none")
        opened.check()
    assert [fault for fault in opened.faults if "404" not in fault] == []


def test_a_search_by_keyboard_leads_to_why_a_client_is_throttled(tab: Tab) -> None:
    tab.open(ENTITIES)
    tab.page.focus("#prefix")
    tab.page.keyboard.type("payments")
    expect(tab.page.locator("#results tbody tr")).to_have_count(2)
    assert tab.page.url.endswith("prefix=payments&kind=&facet=&key=&value=")
    tab.page.get_by_role("link", name="user payments / client-id billing").focus()
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector(".levels")
    rate = tab.page.locator("section.key", has_text="producer_byte_rate")
    assert rate.locator("li.wins").inner_text().split("\n")[0] == "user payments / client-id billing"
    assert "1 MiB/s" in rate.locator("li.wins").inner_text()
    assert [each.split("\n")[0] for each in rate.locator("li.hidden").all_inner_texts()] == [
        "user payments",
        "default user",
    ]
    tab.page.go_back()
    tab.page.wait_for_selector("#results tbody tr")
    assert tab.page.input_value("#prefix") == "payments"


def test_a_list_goes_on_and_times_are_local_with_utc_on_hover(tab: Tab) -> None:
    tab.open(f"{ENTITIES}?facet=client-quotas&prefix=team")
    assert tab.page.locator("#results tbody tr").count() == 51
    tab.page.get_by_role("link", name="Show more client-quotas").press("Enter")
    expect(tab.page.locator("#results tbody tr")).to_have_count(60)
    titles = [each.get_attribute("title") for each in tab.page.locator("#results time").all()]
    assert len(titles) == 60
    assert all(title is not None and title.endswith("UTC") for title in titles)


def test_the_colours_change_and_stay(tab: Tab) -> None:
    tab.open("/console/")
    before = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.page.get_by_role("button", name="Theme").press("Enter")
    chosen = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert chosen != before
    tab.open(ENTITIES)
    assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") == chosen


def test_a_sign_out_by_keyboard_ends_the_session(tab: Tab) -> None:
    tab.open("/console/")
    tab.page.locator("summary", has_text="admin").press("Enter")
    tab.page.get_by_role("button", name="Sign out").press("Enter")
    tab.page.wait_for_selector("#token")
    tab.page.goto("/console/")
    assert "/console/sign-in" in tab.page.url


def test_the_first_visit_is_small(tab: Tab) -> None:
    sizes = []
    tab.page.on("response", lambda response: sizes.append(int(response.headers.get("content-length", 0))))
    tab.open("/console/")
    assert sizes
    assert sum(sizes) < 150_000
