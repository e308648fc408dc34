"""Groups and subscriptions to client metrics: on a cluster of Kafka 4.4, and refused by one on ZooKeeper."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import InvalidConfigError, InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.services.changes.callers import Caller
from confplane.store import ZooKeeperStore
from tests.support.configs import problem
from tests.support.stores import kafka_writes, soon

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from confplane.services.changes.edits import EditResult
    from tests.support.facets import ConfplaneClient
    from tests.support.replicas import Replica
    from tests.support.world import World

GROUP = Entity.of(group="billing/eu a")
SUBSCRIPTION = Entity.of(client_metrics="producers")


@pytest.mark.parametrize(
    ("entity_id", "kind", "name", "configs"),
    [
        ("group=billing", "GROUP", "billing", {"share.isolation.level": "read_committed"}),
        ("client-metrics=all", "CLIENT_METRICS", "all", {"metrics": "*"}),
    ],
)
async def test_a_cluster_on_zookeeper_refuses_both(
    client: ConfplaneClient, zk: KazooClient, entity_id: str, kind: str, name: str, configs: dict[str, str]
) -> None:
    plural = Entity.from_id(entity_id).types[0].plural
    text = f"Config type {plural} is only supported on KRaft clusters"
    ops = [{"name": key, "configOperation": "SET", "value": value} for key, value in configs.items()]
    resource = {"resourceType": kind, "resourceName": name}
    for call in (
        client.put("configs", entity_id, configs),
        client.create("configs", entity_id, configs),
        client.effective("configs", entity_id),
        client.request("POST", "configs:describe", json={"resources": [resource]}),
        client.request("POST", "configs:incrementalAlter", json={"resources": [{**resource, "configs": ops}]}),
    ):
        found = await problem(call)
        assert (found.status, found.kafka_error_code) == (400, 42)
        assert text in found.body["detail"]
    assert (await problem(client.get("configs", entity_id))).status == 404
    listed = await client.request("GET", "configs", params={"kind": entity_id.partition("=")[0]})
    assert listed.body["items"] == []
    assert zk.exists(f"/config/{plural}") is None, "nothing is made before the first of them"


@pytest.mark.parametrize(
    ("entity_id", "text"),
    [("group", "Default group resources are not allowed."), ("client-metrics", "Subscription name can't be empty")],
)
async def test_neither_has_a_default(client: ConfplaneClient, entity_id: str, text: str) -> None:
    found = await problem(client.put("configs", entity_id, {"metrics": "*"}))
    assert (found.status, found.kafka_error_code, found.body["detail"]) == (400, 42, text)


@pytest.mark.parametrize("name", [".", "..", "a\0b", ""])
async def test_names_that_no_znode_has(client: ConfplaneClient, name: str) -> None:
    body = {"entity": {"group": name}, "configs": {"share.isolation.level": "read_committed"}}
    found = await problem(client.request("POST", "configs", json=body))
    assert found.status == 400
    assert [error["pointer"] for error in found.body["errors"]] == ["/entity/group"]


async def on_kraft(world: World, monkeypatch: pytest.MonkeyPatch) -> Replica:
    """Return a process whose cluster has Kafka 4.4."""
    monkeypatch.setattr(ZooKeeperStore, "kafka_release", lambda _self: "4.4")
    return await world.replica()


async def put(one: Replica, entity: Entity, key: str, value: str, kind: OpType = OpType.SET) -> EditResult:
    [result] = await one.edit(entity, FacetName.CONFIGS, (Op(key, kind, value),))
    return result


async def effective(one: Replica, entity: Entity) -> dict[str, tuple[str | None, str]]:
    found = await one.parts.clusters.get("default").configs.effective(
        Caller.operator("User:admin", "127.0.0.1", "r", soon(30)).access, entity
    )
    return {item.name: (item.value, item.source.value) for item in found.configs}


async def test_a_group_of_kafka_4(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await on_kraft(world, monkeypatch)
    path = "/config/groups/billing%2Feu%20a"
    assert world.zk.exists("/config/groups") is None
    result = await put(one, GROUP, "consumer.session.timeout.ms", "50000")
    assert result.error is None
    assert json.loads(world.zk.get(path)[0])["config"] == {"consumer.session.timeout.ms": "50000"}
    await one.store.catch_up(soon(60))
    collection = one.parts.clusters.get("default").facets[FacetName.CONFIGS]
    assert [node.id for node in collection.with_keys(prefix="group=")] == ["group=billing~2Feu~20a"]
    found = await effective(one, GROUP)
    assert found["consumer.session.timeout.ms"] == ("50000", "DYNAMIC_GROUP_CONFIG")
    assert found["share.session.timeout.ms"] == ("45000", "DEFAULT_CONFIG")
    assert (await effective(one, Entity.of(group="absent")))["consumer.session.timeout.ms"][0] == "45000"
    refused = await put(one, GROUP, "no.such.config", "1")
    assert isinstance(refused.error, InvalidConfigError)
    assert "Unknown group config name" in refused.error.detail
    [row] = await one.trail()
    assert [part.entity_id for part in row.intent.entities] == [GROUP.id]
    removed = await put(one, GROUP, "consumer.session.timeout.ms", "", OpType.DELETE)
    assert removed.error is None
    assert json.loads(world.zk.get(path)[0])["config"] == {}


async def test_a_subscription_of_kafka_4(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await on_kraft(world, monkeypatch)
    assert (await put(one, SUBSCRIPTION, "match", "client_id=billing-.*")).error is None
    assert (await put(one, SUBSCRIPTION, "match", "client_software_name=java", OpType.APPEND)).error is None
    stored = json.loads(world.zk.get("/config/client-metrics/producers")[0])["config"]
    assert stored == {"match": "client_id=billing-.*,client_software_name=java"}
    refused = await put(one, SUBSCRIPTION, "interval.ms", "5")
    assert isinstance(refused.error, InvalidRequestError)
    await one.store.catch_up(soon(60))
    found = await effective(one, SUBSCRIPTION)
    assert found["interval.ms"] == ("300000", "DEFAULT_CONFIG")
    assert found["match"][1] == "DYNAMIC_CLIENT_METRICS_CONFIG"


@pytest.mark.parametrize("kind", [EntityType.GROUP, EntityType.CLIENT_METRICS])
@pytest.mark.parametrize("name", [".", ".."])
async def test_an_alter_of_a_name_that_no_znode_has(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, kind: EntityType
) -> None:
    one = await on_kraft(world, monkeypatch)
    result = await put(one, Entity(((kind, name),)), "metrics", "*")
    assert isinstance(result.error, InvalidRequestError)
    assert "can't be stored in ZooKeeper" in result.error.detail


async def test_external_changes_are_recorded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await on_kraft(world, monkeypatch)
    await one.record()
    kafka_writes(
        world.zk,
        "groups/orders",
        b'{"version":1,"config":{"share.isolation.level":"read_committed","foreign":"secret"}}',
    )
    await one.record()
    [row] = await one.trail()
    [part] = row.intent.entities
    assert part.entity_id == "group=orders"
    assert part.after == {"share.isolation.level": "read_committed", "foreign": None}, (
        "an unknown config may be a secret"
    )
