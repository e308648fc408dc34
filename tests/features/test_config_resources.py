"""Topics and brokers as resources: create, read, replace, remove, list, and poll the effective configs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from confplane.domain.entities import Entity
from tests.support.configs import problem

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient

pytestmark = pytest.mark.usefixtures("no_brokers")

HOUR = "3600000"


async def test_a_topic_as_a_resource(client: ConfplaneClient, zk: KazooClient) -> None:
    orders = Entity.of(topic="orders")
    created = await client.create("configs", orders, {"retention.ms": HOUR, "cleanup.policy": "compact"})
    assert created.status == 201
    assert created.body == {"id": "topic=orders", "configs": {"cleanup.policy": "compact", "retention.ms": HOUR}}
    assert (await client.get("configs", orders)).body == created.body
    assert (await client.get("configs", orders, if_none_match=created.etag)).status == 304
    replaced = await client.put("configs", orders, {"flush.ms": "5"}, if_match=created.etag)
    assert zk.get("/config/topics/orders")[0] == b'{"version":1,"config":{"flush.ms":"5"}}'
    assert replaced.etag != created.etag
    assert (await problem(client.put("configs", orders, {"flush.ms": "6"}, if_match=created.etag))).status == 412
    assert (await client.delete("configs", orders)).body == {"id": "topic=orders"}
    assert zk.get("/config/topics/orders")[0] == b'{"version":1,"config":{}}'
    assert (await problem(client.get("configs", orders))).status == 404


async def test_a_create_where_something_is_set_already(client: ConfplaneClient) -> None:
    assert (await client.create("configs", "broker=41", {"background.threads": "20"})).status == 201
    assert (await client.create("configs", "broker=41", {"background.threads": "20"})).status == 200
    # That the other content could not stand either is not what the caller has to know first.
    for other in ({"background.threads": "1"}, {"background.threads": "nine"}, {"log.retention.ms": "1"}):
        found = await problem(client.create("configs", "broker=41", other))
        assert (found.status, found.kafka_error_code) == (409, 92), other


async def test_effective_is_polled(client: ConfplaneClient) -> None:
    first = await client.effective("configs", "broker=9")
    url = "configs/broker=9/effective"
    again = await client.request("GET", url, headers={"If-None-Match": str(first.etag)})
    assert again.status == 304
    await client.put("configs", "broker", {"background.threads": "11"})
    changed = await client.request("GET", url, headers={"If-None-Match": str(first.etag)})
    assert changed.status == 200
    found = next(item for item in changed.body["configs"] if item["key"] == "background.threads")
    assert found == {
        "key": "background.threads",
        "value": "11",
        "source": "DYNAMIC_DEFAULT_BROKER_CONFIG",
        "readOnly": False,
        "isSensitive": False,
        "configType": "INT",
        "assumed": False,
        "synonyms": [
            {"name": "background.threads", "value": "11", "source": "DYNAMIC_DEFAULT_BROKER_CONFIG"},
            {"name": "background.threads", "value": "10", "source": "DEFAULT_CONFIG"},
        ],
    }
    assert changed.body["entity"] == {"broker": "9"}
    for entity in ("user=a", "topic"):
        assert (await problem(client.effective("configs", entity))).status == 400


async def test_lists(client: ConfplaneClient) -> None:
    topics = [f"topic=list-{number}" for number in range(5)]
    for entity in (*topics, "broker=40", "broker=4", "broker"):
        is_topic = entity.startswith("topic")
        await client.put("configs", entity, {"flush.ms" if is_topic else "background.threads": "5"})

    async def ids(collection: str = "configs", **filters: str) -> list[str]:
        return [item["id"] async for item in client.items(collection, **filters)]

    assert await ids(kind="broker") == ["broker", "broker=4", "broker=40"]
    assert await ids(kind="broker", pageSize="1") == ["broker", "broker=4", "broker=40"]
    assert await ids(broker="4") == ["broker=4"]
    assert await ids(broker="") == ["broker"]
    assert await ids(broker="5") == []
    assert await ids(topic="list-3") == ["topic=list-3"]
    assert await ids(topic="a/b c") == []
    assert await ids(topic="list-3", broker="4") == []
    assert await ids(topic="list-3", key="retention.ms") == []
    assert await ids(id="topic=list-1") == ["topic=list-1"]
    assert set(topics) <= set(await ids(kind="topic", pageSize="2", key="flush.ms"))
    assert await ids(kind="topic", key="background.threads") == []
    assert await ids(user="list-3") == []
    everything = await ids(pageSize="2")
    assert everything == sorted(everything)
    assert {"broker", *topics} <= set(everything)
    for collection in ("client-quotas", "client-configs"):
        for filters in ({"topic": "list-3"}, {"broker": "4"}, {"id": "broker"}, {"kind": "topic"}):
            assert await ids(collection, **filters) == []
    full = await client.request("GET", "configs", params={"broker": "4", "view": "full"})
    assert full.body["items"][0]["entity"] == {"broker": "4"}
    assert full.body["items"][0]["status"]["fingerprints"] == {}
