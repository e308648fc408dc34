"""Registrations over HTTP: recorded with a describe, listed by entity, cleared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.facets import ConfplaneClient


async def register(client: ConfplaneClient, user: str, client_id: str, version: str) -> None:
    await client.describe(
        "client-configs",
        [
            {"entityType": "user", "matchType": "exact", "match": user},
            {"entityType": "client-id", "matchType": "exact", "match": client_id},
        ],
        resolveEntity=True,
        supportedConfigs=["acks"],
        clientInformation={"softwareName": "kafka-python", "softwareVersion": version},
    )


async def listed(client: ConfplaneClient, count: int, **filters: str) -> list[dict[str, Any]]:
    """The list, once it has as many items as are expected: it is written in the background."""

    found: list[dict[str, Any]] = []

    async def complete() -> bool:
        found[:] = [item async for item in client.items("registrations", **filters)]
        return len(found) == count

    await until(complete)
    return found


async def test_registrations_live_and_are_cleared(client: ConfplaneClient) -> None:
    for client_id, version in (("b", "2.0"), ("a", "2.0"), ("a", "2.1"), ("a", "2.1")):
        await register(client, "reg", client_id, version)
    items = await listed(client, 3)
    assert [(item["id"], item["clientInformation"]["softwareVersion"]) for item in items] == [
        ("user=reg,client-id=a", "2.0"),
        ("user=reg,client-id=a", "2.1"),
        ("user=reg,client-id=b", "2.0"),
    ]
    assert items[0]["entity"] == {"user": "reg", "client-id": "a"}
    assert items[0]["supportedConfigs"] == ["acks"]
    assert items[0]["firstSeenAt"] <= items[0]["lastSeenAt"]
    assert len(await listed(client, 2, id="user=reg,client-id=a", pageSize="1")) == 2

    dry = await client.request("DELETE", "registrations", params={"id": "user=reg,client-id=a", "validateOnly": "true"})
    assert dry.body["cleared"] == 0
    cleared = await client.request("DELETE", "registrations", params={"id": "user=reg,client-id=a"})
    assert cleared.body == {"cleared": 2}
    assert [item["id"] for item in await listed(client, 1)] == ["user=reg,client-id=b"]
    described = await client.describe("client-configs", [{"entityType": "user", "matchType": "exact", "match": "reg"}])
    assert [len(entry["entityCompatibility"]) for entry in described.body["entries"]] == [1]

    await register(client, "reg", "a", "2.1")
    assert len(await listed(client, 2)) == 2
    assert (await client.request("DELETE", "registrations", params={"all": "true"})).body == {"cleared": 2}
    assert await listed(client, 0) == []


async def test_a_poll_with_keys_that_no_catalog_has_is_answered_and_registers_the_others(
    client: ConfplaneClient,
) -> None:
    foreign = [f"{number:03d}{'x' * 237}" for number in range(498)]
    for version in ("1", "2", "1"):
        polled = await client.describe(
            "client-configs",
            [{"entityType": "user", "matchType": "exact", "match": "stuffed"}],
            resolveEntity=True,
            supportedConfigs=["acks", *foreign, "session.timeout.ms"],
            clientInformation={"softwareName": "stuffing", "softwareVersion": version},
        )
        assert polled.status == 200
    items = await listed(client, 2, id="user=stuffed")
    assert [item["supportedConfigs"] for item in items] == [["acks", "session.timeout.ms"]] * 2
