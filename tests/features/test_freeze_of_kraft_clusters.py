"""A freeze of a cluster whose changes are applied to a Kafka cluster: nothing is sent once it was answered.

ZooKeeper and Postgres are real, the Kafka cluster is a double.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.errors import ForbiddenError
from confplane.services.changes.freeze import FreezeService
from confplane.services.kraft.apply import queues, quiesce
from confplane.services.kraft.apply.apply_status import ApplyWaiter
from confplane.services.kraft.apply.quiesce import UNCONFIRMED, Quiescer, QuiesceResult
from confplane.services.ports.cluster_states import Freeze
from tests.support.adopting import (
    ALICE,
    BOB,
    RATE,
    TOPIC,
    alter,
    drift,
    equal,
    kinds,
    overtake,
    restore,
    shown_drift,
)
from tests.support.kafka_double import KafkaDouble
from tests.support.observing import caller
from tests.support.stores import soon, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.adopting import Opener
    from tests.support.observing import Observing


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A freeze waits for the leader as long as its caller does, whatever else the machine has to do."""
    for name in ("DRAIN_S", "QUIESCE_S"):
        monkeypatch.setattr(quiesce, name, 60.0)


@pytest.fixture
def kafka() -> KafkaDouble:
    made = KafkaDouble()
    made.alter(ALICE, {RATE: "1024"})
    made.create_topic("t")
    made.alter(TOPIC, {"retention.ms": "1000"})
    return made


@pytest.fixture
def usual_mode() -> str:
    return "enforce"


@asynccontextmanager
async def at_work(one: Observing) -> AsyncIterator[None]:
    """The leader's work in the background."""
    one.applier.start()
    one.observer.start()
    try:
        await until(lambda: one.reporter.leading)
        yield
    finally:
        await one.applier.stop()
        await one.observer.stop()


async def freeze(one: Observing) -> QuiesceResult | None:
    """Freeze the cluster; return what became of the application."""
    made = Quiescer(one.store, ApplyWaiter(one.store, one.states))
    found, rest = await made.freeze(FreezeService(one.replica.parts.runner), "a drill", caller())
    assert found.after is not None
    return rest


async def thaw(one: Observing) -> None:
    await FreezeService(one.replica.parts.runner).thaw(one.store, "over", caller())


