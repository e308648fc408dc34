"""Change requests of two people with the keyboard alone: proposed, reviewed, approved, applied, and break glass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.browser.tab import Tab
from tests.browser.test_on_call import QUOTAS, api, set_rate
from tests.console.test_change_request_pages import ruled_options
from tests.console.visitor import console_key
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx
    from playwright.sync_api import Browser

    from tests.support.service import Service

__all__ = ["api"]


@pytest.fixture(scope="module")
def service_options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The module's service has a console, and a rule that asks for approvals."""
    directory = tmp_path_factory.mktemp("ruled")
    return ruled_options(console_key(directory), directory)


def token_of(api: httpx.Client, name: str, *operations: str) -> str:
    """Return the token of a user who may do something with all users, once the service knows the token."""
    user = f"User:{name}"
    for operation in operations:
        grant = {"principal": user, "permission": "allow", "operation": operation, "resourceType": "user", "name": "*"}
        api.post("/v1/grants", json=grant).raise_for_status()
    token = str(api.post("/v1/tokens", json={"principal": user}).raise_for_status().json()["token"])
    headers = {"Authorization": f"Bearer {token}"}
    wait_for(lambda: api.get(f"{QUOTAS}/user=nobody", headers=headers).status_code == 404)
    return token


@pytest.fixture
def olga(browser: Browser, service: Service, api: httpx.Client) -> Iterator[Tab]:
    """The browser of an author."""
    with Tab(browser, service) as opened:
        opened.sign_in(token_of(api, "olga", "DESCRIBE_CONFIGS", "PROPOSE"))
        yield opened
    assert opened.faults == []


@pytest.fixture
def ivan(browser: Browser, service: Service, api: httpx.Client) -> Iterator[Tab]:
    """The browser of a reviewer, who may freeze the cluster too."""
    grant = {"principal": "User:ivan", "permission": "allow", "operation": "FREEZE", "resourceType": "cluster"}
    api.post("/v1/grants", json=grant).raise_for_status()
    with Tab(browser, service) as opened:
        opened.sign_in(token_of(api, "ivan", "ALTER_CONFIGS"))
        yield opened
    assert opened.faults == []


