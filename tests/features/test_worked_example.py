"""KIP-649's worked example over HTTP, seen in ZooKeeper as a broker would read it, and in the trail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from confplane.domain.entities import Entity

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient

ALICE = Entity.of(user="alice")
OVERRIDE = Entity.of(user="alice", client_id="clientid-override")
ALICE_COMPONENT = {"entityType": "user", "matchType": "exact", "match": "alice"}
OVERRIDE_COMPONENT = {"entityType": "client-id", "matchType": "exact", "match": "clientid-override"}


async def test_the_example_end_to_end(client: ConfplaneClient, zk: KazooClient) -> None:
    # A quota on the same znode, which the client configs must leave alone.
    await client.put("client-quotas", ALICE, {"producer_byte_rate": 1024})
    answer = await client.alter(
        "client-configs",
        [
            (ALICE, {"acks": "all", "session.timeout.ms": "20000", "heartbeat.interval.ms": "5000"}),
            (OVERRIDE, {"session.timeout.ms": "11000"}),
        ],
        reason="worked example",
    )
    assert answer.status == 200
    assert answer.body["failed"] == 0
    assert [entry["errorName"] for entry in answer.body["entries"]] == ["NONE", "NONE"]

    stored, _ = zk.get("/config/users/alice")
    assert json.loads(stored) == {
        "version": 1,
        "config": {
            "producer_byte_rate": "1024",
            "acks": "all",
            "session.timeout.ms": "20000",
            "heartbeat.interval.ms": "5000",
        },
    }
    stored, _ = zk.get("/config/users/alice/clients/clientid-override")
    assert stored == b'{"version":1,"config":{"session.timeout.ms":"11000"}}'
    notified = {zk.get(f"/config/changes/{name}")[0] for name in zk.get_children("/config/changes")}
    assert b'{"version":2,"entity_path":"users/alice"}' in notified
    assert b'{"version":2,"entity_path":"users/alice/clients/clientid-override"}' in notified

    resolved = await client.describe("client-configs", [ALICE_COMPONENT, OVERRIDE_COMPONENT], resolveEntity=True)
    assert resolved.body["entries"] == [
        {
            "entity": [
                {"entityType": "user", "entityName": "alice"},
                {"entityType": "client-id", "entityName": "clientid-override"},
            ],
            "values": [
                {"key": "acks", "value": "all"},
                {"key": "heartbeat.interval.ms", "value": "5000"},
                {"key": "session.timeout.ms", "value": "11000"},
            ],
        }
    ]
    described = await client.describe("client-configs", [ALICE_COMPONENT])
    assert [len(entry["values"]) for entry in described.body["entries"]] == [3, 1]

    trail = [item async for item in client.items("audit", entity=OVERRIDE.id)]
    assert len(trail) == 1
    assert trail[0]["outcome"] == "committed"
    assert trail[0]["reason"] == "worked example"
    assert trail[0]["principal"] == "User:admin"
    assert trail[0]["changeId"] == answer.body["entries"][1]["changeId"]
    assert trail[0]["revision"] == answer.body["entries"][1]["revision"]
    assert trail[0]["entities"][0]["before"] == {}
    assert trail[0]["entities"][0]["after"] == {"session.timeout.ms": "11000"}

    quotas = await client.get("client-quotas", ALICE)
    assert quotas.body == {"id": "user=alice", "quotas": {"producer_byte_rate": 1024}}


async def test_what_clients_register_is_described(client: ConfplaneClient) -> None:
    bob = {"entityType": "user", "matchType": "exact", "match": "bob"}
    await client.alter("client-configs", [(Entity.of(user="bob"), {"acks": "1"})])
    answer = await client.describe(
        "client-configs",
        [bob, OVERRIDE_COMPONENT],
        resolveEntity=True,
        supportedConfigs=["session.timeout.ms", "acks", "acks"],
        clientInformation={"softwareName": "librdkafka", "softwareVersion": "2.6.0"},
    )
    assert answer.body["entries"][0]["values"] == [{"key": "acks", "value": "1"}]
    assert "entityCompatibility" not in answer.body["entries"][0]

    described = await client.describe("client-configs", [bob])
    by_entity = {len(entry["entity"]): entry for entry in described.body["entries"]}
    assert by_entity[1]["entityCompatibility"] == []
    assert by_entity[2]["values"] == []
    assert by_entity[2]["entityCompatibility"] == [
        {
            "clientInformation": {"softwareName": "librdkafka", "softwareVersion": "2.6.0"},
            "supportedConfigs": ["acks", "session.timeout.ms"],
        }
    ]
