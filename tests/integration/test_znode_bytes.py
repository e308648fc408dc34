"""Every znode and notification written equals what Kafka writes; every form that Kafka's tools write is described."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from confplane.client import ProblemError
from confplane.domain.entities import Entity

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient

NAMES = ["CN=Alice, O=Acme/x y*é", "<default>", "n" * 200, "user with spaces", "client1?@%", "~tilde+plus", "日本𝄞"]
# What Kafka's Sanitizer makes of them.
NODES = [
    "CN%3DAlice%2C%20O%3DAcme%2Fx%20y%2A%C3%A9",
    "%3Cdefault%3E",
    "n" * 200,
    "user%20with%20spaces",
    "client1%3F%40%25",
    "%7Etilde%2Bplus",
    "%E6%97%A5%E6%9C%AC%F0%9D%84%9E",
]


def notifications(zk: KazooClient) -> list[bytes]:
    return [zk.get(f"/config/changes/{name}")[0] for name in sorted(zk.get_children("/config/changes"))]


@pytest.mark.parametrize(("name", "node"), list(zip(NAMES, NODES, strict=True)))
async def test_names_are_stored_as_kafka_does(client: ConfplaneClient, zk: KazooClient, name: str, node: str) -> None:
    await client.alter(
        "client-quotas",
        [
            (Entity.of(user=name), {"producer_byte_rate": 1024}),
            (Entity.of(client_id=name), {"request_percentage": 200}),
            (Entity.of(user=name, client_id=name), {"controller_mutation_rate": 0.0001}),
            (Entity.of(user=name, client_id=None), {"consumer_byte_rate": 50000.0}),
        ],
    )
    assert zk.get(f"/config/users/{node}")[0] == b'{"version":1,"config":{"producer_byte_rate":"1024"}}'
    assert zk.get(f"/config/clients/{node}")[0] == b'{"version":1,"config":{"request_percentage":"200.0"}}'
    assert (
        zk.get(f"/config/users/{node}/clients/{node}")[0]
        == b'{"version":1,"config":{"controller_mutation_rate":"1.0E-4"}}'
    )
    assert (
        zk.get(f"/config/users/{node}/clients/<default>")[0] == b'{"version":1,"config":{"consumer_byte_rate":"50000"}}'
    )
    written = notifications(zk)
    for path in (f"users/{node}", f"clients/{node}", f"users/{node}/clients/{node}", f"users/{node}/clients/<default>"):
        assert b'{"version":2,"entity_path":"%s"}' % path.encode() in written


def write(zk: KazooClient, path: str, data: bytes) -> None:
    """Write as Kafka's tools do: the node, then the notification."""
    zk.ensure_path(f"/config/{path}")
    zk.set(f"/config/{path}", data)
    zk.create(
        "/config/changes/config_change_",
        json.dumps({"version": 2, "entity_path": path}, separators=(",", ":")).encode(),
        sequence=True,
    )


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (b'{"version":1,"config":{"producer_byte_rate":"1024","request_percentage":"50.0"}}', {"producer_byte_rate": 1024, "request_percentage": 50}),
        (b'{"version":1,"config":{"producer_byte_rate":"1024.0"}}', {"producer_byte_rate": 1024}),
        (b'{"version":1,"config":{"request_percentage":"1.0E7"}}', {"request_percentage": 10000000}),
        (b'{"version":1,"config":{"producer_byte_rate":"3"}} trailing', {"producer_byte_rate": 3}),
        ('{"version":1,"config":{"SCRAM-SHA-256":"salt","producer_byte_rate":"4","é":"\\uD834\\uDD1E"}}'.encode(), {"producer_byte_rate": 4}),
    ],
)  # fmt: skip
async def test_forms_that_brokers_read_are_described(
    client: ConfplaneClient, zk: KazooClient, stored: bytes, expected: dict[str, Any]
) -> None:
    name = f"lenient-{abs(hash(stored))}"
    write(zk, f"users/{name}", stored)
    answer = await client.get("client-quotas", Entity.of(user=name), strong=True)
    assert answer.body["quotas"] == expected


@pytest.mark.parametrize("stored", [b"", b'{"version":1,"config":{}}'])
async def test_empty_forms_are_nothing(client: ConfplaneClient, zk: KazooClient, stored: bytes) -> None:
    name = f"empty-{len(stored)}"
    write(zk, f"users/{name}", stored)
    with pytest.raises(ProblemError) as caught:
        await client.get("client-quotas", Entity.of(user=name), strong=True)
    assert caught.value.status == 404
    await client.put("client-quotas", Entity.of(user=name), {"producer_byte_rate": 1})
    assert zk.get(f"/config/users/{name}")[0] == b'{"version":1,"config":{"producer_byte_rate":"1"}}'


@pytest.mark.parametrize(
    "stored",
    [
        b"no json",
        b'{"version":1,"config":{"producer_byte_rate":1024}}',
        b'{"version":1,"config":{"producer_byte_rate":"many"}}',
        b'{"version":1,"config":{"producer_byte_rate":"NaN"}}',
    ],
)
async def test_broken_forms_are_reported_and_never_overwritten(
    client: ConfplaneClient, zk: KazooClient, stored: bytes
) -> None:
    name = f"broken-{abs(hash(stored))}"
    entity = Entity.of(user=name)
    write(zk, f"users/{name}", stored)
    await client.put("client-quotas", Entity.of(user=name, client_id="sound"), {"producer_byte_rate": 1})
    described = await client.request(
        "POST",
        "client-quotas:describe",
        json={"components": [{"entityType": "user", "matchType": "exact", "match": name}]},
        params={"consistency": "strong"},
    )
    assert described.body["skipped"] == [f"/config/users/{name}"]
    assert [len(entry["entity"]) for entry in described.body["entries"]] == [2]
    # A PUT replaces the facet's keys, so it would mend a value of them that is none; nothing else may be overwritten.
    refused: list[Callable[[], Awaitable[Any]]] = [
        lambda: client.get("client-quotas", entity),
        lambda: client.alter("client-quotas", [(entity, {"request_percentage": 1})]),
    ]
    if b'"many"' not in stored and b"NaN" not in stored:
        refused.append(lambda: client.put("client-quotas", entity, {"request_percentage": 1}))
        refused.append(lambda: client.delete("client-quotas", entity))
    for call in refused:
        with pytest.raises(ProblemError) as caught:
            await call()
        assert caught.value.status == 409
        assert caught.value.body["path"] == f"/config/users/{name}"
    assert zk.get(f"/config/users/{name}")[0] == stored


async def test_a_broken_value_can_be_mended(client: ConfplaneClient, zk: KazooClient) -> None:
    write(zk, "users/mend", b'{"version":1,"config":{"producer_byte_rate":"many","acks":"1"}}')
    await client.request("POST", "client-quotas:describe", json={"components": []}, params={"consistency": "strong"})
    await client.put("client-quotas", Entity.of(user="mend"), {"producer_byte_rate": 5})
    stored = json.loads(zk.get("/config/users/mend")[0])
    assert stored["config"] == {"producer_byte_rate": "5", "acks": "1"}
