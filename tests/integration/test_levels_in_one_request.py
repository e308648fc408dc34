"""Levels of the same configs altered in one request: it ends as if each had been sent for itself, in that order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import pytest_asyncio

from confplane.client import ProblemError
from confplane.domain.entities import Entity
from confplane.domain.facets import Tree
from confplane.store.znodes import path_of
from tests.support.configs import clear_brokers, resource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient


class Level(NamedTuple):
    """One entity's part of a request."""

    entity: str
    key: str
    value: str | None
    """None removes it."""


LOCAL_OF_7 = Level("broker=7", "log.local.retention.ms", "2000")
TOTAL_OF_ALL = Level("broker", "log.retention.ms", "1000")
LEAST_OF_0 = Level("broker=0", "log.cleaner.min.compaction.lag.ms", "5000")
MOST_OF_TOPIC = Level("topic=leveled", "max.compaction.lag.ms", "1000")
SESSION = Level("user=leveled", "session.timeout.ms", "7000")
HEARTBEAT = Level("user=leveled,client-id=app", "heartbeat.interval.ms", "8000")

CASES = {
    "a broker above the default before it": [TOTAL_OF_ALL, LOCAL_OF_7],
    "the default below a broker before it": [LOCAL_OF_7, TOTAL_OF_ALL],
    "others between them": [Level("topic=first", "retention.ms", "5"), LOCAL_OF_7, SESSION, TOTAL_OF_ALL],
    "a topic against the default before it": [LEAST_OF_0._replace(entity="broker"), MOST_OF_TOPIC],
    "a topic against the broker that gives it its values": [LEAST_OF_0, MOST_OF_TOPIC],
    "topics before and behind a broker": [MOST_OF_TOPIC, LEAST_OF_0, MOST_OF_TOPIC._replace(entity="topic=behind")],
    "a pair against the user before it": [SESSION, HEARTBEAT],
    "a pair before its user": [HEARTBEAT, SESSION],
    "a pair of the default user": [
        SESSION._replace(entity="user"),
        HEARTBEAT._replace(entity="user,client-id=app"),
    ],
    "another user between them": [SESSION, SESSION._replace(entity="user=other"), HEARTBEAT],
}


def _tuples(level: Level) -> list[dict[str, str | None]]:
    return [{"entityType": kind, "entityName": name} for kind, name in Entity.from_id(level.entity).components]


async def _configs(client: ConfplaneClient, levels: Sequence[Level], **members: Any) -> list[dict[str, Any]]:
    """By Kafka's IncrementalAlterConfigs."""
    resources = []
    for level in levels:
        kind, _, name = level.entity.partition("=")
        op = (level.key, "DELETE") if level.value is None else (level.key, "SET", level.value)
        resources.append(resource(kind.upper(), name, op))
    return await _answered(client, "configs:incrementalAlter", {"resources": resources, **members}, "responses")


async def _client_configs(client: ConfplaneClient, levels: Sequence[Level], **members: Any) -> list[dict[str, Any]]:
    """By KIP-649's alter."""
    entries = [
        {"entity": _tuples(level), "ops": [{"key": level.key, "value": level.value, "remove": level.value is None}]}
        for level in levels
    ]
    return await _answered(client, "client-configs:alter", {"entries": entries, **members}, "entries")


async def _clients(client: ConfplaneClient, levels: Sequence[Level], **members: Any) -> list[dict[str, Any]]:
    """By the alter of both facets, with a quota beside each client config."""
    entries = [
        {
            "entity": _tuples(level),
            "quotas": [{"key": "producer_byte_rate", "value": 1}],
            "configs": [{"key": level.key, "value": level.value, "remove": level.value is None}],
        }
        for level in levels
    ]
    return await _answered(client, "clients:alter", {"entries": entries, **members}, "entries")


async def _entity_configs(client: ConfplaneClient, levels: Sequence[Level], **members: Any) -> list[dict[str, Any]]:
    """By KIP-21's alter, which has no pairs."""
    entities = []
    for level in levels:
        [names] = _tuples(level)
        added = [] if level.value is None else [{"configKey": level.key, "configValue": level.value}]
        deleted = [level.key] if level.value is None else []
        entities.append({**names, "addedConfigs": added, "deletedConfigs": deleted})
    return await _answered(client, "entity-configs:alter", {"entities": entities, **members}, "entities")


