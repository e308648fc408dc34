"""A mode that ends and begins again: what the cluster has taken is not sent again, and all else is decided again.

ZooKeeper and Postgres are real, the Kafka cluster is a double.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from confplane.domain.entities import Entity
from confplane.services.ports.cluster_states import TargetMode
from confplane.services.ports.kafka import KraftEntityType
from tests.support.adopting import ALICE, RATE, TOPIC, alter, apply, equal, kinds, restore
from tests.support.kafka_double import KafkaDouble
from tests.support.observing import caller
from tests.support.stores import mirror_paused
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.adopting import Opener
    from tests.support.observing import Observing

BROKER = Entity.of(broker="1")
PASSWORD = "listener.name.internal.ssl.keystore.password"
CHANGES: dict[Entity, tuple[str, str, str, str]] = {
    ALICE: (RATE, "1", "2", "consumer_byte_rate"),
    TOPIC: ("retention.ms", "1000", "2000", "segment.ms"),
    BROKER: ("log.cleaner.threads", "2", "3", "background.threads"),
}
"""A key of each entity, its value, another value, and another key."""


@pytest.fixture
def kafka() -> KafkaDouble:
    made = KafkaDouble()
    made.create_topic("t")
    made.opaque_keys = {PASSWORD}
    made.static = {"log.cleaner.threads": "2", "background.threads": "2"}
    return made


@pytest.fixture
def opened(opened_with_encoder: Opener) -> Opener:
    return opened_with_encoder


async def begin_again(one: Observing, *types: KraftEntityType) -> None:
    """End the mode of some types or of all, poll everything, and begin it."""
    await one.set_mode("observe", types)
    await apply(one)
    await one.poll()
    assert one.queues.report().refused.count == 0
    await one.set_mode("adopt", types)


@pytest.mark.parametrize("entity", CHANGES, ids=str)
async def test_what_the_cluster_has_taken_is_not_sent_again(opened: Opener, kafka: KafkaDouble, entity: Entity) -> None:
    one = await opened()
    key, value, other, second = CHANGES[entity]
    await alter(one, entity, {key: value})
    await apply(one)
    await begin_again(one)
    # It is set externally before the first poll of the mode.
    kafka.alter(entity, {key: other})
    await apply(one)
    assert kafka.requests == [{entity: {key: value}}]
    await alter(one, entity, {second: value})
    await apply(one)
    assert kafka.requests[1:] == [{entity: {second: value}}]
    await restore(one)
    assert one.config(entity) == {key: other, second: value}
    equal(one, kafka)
    assert await kinds(one, entity) == ["change", "change", "observed"]


async def test_a_process_with_an_old_mirror_sends_nothing_again(opened: Opener, kafka: KafkaDouble) -> None:
    one, late = await opened(), await opened()
    async with mirror_paused(late.store):
        await alter(one, ALICE, {RATE: "1"})
        await apply(one)
        ending = asyncio.create_task(late.targets.set_mode(TargetMode.OBSERVE, caller()))
        follower = late.store._follower
        await until(lambda: ending.done() or follower._strong, why="it waits for its mirror")
    await ending
    await one.aware()
    await apply(one)
    await one.poll()
    await one.set_mode("adopt")
    kafka.alter(ALICE, {RATE: "2"})
    await apply(one)
    assert kafka.requests == [{ALICE: {RATE: "1"}}]


async def test_a_password_that_the_cluster_has_taken_is_not_sent_again(opened: Opener, kafka: KafkaDouble) -> None:
    """Another tool may have replaced it, and the cluster does not show it."""
    one = await opened()
    await alter(one, BROKER, {PASSWORD: "hunter2"})
    await apply(one)
    await begin_again(one)
    await alter(one, BROKER, {"log.cleaner.threads": "2"})
    await restore(one)
    assert kafka.requests == [{BROKER: {PASSWORD: "hunter2"}}, {BROKER: {"log.cleaner.threads": "2"}}]


@pytest.mark.parametrize("types", [(), (KraftEntityType.BROKERS,)], ids=["all", "brokers"])
async def test_a_password_that_the_cluster_refused_is_sent_once_a_mode_begins(
    opened: Opener, kafka: KafkaDouble, types: tuple[KraftEntityType, ...]
) -> None:
    one = await opened()
    await alter(one, BROKER, {PASSWORD: "hunter2", "log.cleaner.threads": "2"})
    kafka.refused_keys[PASSWORD] = {"hunter2"}
    await apply(one)
    assert one.queues.report().refused.count == 1
    kafka.refused_keys.clear()
    await begin_again(one, *types)
    await apply(one)
    assert kafka.requests[-1] == {BROKER: {PASSWORD: "hunter2", "log.cleaner.threads": "2"}}
    assert one.queues.report().refused.count == 0


async def test_a_change_that_waits_when_a_mode_ends_is_undone(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await alter(one, ALICE, {RATE: "1"})
    await apply(one)
    await alter(one, ALICE, {RATE: "2"})
    await begin_again(one)
    await restore(one)
    assert kafka.now.configs[ALICE] == one.config(ALICE) == {RATE: "1"}
    assert len(kafka.requests) == 1
    assert await kinds(one, ALICE) == ["change", "change", "observed"]
