"""Entity types with modes of their own: who writes, what is followed, and what is put back, of each type.

ZooKeeper and Postgres are real, the Kafka cluster is a double.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from confplane.domain.entities import Entity
from confplane.domain.errors import ObservedError
from confplane.domain.facets import FacetName, Tree
from confplane.domain.ops import Op, OpType
from confplane.services.kraft.apply.apply_status import ApplyWaiter
from confplane.services.kraft.reconcile.drift import DriftSelection
from confplane.services.ports.cluster_states import TargetMode
from confplane.services.ports.kafka import KraftEntityType, kraft_type_of
from tests.support.adopting import (
    ADMIN,
    ALICE,
    DEFAULT,
    GROUP,
    KEYS,
    RATE,
    TOPIC,
    adopt_drift,
    alter,
    apply,
    drift,
    equal,
    kinds,
    restore,
    rows,
    shown_drift,
)
from tests.support.kafka_double import KafkaDouble
from tests.support.stores import soon

if TYPE_CHECKING:
    from tests.support.adopting import Opener
    from tests.support.observing import Observing

METRICS = Entity.of(client_metrics="m")
SET: dict[Entity, dict[str, str]] = {
    ALICE: {RATE: "1024"},
    TOPIC: {"retention.ms": "1000"},
    GROUP: {"consumer.session.timeout.ms": "46000"},
    DEFAULT: {"log.retention.ms": "7000000"},
    METRICS: {"interval.ms": "1000"},
}
MODES = {
    KraftEntityType.QUOTAS: TargetMode.ENFORCE,
    KraftEntityType.TOPICS: TargetMode.ADOPT,
    KraftEntityType.GROUPS: TargetMode.OBSERVE,
    KraftEntityType.BROKERS: TargetMode.ENFORCE,
    KraftEntityType.CLIENT_METRICS: TargetMode.OBSERVE,
}


@pytest.fixture
def kafka() -> KafkaDouble:
    made = KafkaDouble()
    made.create_topic("t")
    for entity, config in SET.items():
        made.alter(entity, config)
    return made


@pytest.fixture
def usual_mode() -> str:
    return "observe"


async def choose(one: Observing, modes: dict[KraftEntityType, TargetMode]) -> None:
    """Give entity types their modes, as the commands do."""
    for mode in (TargetMode.ADOPT, TargetMode.ENFORCE, TargetMode.OBSERVE):
        some = [area for area, each in modes.items() if each is mode]
        if some:
            await one.set_mode(mode, some)


def other(entity: Entity, value: str | None = None) -> dict[str, str | None]:
    """Another value of the entity's key."""
    [(key, present)] = SET[entity].items()
    return {key: str(int(present) + 1) if value is None else value}