def test_a_change_is_proposed_approved_and_applied(olga: Tab, ivan: Tab, api: httpx.Client) -> None:
    set_rate(api, "user=ruled-payments", 1048576)
    page = olga.page
    olga.open("/console/clusters/default/entities/user=ruled-payments")
    olga.press("link", "Change quotas")
    olga.type("producer_byte_rate", "2")
    olga.type("Reason", "payments produces more")
    olga.press("button", "Review the change", exact=True)
    expect(page.locator("table.diff")).to_contain_text("2 MiB/s")
    expect(page.get_by_role("button", name="Save")).to_have_count(0)
    olga.tab_to(page.locator("summary", has_text="Times of a proposal"))
    page.keyboard.press("Enter")
    olga.check()
    olga.press("button", "Propose")
    expect(page.get_by_role("heading", name="Change request", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    olga.check()
    request = page.url

    ivan.open("/console")
    ivan.press("link", "user ruled-payments, by User:olga")
    expect(ivan.page.locator("table.diff")).to_contain_text("2 MiB/s")
    ivan.type("Comment", "fine with the platform")
    ivan.check()
    ivan.press("button", "Approve")
    expect(ivan.page.get_by_text("approved User:ivan")).to_be_visible()
    ivan.press("link", "Requests", exact=True)
    expect(ivan.page.locator("tbody tr")).to_have_count(1)
    ivan.check()

    olga.open(request)
    expect(page.locator("main")).to_contain_text("fine with the platform")
    olga.check()
    olga.press("button", "Apply", exact=True)
    expect(page.get_by_role("heading", name="Apply")).to_have_count(0)
    expect(page.locator(".head")).to_contain_text("applied")
    assert api.get(f"{QUOTAS}/user=ruled-payments").json()["quotas"] == {"producer_byte_rate": 2097152}
    olga.tab_to(page.locator("dl.facts a"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="change request")).to_be_visible()
    olga.press("link", "Revert")
    expect(page.get_by_role("button", name="Propose the revert")).to_be_visible()
    olga.check()

    olga.open(request)
    olga.tab_to(page.locator("summary", has_text="Revert it"))
    page.keyboard.press("Enter")
    olga.type("Reason", "payments produces less again")
    olga.check()
    olga.press("button", "Propose the revert")
    expect(page.get_by_text("This request reverts another request")).to_be_visible()
    olga.check()
    olga.press("link", "another request")
    expect(page.locator(".head")).to_contain_text("reverting")


def test_a_request_gets_other_values(olga: Tab, ivan: Tab, api: httpx.Client) -> None:
    set_rate(api, "user=ruled-revised", 1048576)
    page = olga.page
    olga.open("/console/clusters/default/entities/user=ruled-revised/edit/client-quotas")
    olga.type("producer_byte_rate", "2")
    olga.type("Reason", "the sale of next week")
    olga.press("button", "Review the change", exact=True)
    olga.press("button", "Propose")
    expect(page.get_by_role("heading", name="Change request", exact=True)).to_be_visible()
    request = page.url
    ivan.open(request)
    ivan.picture("console-request")
    ivan.press("button", "Approve")
    expect(ivan.page.get_by_text("approved User:ivan")).to_be_visible()

    olga.open(request)
    olga.press("link", "Change the values of user ruled-revised")
    expect(page.get_by_label("Another key")).to_be_visible()
    olga.check()
    olga.type("producer_byte_rate", "3")
    olga.press("button", "Review the change", exact=True)
    expect(page.get_by_text("All approvals that it has are dropped")).to_be_visible()
    olga.check()
    olga.press("button", "Revise the request")
    expect(page.get_by_role("status").filter(has_text="revision 2")).to_be_visible()
    expect(page.locator("table.diff")).to_contain_text("3 MiB/s")
    expect(page.get_by_text("approved User:ivan")).to_have_count(0)
    olga.check()


@pytest.fixture
def emma(browser: Browser, service: Service, api: httpx.Client) -> Iterator[Tab]:
    """The browser of somebody who may write past the rules."""
    with Tab(browser, service) as opened:
        opened.sign_in(token_of(api, "emma", "ALTER_CONFIGS", "BYPASS_RULES"))
        yield opened
    assert [fault for fault in opened.faults if "422" not in fault] == []


def test_a_change_past_the_rules_is_acknowledged(emma: Tab, ivan: Tab, api: httpx.Client) -> None:
    page = emma.page
    emma.open("/console/clusters/default/entities/user=ruled-glass/edit/client-quotas?key=producer_byte_rate")
    emma.type("producer_byte_rate", "1048576")
    emma.press("button", "Review the change", exact=True)
    expect(page.get_by_text("needs approval: rule 'two-people'")).to_be_visible()
    expect(page.get_by_text("another person has to acknowledge the change")).to_be_visible()
    emma.check()
    emma.type("Reason of the emergency", "disks are full")
    emma.press("button", "Write past the rules")
    expect(page.get_by_text("Written past the rules: “disks are full”")).to_be_visible()
    emma.check()
    assert api.get(f"{QUOTAS}/user=ruled-glass").json()["quotas"] == {"producer_byte_rate": 1048576}

    emma.press("link", "Revert")
    expect(page.get_by_text("another person has to acknowledge the change")).to_be_visible()
    emma.check()

    ivan.open("/console")
    expect(ivan.page.get_by_text("1 change past the rules to acknowledge")).to_be_visible()
    ivan.check()
    ivan.picture("console-overview")
    ivan.press("link", "user ruled-glass, by User:emma")
    expect(ivan.page.get_by_text("written past rules and approvals")).to_be_visible()
    expect(ivan.page.locator("table.diff")).to_contain_text("1 MiB/s")
    ivan.check()
    ivan.press("button", "Acknowledge")
    expect(ivan.page.locator(".head")).to_contain_text("acknowledged")
    ivan.open("/console")
    expect(ivan.page.get_by_role("link", name="by User:emma")).to_have_count(0)
