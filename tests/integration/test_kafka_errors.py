"""Batches of client quotas and configs with refused entries: each entry has its error, and the rest its effect.

All that is refused is in malformed.txt and in the tables of the unit tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kazoo.security import make_digest_acl

from confplane.client import ProblemError
from confplane.domain.entities import Entity

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient

USER = {"entityType": "user", "entityName": "erin"}
CLIENT = {"entityType": "client-id", "entityName": "app"}


def entry(entity: list[dict[str, Any]], *ops: dict[str, Any]) -> dict[str, Any]:
    return {"entity": entity, "ops": list(ops)}


def put(key: str, value: Any) -> dict[str, Any]:
    return {"key": key, "value": value}


RATE = put("producer_byte_rate", 1)


async def test_an_entity_named_twice_is_refused_in_every_place(client: ConfplaneClient) -> None:
    body = {"entries": [entry([USER], RATE), entry([CLIENT], RATE), entry([USER], put("consumer_byte_rate", 1))]}
    answer = await client.request("POST", "client-quotas:alter", json=body)
    assert answer.status == 207
    assert [item["errorCode"] for item in answer.body["entries"]] == [42, 0, 42]


async def test_a_removal_of_nothing_is_fine_and_writes_nothing(client: ConfplaneClient, zk: KazooClient) -> None:
    before = len(zk.get_children("/config/changes"))
    answer = await client.alter("client-quotas", [(Entity.of(user="idle"), {"producer_byte_rate": None, "junk": None})])
    assert answer.body["entries"][0]["errorCode"] == 0
    assert answer.body["entries"][0]["changeId"] is None
    assert len(zk.get_children("/config/changes")) == before


async def test_an_alter_without_effect_writes_nothing(client: ConfplaneClient, zk: KazooClient) -> None:
    entity = Entity.of(user="same")
    first = await client.alter("client-quotas", [(entity, {"producer_byte_rate": 1000.0000005})])
    version = zk.get("/config/users/same")[1].version
    again = await client.alter("client-quotas", [(entity, {"producer_byte_rate": 1000})])
    assert again.body["entries"][0]["revision"] == first.body["entries"][0]["revision"]
    assert again.body["entries"][0]["diff"] == []
    assert zk.get("/config/users/same")[1].version == version


async def test_an_atomic_batch_is_all_or_nothing(client: ConfplaneClient, zk: KazooClient) -> None:
    one, two = Entity.of(user="atom-1"), Entity.of(user="atom-2", client_id="x")
    with pytest.raises(ProblemError) as caught:
        await client.alter(
            "client-quotas", [(one, {"producer_byte_rate": 1}), (two, {"producer_byte_rate": -1})], atomic=True
        )
    assert caught.value.status == 400
    assert [item["errorCode"] for item in caught.value.body["entries"]] == [55, 42]
    assert zk.exists("/config/users/atom-1") is None
    answer = await client.alter(
        "client-quotas", [(one, {"producer_byte_rate": 1}), (two, {"producer_byte_rate": 2})], atomic=True
    )
    assert len({item["revision"] for item in answer.body["entries"]}) == 1
    assert len({item["changeId"] for item in answer.body["entries"]}) == 1
    assert zk.get("/config/users/atom-1")[1].mzxid == zk.get("/config/users/atom-2/clients/x")[1].mzxid
    trail = [item async for item in client.items("audit", entity=two.id)]
    assert [entity["id"] for entity in trail[0]["entities"]] == [one.id, two.id]


async def test_an_entry_of_an_atomic_batch_that_may_not_be_read_has_an_error_of_its_own(
    client: ConfplaneClient, zk: KazooClient
) -> None:
    """The mirror knows nothing of the znode: its creation is a conflict, after which all entries are read again."""
    users = [Entity.of(user=f"closed-{number}") for number in range(3)]
    zk.create("/config/users/closed-1", b"", acl=[make_digest_acl("somebody", "else", all=True)])
    with pytest.raises(ProblemError) as caught:
        await client.alter("client-quotas", [(user, {"producer_byte_rate": 1}) for user in users], atomic=True)
    assert caught.value.status == 503
    first, closed, last = caught.value.body["entries"]
    assert first["errorCode"] == last["errorCode"] == 55
    assert "NoAuthError" in str(closed)
    assert zk.exists("/config/users/closed-0") is None
    zk.delete("/config/users/closed-1")


@pytest.mark.parametrize("asked", [{"json": {"validateOnly": True}}, {"params": {"validateOnly": "true"}}], ids=list)
async def test_an_atomic_batch_that_is_only_validated_writes_nothing(
    client: ConfplaneClient, zk: KazooClient, asked: dict[str, Any]
) -> None:
    names = ("validated-1", "validated-2")
    users = [[{"entityType": "user", "entityName": name}] for name in names]
    retention = {"name": "retention.ms", "configOperation": "SET", "value": "3600000"}
    topics = [{"resourceType": "TOPIC", "resourceName": name, "configs": [retention]} for name in names]
    for method, member, answered, entries in (
        ("client-quotas:alter", "entries", "entries", [entry(user, RATE) for user in users]),
        ("client-configs:alter", "entries", "entries", [entry(user, put("acks", "all")) for user in users]),
        ("configs:incrementalAlter", "resources", "responses", topics),
    ):
        body = {member: entries, "atomic": True, **asked.get("json", {})}
        answer = await client.request("POST", method, json=body, params=asked.get("params"))
        told = answer.body[answered]
        assert [(each["errorCode"], each["changeId"], len(each["diff"])) for each in told] == [(0, None, 1)] * 2
    for kind, path in (("user", "users"), ("topic", "topics")):
        for name in names:
            assert zk.exists(f"/config/{path}/{name}") is None
            assert [item async for item in client.items("audit", entity=f"{kind}={name}")] == []


async def test_an_atomic_batch_above_the_packet_limit_is_refused_whole(client: ConfplaneClient) -> None:
    entries = [(Entity.of(user=f"{index}-{'x' * 900}"), {"producer_byte_rate": 1}) for index in range(500)]
    with pytest.raises(ProblemError) as caught:
        await client.alter("client-quotas", entries, atomic=True)
    assert caught.value.status == 413
    assert caught.value.outcome == "not_applied"


async def test_defaults_of_client_configs_are_kept_with_a_warning(client: ConfplaneClient) -> None:
    answer = await client.alter("client-configs", [(Entity.of(user=None), {"acks": "0"})])
    assert answer.body["entries"][0]["errorCode"] == 0
    assert answer.body["entries"][0]["warnings"]
    described = await client.describe("client-configs", [{"entityType": "user", "matchType": "default"}], strict=True)
    assert described.body["entries"][0]["entity"] == [{"entityType": "user", "entityName": None}]