async def test_what_was_committed_is_applied_and_nothing_is_sent_until_the_thaw(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one = await opened()
    async with at_work(one):
        await alter(one, ALICE, producer_byte_rate=5)
        assert await freeze(one) == QuiesceResult(rested=True, pending=0)
        sent = len(kafka.requests)
        assert kafka.now.configs[ALICE] == {RATE: "5"}
        # Repairs wait as well: of quotas and of configs, and of late requests.
        kafka.alter(ALICE, {RATE: "9"})
        kafka.alter(TOPIC, {"retention.ms": "9"})
        await one.states.reapply("default", {ALICE.id: [RATE]})
        one.polls.request([TOPIC])
        await until(lambda: one.queues.report().pending == 2)
        assert len(kafka.requests) == sent
        assert [await kinds(one, each) for each in (ALICE, TOPIC)] == [["change"], []]
        await thaw(one)
        await until(lambda: kafka.now.configs == {ALICE: {RATE: "5"}, TOPIC: {"retention.ms": "1000"}})
        await until(lambda: one.queues.report().rested is None)
    equal(one, kafka)


async def test_a_stale_in_flight_write_is_counted_once_however_long_its_repair_is_held_back(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one = await opened()
    await overtake(one, kafka)
    async with at_work(one):
        await freeze(one)
    kafka.arrive()
    for _ in range(3):
        await one.poll()
    assert {sample.name: sample.value for sample in one.reporter.metrics()}["applied_late"] == 0
    await thaw(one)
    await restore(one)
    equal(one, kafka)
    assert {sample.name: sample.value for sample in one.reporter.metrics()}["applied_late"] == 1


async def test_what_the_cluster_has_not_taken_is_counted_and_listed(
    opened: Opener, kafka: KafkaDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiesce, "DRAIN_S", 0.1)
    one = await opened()
    async with at_work(one):
        kafka.down = "No broker answers"
        await alter(one, BOB, producer_byte_rate=5)
        assert await freeze(one) == QuiesceResult(rested=True, pending=1)
        assert shown_drift(await drift(one)) == {"user=bob": {RATE: ("pending", "5", None, "User:admin")}}
        kafka.down = None
        # Another leader sends nothing either.
        assert not await one.apply_all()
        assert kafka.requests == []
        await thaw(one)
        await until(lambda: kafka.now.configs.get(BOB) == {RATE: "5"})


async def test_a_request_under_way_is_waited_for(
    opened: Opener, kafka: KafkaDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DRAIN_S", "QUIESCE_S"):
        monkeypatch.setattr(quiesce, name, 0.2)
    one = await opened()
    ended = asyncio.Event()
    asked = asyncio.Event()

    async def behind() -> None:
        asked.set()
        await ended.wait()

    kafka.after_request = behind
    async with at_work(one):
        await alter(one, BOB, producer_byte_rate=5)
        await asked.wait()
        assert await freeze(one) == UNCONFIRMED
        ended.set()
        await until(lambda: one.queues.report().rested is not None)
        # The freeze stands; asked again, it says so.
        monkeypatch.setattr(quiesce, "QUIESCE_S", 60.0)
        assert await freeze(one) == QuiesceResult(rested=True, pending=0)


async def test_an_entity_added_during_its_last_delivery_does_not_wait(
    opened: Opener, kafka: KafkaDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await opened()
    asked = one.states.undelivered
    added = asyncio.Event()

    async def late_answer(cluster: str) -> list[str]:
        """Answer once, in the freeze, as before the end of the sending."""
        if added.is_set() or one.store.status().frozen is None:
            return await asked(cluster)
        added.set()
        return [ALICE.id]

    monkeypatch.setattr(queues, "STATES_POLL_S", 0.0)
    monkeypatch.setattr(one.states, "undelivered", late_answer)
    async with at_work(one):
        await alter(one, ALICE, producer_byte_rate=5)
        assert await freeze(one) == QuiesceResult(rested=True, pending=0)
        assert added.is_set()
    equal(one, kafka)


async def test_a_new_leader_says_so_in_its_turn(opened: Opener, kafka: KafkaDouble) -> None:
    one, two = await opened(), await opened()
    async with at_work(one):
        assert await freeze(one) == QuiesceResult(rested=True, pending=0)
    version = (await one.store.read_state(Freeze, soon())).version
    async with at_work(two):
        await until(lambda: two.queues.report().rested == version)
        assert await freeze(two) == QuiesceResult(rested=True, pending=0)
    assert kafka.requests == []


async def test_without_a_leader_a_freeze_stands_and_says_that_nobody_answered(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await opened()
    for name in ("DRAIN_S", "QUIESCE_S"):
        monkeypatch.setattr(quiesce, name, 0.1)
    assert await freeze(one) == UNCONFIRMED
    assert one.store.status().frozen is not None


async def test_a_cluster_that_is_only_observed_has_nothing_to_wait_for(opened: Opener) -> None:
    one = await opened("observe")
    assert await freeze(one) is None


async def test_nobody_waits_without_the_grant(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await opened()

    class Nobody:
        deadline = soon()

        def require(self, *_: Any) -> None:
            raise ForbiddenError("No grant")

    nobody: Any = Nobody()
    standings: Any = ApplyWaiter(one.store, one.states)
    monkeypatch.setattr(standings, "wait_for_revision", None)
    with pytest.raises(ForbiddenError):
        await Quiescer(one.store, standings).freeze(FreezeService(one.replica.parts.runner), "a drill", nobody)