async def test_each_type_has_its_mode(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await choose(one, MODES)
    for entity in SET:
        kafka.alter(entity, other(entity))
    await restore(one)
    found = {kraft_type_of(entity): await kinds(one, entity) for entity in SET}
    assert found == {area: ["put-back" if mode is TargetMode.ENFORCE else "observed"] for area, mode in MODES.items()}
    for entity, config in SET.items():
        kept = MODES[kraft_type_of(entity)] is TargetMode.ENFORCE
        assert kafka.now.configs[entity] == (config if kept else other(entity))
    equal(one, kafka)
    # Callers write what is not observed.
    for entity, config in SET.items():
        op = Op(next(iter(config)), OpType.DELETE)
        facet = FacetName.CLIENT_QUOTAS if entity == ALICE else FacetName.CONFIGS
        (result,) = await one.replica.edit(entity, facet, (op,))
        assert isinstance(result.error, ObservedError) is (MODES[kraft_type_of(entity)] is TargetMode.OBSERVE)
    await apply(one)
    await restore(one)
    assert kafka.now.configs.keys() == {GROUP, METRICS}
    equal(one, kafka)


async def test_a_type_that_is_observed_again_is_given_back_and_sent_nothing(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await choose(one, dict.fromkeys(KraftEntityType, TargetMode.ENFORCE))
    kafka.alter(TOPIC, {"segment.ms": "5"})
    await restore(one)
    assert one.reporter.apply_report().extra.count == 1
    await alter(one, TOPIC, {"retention.ms": "5"})
    await alter(one, ALICE, producer_byte_rate=5)
    await choose(one, {KraftEntityType.TOPICS: TargetMode.OBSERVE})
    await apply(one)
    assert kafka.requests == [{ALICE: {RATE: "5"}}]
    assert one.queues.report().pending == 0
    await restore(one)
    assert one.config(TOPIC) == {"retention.ms": "1000", "segment.ms": "5"}
    assert sorted(await kinds(one, TOPIC)) == ["change", "observed"]
    assert (one.reporter.apply_report().extra.count, await drift(one)) == (0, [])
    equal(one, kafka)
    # It begins anew: nothing is known of what was sent before.
    await choose(one, {KraftEntityType.TOPICS: TargetMode.ENFORCE})
    kafka.alter(TOPIC, {"retention.ms": "9"})
    await restore(one)
    equal(one, kafka)
    assert kafka.now.configs[TOPIC] == {"retention.ms": "1000", "segment.ms": "5"}


async def test_drift_is_that_of_the_types_that_callers_write(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await choose(one, {KraftEntityType.QUOTAS: TargetMode.ENFORCE, KraftEntityType.TOPICS: TargetMode.ENFORCE})
    for entity in (TOPIC, ALICE):
        kafka.alter(entity, {"retention.bytes" if entity == TOPIC else "consumer_byte_rate": "7"})
    kafka.alter(GROUP, other(GROUP))
    await one.poll()
    assert set(shown_drift(await drift(one))) == {"topic=t", "user=alice"}
    await choose(one, {KraftEntityType.TOPICS: TargetMode.OBSERVE})
    assert set(shown_drift(await drift(one))) == {"user=alice"}
    assert await one.drift.reapply([DriftSelection(TOPIC, None)], ADMIN, validate_only=True) == {}
    # What is observed has nothing to adopt.
    [result] = await adopt_drift(one, DriftSelection(GROUP, None))
    assert result.error is None
    assert await kinds(one, GROUP) == ["observed"]


async def test_what_is_applied_is_said_of_the_types_that_callers_write(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await choose(one, {KraftEntityType.TOPICS: TargetMode.ADOPT})
    await alter(one, TOPIC, {"retention.ms": "5"})
    await apply(one)
    standings = ApplyWaiter(one.store, one.states)
    nodes = [node for entity in SET if (node := one.store.get(Tree.CONFIG, entity.id)) is not None]
    assert {each: found.state.value for each, found in (await standings.statuses(nodes)).items()} == {
        "topic=t": "applied"
    }
    assert kafka.requests == [{TOPIC: {"retention.ms": "5"}}]


async def turn(one: Observing, kafka: KafkaDouble, chooser: random.Random, number: int) -> None:
    """One of all that may happen."""
    entity = chooser.choice((ALICE, TOPIC, GROUP, DEFAULT))
    key, value = KEYS[entity][0], (46_000 if entity == GROUP else 1000) + number
    target = one.store.target()
    assert target is not None
    match chooser.randrange(6):
        case 0:
            await choose(one, {kraft_type_of(entity): chooser.choice(list(TargetMode))})
        case 1 if target.applies_to(kraft_type_of(entity)):
            await alter(one, entity, {key: value if entity == ALICE else str(value)})
        case 2:
            kafka.alter(entity, {key: str(value)})
        case 3:
            kafka.cut = chooser.choice(["before", "after"])
            await apply(one)
        case 4:
            await apply(one)
        case _:
            await one.store.catch_up(soon())
            await one.poll_once()


@pytest.mark.parametrize("seed", [1, 2])
async def test_cluster_and_tree_are_equal_whatever_the_modes_change_to(
    opened: Opener, kafka: KafkaDouble, seed: int
) -> None:
    """Callers, others, lost requests and two leaders, while the modes of the types change."""
    sides = [await opened(), await opened()]
    one, chooser = sides[0], random.Random(seed)  # noqa: S311 - seeded
    for number in range(30):
        for side in sides:
            await side.aware()
        await turn(chooser.choice(sides), kafka, chooser, number)
    kafka.cut = None
    await choose(one, dict.fromkeys(KraftEntityType, TargetMode.ADOPT))
    for _ in range(3):
        for side in sides:
            await side.aware()
            await apply(side)
            await side.poll()
    equal(one, kafka)
    assert one.queues.report().pending == 0
    # What was put back never was a version of its entity.
    for row in [row for entity in SET for row in await rows(one, entity)]:
        assert row.outcome is not None
        assert row.outcome.committed is (row.kind != "put-back")