async def _answered(client: ConfplaneClient, path: str, body: dict[str, Any], member: str) -> list[dict[str, Any]]:
    try:
        results = (await client.request("POST", path, json=body)).body[member]
    except ProblemError as error:
        results = error.body[member]
    return [{key: item[key] for key in ("errorCode", "errorMessage", "warnings")} for item in results]


def _ways() -> list[Any]:
    ways = []
    for name, levels in CASES.items():
        kinds = {level.entity.partition("=")[0].partition(",")[0] for level in levels}
        if "user" not in kinds:
            ways.append(pytest.param(_configs, levels, id=f"configs: {name}"))
        elif kinds == {"user"}:
            ways.append(pytest.param(_client_configs, levels, id=f"client-configs: {name}"))
            ways.append(pytest.param(_clients, levels, id=f"clients: {name}"))
        if not any("," in level.entity for level in levels):
            ways.append(pytest.param(_entity_configs, levels, id=f"entity-configs: {name}"))
    return ways


@pytest_asyncio.fixture(autouse=True)
async def _nothing_set(client: ConfplaneClient) -> AsyncIterator[None]:
    yield
    await _clear(client)


async def _clear(client: ConfplaneClient) -> None:
    await clear_brokers(client)
    for facet in ("configs", "client-configs", "client-quotas"):
        async for item in client.items(facet):
            await client.delete(facet, item["id"])


def _stored(zk: KazooClient, levels: Sequence[Level]) -> dict[str, Any]:
    found = {}
    for level in levels:
        path = path_of(Tree.CONFIG, Entity.from_id(level.entity))
        found[level.entity] = json.loads(zk.get(path)[0])["config"] if zk.exists(path) else {}
    return found


@pytest.mark.parametrize(("send", "levels"), _ways())
async def test_one_request_ends_as_one_for_each(
    client: ConfplaneClient, zk: KazooClient, send: Any, levels: list[Level]
) -> None:
    apart = [(await send(client, [level]))[0] for level in levels]
    expected = _stored(zk, levels)
    await _clear(client)
    assert await send(client, levels, validateOnly=True) == apart
    assert not any(_stored(zk, levels).values())
    assert await send(client, levels) == apart
    assert _stored(zk, levels) == expected


async def test_a_contradiction_of_two_levels_is_refused(client: ConfplaneClient) -> None:
    for levels in ([TOTAL_OF_ALL, LOCAL_OF_7], [LOCAL_OF_7, TOTAL_OF_ALL]):
        first, second = await _configs(client, levels)
        assert (first["errorCode"], second["errorCode"]) == (0, 42)
        assert not any("log.local.retention.ms" in text for text in first["warnings"])
        assert "log.local.retention.ms must be at most log.retention.ms" in second["errorMessage"]
        await _clear(client)
    user, pair = await _client_configs(client, [SESSION, HEARTBEAT])
    assert (user["errorCode"], pair["errorCode"]) == (0, 42)
    assert "session.timeout.ms (7000, inherited from the user)" in pair["errorMessage"]


async def test_an_entry_that_was_refused_is_not_read(client: ConfplaneClient) -> None:
    _, refused, pair = await _client_configs(
        client,
        [SESSION._replace(value="9000"), SESSION._replace(entity="user=leveled,client-id=x", value="1"), HEARTBEAT],
    )
    assert (refused["errorCode"], pair["errorCode"]) == (42, 0)
    too_short, pair = await _client_configs(client, [SESSION._replace(value="1"), HEARTBEAT])
    assert (too_short["errorCode"], pair["errorCode"]) == (42, 0)


async def test_a_set_and_its_removal_at_two_levels(client: ConfplaneClient, zk: KazooClient) -> None:
    assert [item["errorCode"] for item in await _client_configs(client, [SESSION])] == [0]
    assert [item["errorCode"] for item in await _client_configs(client, [HEARTBEAT])] == [42]
    gone = await _client_configs(client, [SESSION._replace(value=None), HEARTBEAT])
    assert [item["errorCode"] for item in gone] == [0, 0]
    assert _stored(zk, [SESSION, HEARTBEAT]) == {
        SESSION.entity: {},
        HEARTBEAT.entity: {"heartbeat.interval.ms": "8000"},
    }
