"""Registered clients: those that a review says would see another value, and more of them than a page shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.console.api import CLUSTER, Api
from tests.console.test_editing import HOME, step
from tests.console.visitor import text_of
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.console.visitor import Visitor


def register(api: Api, user: str, client_id: str | None = None, *, version: str = "1") -> None:
    """Register a client by its poll."""
    names = {"user": user, "client-id": client_id}
    body = {
        "components": [
            {"entityType": kind, "matchType": "exact", "match": name}
            for kind, name in names.items()
            if name is not None
        ],
        "resolveEntity": True,
        "supportedConfigs": ["acks"],
        "clientInformation": {"softwareName": "a-client", "softwareVersion": version},
    }
    api.client.post(f"{CLUSTER}/client-configs:describe", json=body).raise_for_status()


def registered(api: Api, user: str, count: int) -> None:
    """Wait until clients of a user are in the list, which is written in the background."""

    def found() -> int:
        items = api.get("registrations", pageSize="1000")["items"]
        return sum(each["entity"].get("user") == user for each in items)

    wait_for(lambda: found() == count)


def review(visitor: Visitor, entity: str, typed: dict[str, str], facet: str = "client-quotas") -> str:
    """Return the words of the review of a change."""
    path = f"{HOME}/entities/{entity}/edit/{facet}"
    key = next(iter(typed)).partition(" ")[2]
    return text_of(step(visitor, path, visitor.page(f"{path}?key={key}"), typed).text)


def test_a_review_names_the_clients_that_would_see_another_value(visitor: Visitor, api: Api) -> None:
    register(api, "counted")
    for client_id in ("own", "same", "plain"):
        register(api, "counted", client_id)
    register(api, "counted-other")
    registered(api, "counted", 4)
    api.put("client-quotas/user=counted", {"quotas": {"producer_byte_rate": 2048}})
    api.put("client-quotas/user=counted,client-id=own", {"quotas": {"producer_byte_rate": 1024}})
    shown = review(visitor, "user=counted", {"value producer_byte_rate": "4", "unit producer_byte_rate": "KiB/s"})
    affected = "user counted; user counted / client-id plain; user counted / client-id same."
    assert f"3 of 4 registered clients would see another value: {affected}" in shown
    only = review(visitor, "user=counted,client-id=own", {"remove producer_byte_rate": "on"})
    assert "1 of 1 registered client would see another value: user counted / client-id own." in only
    same = review(
        visitor, "user=counted,client-id=same", {"value producer_byte_rate": "2", "unit producer_byte_rate": "KiB/s"}
    )
    assert "0 of 1 registered client would see another value." in same
    config = review(visitor, "user=counted", {"value acks": "1"}, "client-configs")
    assert "4 of 4 registered clients would see another value" in config
    nobody = review(visitor, "ip=10.9.8.7", {"value connection_creation_rate": "5"})
    assert "No registered client has it among its levels." in nobody


def test_more_clients_than_a_page_has_are_said_to_be_more(visitor: Visitor, api: Api) -> None:
    for number in range(101):
        register(api, "crowd", version=f"1.{number}")
        register(api, "crowd", f"member-{number:03d}")
    registered(api, "crowd", 202)
    assert "More than 100 kinds of client software" in visitor.page(f"{HOME}/entities/user=crowd/clients")
    shown = review(visitor, "user=crowd", {"value request_percentage": "5"})
    assert "100 of 100 registered clients would see another value: user crowd; " in shown
    assert "and 95 more. More clients are registered than were compared." in shown


def test_the_page_of_a_request_says_who_would_see_another_value(visitor: Visitor, api: Api) -> None:
    register(api, "asked", "a")
    register(api, "asked", "b")
    registered(api, "asked", 2)
    api.put("client-quotas/user=asked,client-id=b", {"quotas": {"producer_byte_rate": 5}})
    edits = [
        {"facet": "client-quotas", "id": "user=asked", "ops": [{"key": "producer_byte_rate", "value": 7}]},
        {"facet": "configs", "id": "broker", "ops": [{"key": "log.cleaner.threads", "value": "2"}]},
    ]
    made = api.client.post(f"{CLUSTER}/change-requests", json={"edits": edits}).raise_for_status().json()
    page = visitor.page(f"{HOME}/requests/{made['id']}")
    assert f'hx-get="{HOME}/requests/{made["id"]}/impact"' in page
    words = text_of(visitor.page(f"{HOME}/requests/{made['id']}/impact"))
    assert (
        "user asked client-quotas : 1 of 2 registered clients would see another value: user asked / client-id a"
        in words
    )
    assert "default broker configs : all brokers that have no value of their own." in words
    api.client.post(f"{CLUSTER}/change-requests/{made['id']}:cancel", json={}).raise_for_status()
    assert "/impact" not in visitor.page(f"{HOME}/requests/{made['id']}")
