"""On call, with the keyboard alone: from /console and the name of a team to the undone change. docs/on-call.md tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.browser.tab import Tab
    from tests.support.service import Service

QUOTAS = "/v1/clusters/default/client-quotas"


@pytest.fixture
def api(service: Service) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {service.token}"}
    with httpx.Client(base_url=service.url, headers=headers, trust_env=False) as client:
        yield client


def set_rate(client: httpx.Client, entity_id: str, rate: int, **why: str) -> None:
    """Set the rate of a producer."""
    body = {"quotas": {"producer_byte_rate": rate}}
    client.put(f"{QUOTAS}/{entity_id}", json=body, params=why).raise_for_status()


@pytest.fixture
def deployer(api: httpx.Client, service: Service) -> Iterator[httpx.Client]:
    """The pipeline of the platform, which may change quotas."""
    body: dict[str, Any] = {"principal": "User:quota-pipeline"}
    grant = {**body, "permission": "allow", "operation": "ALTER_CONFIGS", "resourceType": "user", "name": "*"}
    api.post("/v1/grants", json={**grant, "patternType": "literal"}).raise_for_status()
    token = api.post("/v1/tokens", json=body).raise_for_status().json()["token"]
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=service.url, headers=headers, trust_env=False) as client:
        wait_for(lambda: client.get(f"{QUOTAS}/user").status_code != 401)
        wait_for(lambda: client.get("/v1/clusters/default").json().get("connected") is not None)
        yield client


def test_the_producers_of_team_payments_are_throttled(tab: Tab, api: httpx.Client, deployer: httpx.Client) -> None:
    set_rate(api, "user", 1048576, reason="a limit for everybody")
    set_rate(api, "user=payments", 20971520, reason="the budget of the team", ticket="OPS-3977")
    set_rate(api, "user=payments,client-id=reports", 2097152, reason="reports run at night")
    set_rate(deployer, "user=payments", 2097152, reason="lower the quotas of batch users", ticket="OPS-4412")
    page = tab.page

    tab.open("/console")
    tab.check()
    tab.press("link", "default")
    tab.type("The name begins with", "payments")
    expect(page.locator("#results tbody tr")).to_have_count(2)
    tab.check()
    tab.picture("console-search")

    tab.press("link", "user payments", exact=True)
    rate = page.locator("section.key", has_text="producer_byte_rate")
    expect(rate.locator("li.wins")).to_contain_text("2 MiB/s")
    expect(rate).to_contain_text("by User:quota-pipeline: “lower the quotas of batch users”")
    tab.check()
    tab.picture("console-entity")
    tab.picture("console-entity-narrow", narrow=True)

    tab.press("link", "See the change of producer_byte_rate")
    expect(page.locator("main")).to_contain_text("changed producer_byte_rate from 20 MiB/s to 2 MiB/s")
    expect(page.locator("main")).to_contain_text("OPS-4412")
    tab.check()
    tab.picture("console-change")

    tab.press("link", "Revert …")
    expect(page.locator("table.diff .add")).to_contain_text("20 MiB/s")
    tab.check()
    tab.type("Reason", "payments produces more than batch users")
    tab.picture("console-revert")
    tab.press("button", "Revert", exact=True)
    expect(page.get_by_role("status").filter(has_text="Saved")).to_be_visible()
    tab.check()
    assert api.get(f"{QUOTAS}/user=payments").json()["quotas"] == {"producer_byte_rate": 20971520}
    [newest, *_] = api.get(f"{QUOTAS}/user=payments/history").json()["items"]
    assert newest["reason"] == "payments produces more than batch users"
    assert newest["reverts"]


def test_an_entity_is_changed_after_a_review(tab: Tab, api: httpx.Client) -> None:
    set_rate(api, "user=edited", 1048576)
    page = tab.page
    tab.open("/console/clusters/default/entities/user=edited")
    tab.press("link", "Change quotas")
    tab.type("producer_byte_rate", "2.5")
    tab.type("Another key", "request_percentage")
    tab.press("button", "Add")
    tab.type("request_percentage", "300")
    tab.check()
    tab.press("button", "Review the change", exact=True)
    expect(page.locator("table.diff")).to_contain_text("2.5 MiB/s")
    tab.check()
    tab.picture("console-review")
    set_rate(api, "user=edited", 3145728)
    tab.press("button", "Save")
    expect(page.get_by_role("alert")).to_contain_text("Somebody changed this entity")
    tab.check()
    tab.press("button", "Save")
    expect(page.get_by_role("status").filter(has_text="Saved")).to_be_visible()
    quotas = {"producer_byte_rate": 2621440, "request_percentage": 300}
    assert api.get(f"{QUOTAS}/user=edited").json()["quotas"] == quotas


def test_tokens_and_grants_are_managed(tab: Tab, api: httpx.Client) -> None:
    page = tab.page
    tab.open("/console/clusters/default/access/tokens")
    tab.type("PrincipalThe user", "User:keyboard")
    tab.press("button", "Create a token")
    expect(page.get_by_role("status").filter(has_text="The new token of User:keyboard")).to_be_visible()
    tab.check()
    [made] = api.get("/v1/tokens", params={"principal": "User:keyboard"}).json()["items"]
    tab.tab_to(page.locator("summary", has_text=made["id"]))
    page.keyboard.press("Enter")
    tab.check()
    tab.press("button", "Revoke")
    wait_for(lambda: api.get(f"/v1/tokens/{made['id']}").json()["status"] == "revoked")
    tab.press("link", "Grants", exact=True)
    tab.type("ToUser:name", "Group:keyboard")
    tab.press("button", "Add the grant")
    tab.tab_to(page.locator("summary", has_text="the grant of Group:keyboard"))
    page.keyboard.press("Enter")
    tab.check()
    tab.press("button", "Remove the grant")
    wait_for(lambda: not api.get("/v1/grants", params={"principal": "Group:keyboard"}).json()["items"])
