"""Keys that a Kafka cluster has and no catalog knows, such as a topic's ``message.format.version`` from Kafka 3.

ZooKeeper and Postgres are real, the Kafka cluster is a double.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    UnavailableError,
    UnknownTopicError,
)
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.services.kips import entity_configs
from confplane.services.kips.entity_configs import EntityChange
from tests.support.adopting import GROUP, TOPIC, alter, apply, kinds, opener, restore, rows
from tests.support.kafka_double import KafkaDouble
from tests.support.observing import caller
from tests.support.stores import soon

if TYPE_CHECKING:
    from tests.support.observing import Observing
    from tests.support.world import World

FORMAT, RETENTION = "message.format.version", "retention.ms"
KEYS = {
    TOPIC: FORMAT,
    GROUP: "acme.group.key",
    Entity.of(client_metrics="m"): "acme.metrics.key",
    Entity.of(broker="1"): "acme.broker.key",
}


@pytest.fixture
def kafka() -> KafkaDouble:
    made = KafkaDouble()
    made.create_topic("t")
    made.alter(TOPIC, {RETENTION: "1000"})
    made.alter(GROUP, {"consumer.session.timeout.ms": "46000"})
    made.alter(Entity.of(client_metrics="m"), {"interval.ms": "1000"})
    for entity, key in KEYS.items():
        made.hide(entity, key, "2.8")
    return made


async def edit(one: Observing, op: Op, entity: Entity = TOPIC) -> Any:
    (result,) = await one.replica.edit(entity, FacetName.CONFIGS, (op,))
    return result


def sent(kafka: KafkaDouble) -> list[str]:
    """The keys of all requests to the cluster."""
    return [key for request in kafka.requests for values in request.values() for key in values]


@pytest.mark.parametrize("enforced", [False, True])
async def test_an_unknown_key_of_the_cluster_can_be_deleted_and_is_never_sent_again(
    world: World, kafka: KafkaDouble, *, enforced: bool
) -> None:
    async with opener(world, kafka) as open_one:
        one = await open_one("enforce" if enforced else "adopt")
        for entity, key in KEYS.items():
            await alter(one, entity, {key: None})
            [row] = await rows(one, entity)
            assert row.intent.entities[0].keys == (key,)
        await restore(one)
        assert not any(kafka.now.hidden[entity] for entity in KEYS)
        assert sorted(sent(kafka)) == sorted(KEYS.values())
        # The cluster has none of them any more, so that another deletion changes nothing.
        for entity, key in KEYS.items():
            await alter(one, entity, {key: None})
            assert await kinds(one, entity) == ["change"]
        # An external writer sets one again, and other keys of the topic are altered.
        kafka.hide(TOPIC, FORMAT, "2.8")
        await restore(one)
        await alter(one, TOPIC, {RETENTION: "2000"})
        await restore(one)
        kafka.alter(TOPIC, {RETENTION: "3000"})
        await restore(one)
        assert sent(kafka).count(FORMAT) == 1
        assert kafka.now.hidden[TOPIC] == {FORMAT}
        assert kafka.now.configs[TOPIC] == {RETENTION: "2000" if enforced else "3000"}


async def test_an_unknown_key_can_be_deleted_again_after_a_lost_request(world: World, kafka: KafkaDouble) -> None:
    async with opener(world, kafka) as open_one:
        one = await open_one()
        await alter(one, TOPIC, {FORMAT: None})
        kafka.cut = "before"
        await apply(one)
        assert kafka.now.hidden[TOPIC] == {FORMAT}
        await alter(one, TOPIC, {FORMAT: None})
        await restore(one)
        assert kafka.now.hidden[TOPIC] == set()


@pytest.mark.parametrize("entity", KEYS, ids=str)
async def test_kip_21_deletes_unknown_keys_that_the_cluster_has(
    world: World, kafka: KafkaDouble, entity: Entity
) -> None:
    async with opener(world, kafka) as open_one:
        one = await open_one()
        parts, [(kind, name)] = one.replica.parts, entity.components
        cluster = parts.clusters.get("default")

        async def delete(key: str, *, validate_only: bool = False) -> Any:
            change = EntityChange(kind.value, name, (), (key,), "/entities/0")
            [result] = await entity_configs.alter(parts.alter, cluster, [change], caller(), validate_only=validate_only)
            return result.error

        assert await delete(KEYS[entity], validate_only=True) is None
        assert await kinds(one, entity) == []
        assert await delete(KEYS[entity]) is None
        await restore(one)
        assert (await kinds(one, entity), kafka.now.hidden[entity]) == (["change"], set())
        # Neither the cluster nor a znode has it any more.
        error = await delete(KEYS[entity])
        assert (type(error), error.pointer) == (InvalidConfigError, "/entities/0/deletedConfigs/0")
        kafka.down = "away"
        assert isinstance(await delete(KEYS[entity]), UnavailableError)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(EntityType.BROKER, "x"), (EntityType.BROKER, "-1"), (EntityType.TOPIC, ""), (EntityType.TOPIC, ".."),
     (EntityType.GROUP, "..")],
)  # fmt: skip
async def test_the_cluster_is_not_asked_about_entities_that_it_can_not_have(
    world: World, kafka: KafkaDouble, kind: EntityType, name: str
) -> None:
    """A broker would be asked by its number, and brokers refuse a request with such a topic as a whole."""
    async with opener(world, kafka) as open_one:
        one = await open_one()
        entity = Entity(((kind, name),))  # as a resource of the request names it
        before = kafka.calls["configs"]
        error = (await edit(one, Op("acme.key", OpType.DELETE), entity)).error
        assert isinstance(error, InvalidRequestError | InvalidTopicError | UnknownTopicError)
        assert await one.refresher.refresh([entity], (), soon()) is not None
        assert kafka.calls["configs"] == before


async def test_an_unknown_key_that_nothing_has_is_neither_deleted_nor_set(world: World, kafka: KafkaDouble) -> None:
    async with opener(world, kafka) as open_one:
        one = await open_one()
        typo = await edit(one, Op("retentoin.ms", OpType.DELETE))
        assert (typo.error, typo.change_id) == (None, None)
        assert isinstance((await edit(one, Op(FORMAT, OpType.SET, "3.0"))).error, InvalidConfigError)
        kafka.down = "away"
        refused = (await edit(one, Op(FORMAT, OpType.DELETE))).error
        assert isinstance(refused, UnavailableError)
        known = await edit(one, Op("segment.ms", OpType.DELETE))
        assert (known.error, known.change_id) == (None, None)
        assert await kinds(one, TOPIC) == []
