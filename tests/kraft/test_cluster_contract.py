"""The contract of the ports of a Kafka cluster, on a real Kafka 4 and on the double that other tests use in its place."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Protocol, cast

import pytest

from confplane.connection_settings import KafkaSettings
from confplane.domain.entities import Entity, EntityType
from confplane.kraft.cluster import KraftCluster
from confplane.kraft.entity_converter import resource_of
from confplane.kraft_wiring import rules_of
from confplane.services.ports.applying import AlterApplied, Alteration, AlterRefused
from confplane.services.ports.kafka import KraftEntityType, kraft_type_of
from tests.support.catalogs import NEWEST
from tests.support.kafka_double import KafkaDouble
from tests.support.kraft_writer import KraftWriter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

    from confplane.services.ports.applying import WritableKafkaCluster
    from confplane.services.ports.kafka import LogChange, LogPage, ObservedEntity
    from tests.support import kraft as real

RATE = "producer_byte_rate"
TOPIC, BROKER, EVERY_BROKER = Entity.of(topic="contract"), Entity.of(broker="1"), Entity.of(broker=None)
GROUP, METRICS = Entity.of(group="contract/1"), Entity.of(client_metrics="contract")
QUOTAS = {
    Entity.of(user="\u00fc ser", client_id=None): {"request_percentage": "12.5"},
    Entity.of(user=None): {RATE: "1024"},
    Entity.of(client_id="contract"): {RATE: "2000000000", "consumer_byte_rate": "1"},
    Entity.of(ip="10.9.8.7"): {"connection_creation_rate": "7"},
}
CONFIGS = {
    TOPIC: {"retention.ms": "1000"},
    BROKER: {"background.threads": "3"},
    EVERY_BROKER: {"log.retention.ms": "3600000"},
    GROUP: {"consumer.session.timeout.ms": "46000"},
    METRICS: {"interval.ms": "1000"},
}


def soon() -> float:
    return time.monotonic() + 30


class Side(Protocol):
    """A cluster, and writes to it past this service."""

    @property
    def cluster(self) -> WritableKafkaCluster: ...

    async def alter(self, entity: Entity, values: Mapping[str, str | None]) -> None: ...
    async def create_topic(self, name: str) -> None: ...
    async def delete_topic(self, name: str) -> None: ...


class DoubleSide:
    """The double."""

    def __init__(self) -> None:
        self.cluster = KafkaDouble()
        self.cluster.ids_of_configs = True

    async def alter(self, entity: Entity, values: Mapping[str, str | None]) -> None:
        self.cluster.alter(entity, values)

    async def create_topic(self, name: str) -> None:
        self.cluster.create_topic(name)

    async def delete_topic(self, name: str) -> None:
        self.cluster.delete_topic(name)


class RealSide:
    """A real cluster, which other tests use as well."""

    def __init__(self, cluster: KraftCluster, writer: KraftWriter) -> None:
        self.cluster, self._writer = cluster, writer

    async def alter(self, entity: Entity, values: Mapping[str, str | None]) -> None:
        if kraft_type_of(entity) is not KraftEntityType.QUOTAS:
            await self._writer.configs((resource_of(entity), values))
            return
        components = {kind.value: name for kind, name in entity.components}
        numbers = {key: None if value is None else float(value) for key, value in values.items()}
        await self._writer.quotas((components, numbers))

    async def create_topic(self, name: str) -> None:
        await self._writer.create_topics(name)

    async def delete_topic(self, name: str) -> None:
        await self._writer.delete_topics(name)


@pytest.fixture(params=["double", "real"])
async def side(request: pytest.FixtureRequest) -> AsyncIterator[Side]:
    if request.param == "double":
        yield DoubleSide()
        return
    kraft: real.KraftCluster = request.getfixturevalue("kraft")
    controllers = [node.controller for node in kraft.controllers]
    settings = KafkaSettings.model_validate({"bootstrap": kraft.bootstrap, "controllers": controllers})
    cluster = KraftCluster("test", settings, rules_of(lambda: NEWEST), lambda: kraft.cluster_id)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(cluster.close)
        writer = await stack.enter_async_context(KraftWriter(kraft.bootstrap[0]))
        yield RealSide(cluster, writer)


async def described(side: Side, *entities: Entity) -> dict[Entity, ObservedEntity]:
    """Describe configs after all acknowledged changes, and check that the snapshot says so."""
    offset = await side.cluster.barrier(soon())
    while (snapshot := await side.cluster.configs(entities, soon())).after < offset:
        assert snapshot.after <= snapshot.until
    return {each.entity: each for each in snapshot.entities}


async def removed(side: Side, values: Mapping[Entity, Mapping[str, str]]) -> None:
    for entity, config in values.items():
        await side.alter(entity, dict.fromkeys(config))


async def test_a_digest_stands_for_the_quotas_of_all_entities(side: Side) -> None:
    for entity, values in QUOTAS.items():
        await side.alter(entity, values)
    await side.cluster.barrier(soon())
    first = await side.cluster.quotas(b"", soon())
    found = {each.entity: each.config for each in first.entities}
    assert {entity: found[entity] for entity in QUOTAS} == QUOTAS
    same = await side.cluster.quotas(first.digest, soon())
    assert (same.unchanged, same.entities, same.digest) == (True, (), first.digest)
    [user] = [entity for entity in QUOTAS if entity.components == ((EntityType.USER, None),)]
    await side.alter(user, {RATE: "1025"})
    await side.cluster.barrier(soon())
    second = await side.cluster.quotas(first.digest, soon())
    assert not second.unchanged
    assert {each.entity: each.config for each in second.entities}[user] == {RATE: "1025"}
    assert second.after > first.after
    await removed(side, QUOTAS)
    await side.cluster.barrier(soon())
    last = await side.cluster.quotas(second.digest, soon())
    assert not QUOTAS.keys() & {each.entity for each in last.entities}


async def test_quotas_of_an_entity_are_described_right_after_a_barrier(side: Side) -> None:
    entity, nothing = Entity.of(user="contract"), Entity.of(user="contract-nothing")
    for at in range(20):
        await side.alter(entity, {RATE: f"{1000 + at}"})
        offset = await side.cluster.barrier(soon())
        snapshot = await side.cluster.quotas_of([entity, nothing], soon())
        assert snapshot.after >= offset
        found = {each.entity: each.config for each in snapshot.entities}
        assert found == {entity: {RATE: f"{1000 + at}"}, nothing: {}}
    await removed(side, {entity: {RATE: ""}})
    await side.cluster.barrier(soon())
    [gone] = (await side.cluster.quotas_of([entity], soon())).entities
    assert gone.config == {}


async def test_configs_of_each_kind_without_what_is_not_there(side: Side) -> None:
    await side.create_topic("contract")
    for entity, values in CONFIGS.items():
        await side.alter(entity, values)
    found = await described(side, *CONFIGS, Entity.of(topic="contract-nothing"), Entity.of(broker="77"))
    assert found.keys() == CONFIGS.keys()
    for entity, values in CONFIGS.items():
        assert found[entity].config.items() >= values.items()
    assert found[TOPIC].topic_id == (await side.cluster.topics(soon()))["contract"]
    for entity_type, entity in ((KraftEntityType.GROUPS, GROUP), (KraftEntityType.CLIENT_METRICS, METRICS)):
        names, _ = await side.cluster.names(entity_type, soon())
        assert entity in names
    names, _ = await side.cluster.names(KraftEntityType.BROKERS, soon())
    assert names == [EVERY_BROKER, BROKER]
    await removed(side, CONFIGS)
    found = await described(side, *CONFIGS)
    for entity, values in CONFIGS.items():
        assert not values.keys() & found[entity].config.keys()
    await side.delete_topic("contract")


async def test_a_recreated_topic_has_another_id_and_no_configs(side: Side) -> None:
    topic = Entity.of(topic="contract-recreated")
    await side.create_topic("contract-recreated")
    await side.alter(topic, {"retention.ms": "1000"})
    before = (await described(side, topic))[topic]
    await side.delete_topic("contract-recreated")
    assert await described(side, topic) == {}
    assert await side.cluster.topic_ids(["contract-recreated"], soon()) == {}
    await side.create_topic("contract-recreated")
    after = (await described(side, topic))[topic]
    assert (before.config, after.config) == ({"retention.ms": "1000"}, {})
    assert before.topic_id not in {None, after.topic_id}
    assert await side.cluster.topic_ids(["contract-recreated", "contract-nothing"], soon()) == {
        "contract-recreated": after.topic_id
    }
    await side.delete_topic("contract-recreated")


async def test_each_alteration_has_its_own_outcome(side: Side) -> None:
    topic = Entity.of(topic="contract-altered")
    await side.create_topic("contract-altered")
    unknown = Entity.of(topic="contract-nothing")
    configs = [Alteration(each, {"retention.ms": "1000"}) for each in (unknown, topic)]
    user = Entity.of(user="contract")
    quotas = [Alteration(user, {RATE: "1000"})]
    for validate_only in (True, False):
        refused, applied = await side.cluster.alter_configs(configs, soon(), validate_only=validate_only)
        assert isinstance(refused, AlterRefused)
        assert (refused.code, applied) == (3, AlterApplied())
        assert await side.cluster.alter_quotas(quotas, soon(), validate_only=validate_only) == [AlterApplied()]
        changed = {} if validate_only else {"retention.ms": "1000"}
        assert (await described(side, topic))[topic].config == changed
        [found] = (await side.cluster.quotas_of([user], soon())).entities
        assert found.config == ({} if validate_only else {RATE: "1000"})
    removals = [Alteration(topic, {"retention.ms": None})]
    assert await side.cluster.alter_configs(removals, soon()) == [AlterApplied()]
    assert await side.cluster.alter_quotas([Alteration(user, {RATE: None})], soon()) == [AlterApplied()]
    assert (await described(side, topic))[topic].config == {}
    await side.delete_topic("contract-altered")


async def test_the_log_has_each_write_with_its_offset_in_order(side: Side) -> None:
    topic = Entity.of(topic="contract-logged")
    user = Entity.of(user="contract")
    changes: list[LogChange] = []
    begin = await side.cluster.barrier(soon())
    await side.alter(user, {RATE: "1"})
    await side.alter(user, {RATE: "2"})
    await side.create_topic("contract-logged")
    await side.alter(topic, {"retention.ms": "1000"})
    await side.delete_topic("contract-logged")
    await side.alter(user, {RATE: None})
    followed = cast("AsyncGenerator[LogPage, None]", side.cluster.follow(begin))
    async with asyncio.timeout(30), aclosing(followed) as pages:
        async for page in pages:
            assert not page.reset
            changes += page.changes
            if changes and (changes[-1].entity, changes[-1].value) == (user, None):
                break
    assert [(each.entity, each.key, each.value) for each in changes] == [
        (user, RATE, "1"),
        (user, RATE, "2"),
        (topic, None, ""),
        (topic, "retention.ms", "1000"),
        (topic, None, None),
        (user, RATE, None),
    ]
    offsets = [each.offset for each in changes]
    assert begin < offsets[0]
    assert offsets == sorted(set(offsets))
    ids = {each.topic_id for each in changes if each.entity == topic}
    assert len(ids) == 1
    assert None not in ids
