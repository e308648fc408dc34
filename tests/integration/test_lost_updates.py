"""Lost updates: external values in a Kafka cluster that queued client changes replace. Each has a row of both values.

ZooKeeper and Postgres are real, the Kafka cluster is a double.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.errors import UnavailableError
from confplane.services.changes.freeze import FreezeService
from confplane.services.kraft.reconcile import enforce
from confplane.services.kraft.reconcile.drift import KeyDriftState
from confplane.services.ports.applying import AlterRefused
from tests.support.adopting import (
    ALICE,
    BOB,
    GROUP,
    OTHER,
    RATE,
    TOPIC,
    alter,
    apply,
    drift,
    equal,
    kinds,
    opener,
    restore,
    rows,
)
from tests.support.kafka_double import KafkaDouble, nothing
from tests.support.observing import caller
from tests.support.stores import soon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kazoo.client import KazooClient

    from confplane.domain.entities import Entity
    from tests.support.adopting import Opener
    from tests.support.observing import Observing
    from tests.support.world import World

SESSION, RETENTION = "consumer.session.timeout.ms", "retention.ms"


@pytest.fixture
def kafka() -> KafkaDouble:
    made = KafkaDouble()
    made.alter(ALICE, {RATE: "1024", OTHER: "1"})
    made.create_topic("t")
    made.alter(TOPIC, {RETENTION: "1000"})
    return made


@pytest.fixture(params=["adopt", "enforce"])
def usual_mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def frozen(one: Observing) -> AsyncIterator[None]:
    """Nothing is sent meanwhile; what was committed before waits."""
    freezes = FreezeService(one.replica.parts.runner)
    await freezes.freeze(one.store, "a drill", caller())
    yield
    await freezes.thaw(one.store, "over", caller())


async def take_back(one: Observing, kafka: KafkaDouble) -> None:
    """One round of the applier that claims what waits, and sends nothing."""
    kafka.down = "No broker answers"
    with pytest.raises(UnavailableError):
        await apply(one)
    kafka.down = None


def counted(one: Observing, name: str) -> Any:
    """A metric of a process."""
    return {sample.name: sample.value for sample in one.reporter.metrics()}[name]


async def replaced(one: Observing, entity: Entity) -> list[tuple[dict[str, str | None], dict[str, str | None]]]:
    """The rows of what was replaced, each with the values here and those of others, in order of time."""
    found = [each for each in await rows(one, entity) if each.kind == "put-back"]
    assert all(each.outcome is not None and not each.outcome.committed for each in found)
    assert all(each.intent.principal == "External:unknown" for each in found)
    parts = [each.intent.entities[0] for each in found]
    return sorted([(each.before, each.after) for each in parts], key=str)


async def test_an_external_value_that_a_queued_change_replaces_has_a_row(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await one.poll()
    await alter(one, ALICE, producer_byte_rate=2048)
    await alter(one, TOPIC, {RETENTION: "2000"})
    await alter(one, BOB, producer_byte_rate=5)
    async with frozen(one):
        # What the changes were made on is nobody's.
        await one.poll()
        assert [await kinds(one, each) for each in (ALICE, TOPIC, BOB)] == [["change"]] * 3
        kafka.alter(ALICE, {RATE: "7"})
        kafka.alter(TOPIC, {RETENTION: None})
        kafka.alter(BOB, {RATE: "8"})
        # Strong reads look as the observer does.
        await one.refresher.refresh([BOB], (), soon())
        for _ in range(2):
            await one.poll()
        kafka.alter(ALICE, {RATE: "9"})
        await one.poll()
    await restore(one)
    equal(one, kafka)
    assert await replaced(one, ALICE) == [
        ({RATE: "2048", OTHER: "1"}, {RATE: "7", OTHER: "1"}),
        ({RATE: "2048", OTHER: "1"}, {RATE: "9", OTHER: "1"}),
    ]
    assert await replaced(one, TOPIC) == [({RETENTION: "2000"}, {})]
    assert await replaced(one, BOB) == [({RATE: "5"}, {RATE: "8"})]
    assert (counted(one, "overwritten_changes"), counted(one, "put_back_changes")) == (4, 0)
    # Of what is applied by now others' changes are followed, or put back, as ever.
    assert [len(await kinds(one, each)) for each in (ALICE, TOPIC, BOB)] == [3, 2, 2]
    assert await drift(one) == []


async def test_values_applied_or_followed_before_are_not_external_values(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await alter(one, GROUP, {SESSION: "46000"})
    await apply(one)
    kafka.alter(ALICE, {RATE: "7"})
    await restore(one)
    before = await kinds(one, ALICE)
    for rate in (1, 2, 3):
        await alter(one, ALICE, producer_byte_rate=rate)
    await alter(one, GROUP, {SESSION: "47000"})
    async with frozen(one):
        for _ in range(2):
            await one.poll()
    await restore(one)
    equal(one, kafka)
    assert await kinds(one, ALICE) == [*before, *["change"] * 3]
    assert await kinds(one, GROUP) == ["change"] * 2


async def test_a_change_that_took_two_attempts_has_the_values_in_front_of_it_too(
    opened: Opener, kafka: KafkaDouble, raw_zk: KazooClient
) -> None:
    one = await opened()
    path = "/config/users/alice"
    raw_zk.set(path, raw_zk.get(path)[0])  # not notified
    await alter(one, ALICE, producer_byte_rate=2048)
    [change] = await rows(one, ALICE)
    assert change.intent.attempt == 2
    async with frozen(one):
        kafka.alter(ALICE, {RATE: "7"})
        await one.poll()
    await restore(one)
    equal(one, kafka)
    assert await replaced(one, ALICE) == [({RATE: "2048", OTHER: "1"}, {RATE: "7", OTHER: "1"})]


async def test_two_leaders_make_one_row(opened: Opener, kafka: KafkaDouble) -> None:
    one, two = await opened(), await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    async with frozen(one):
        kafka.alter(ALICE, {RATE: "7"})
        for each in (one, two, one):
            await each.poll()
    await restore(two)
    equal(two, kafka)
    assert len(await replaced(one, ALICE)) == 1
    assert [counted(each, "overwritten_changes") for each in (one, two)] == [1, 0]


async def test_a_request_under_way_may_have_been_there_first(opened: Opener, kafka: KafkaDouble) -> None:
    """The value of others may be behind it, and is followed or put back then, with the one row of that."""
    one, two = await opened(), await opened()
    await alter(one, ALICE, producer_byte_rate=2048)

    async def others() -> None:
        kafka.alter(ALICE, {RATE: "7"})
        await two.poll()

    kafka.after_request = others
    await apply(one)
    kafka.after_request = nothing
    await restore(one)
    equal(one, kafka)
    assert len(await kinds(one, ALICE)) == 2


async def test_a_request_of_an_earlier_change_under_way_makes_no_second_row(opened: Opener, kafka: KafkaDouble) -> None:
    """The value of others is behind that request, and in front of the next one."""
    one, two = await opened(), await opened()
    await alter(one, ALICE, producer_byte_rate=2048)

    async def others() -> None:
        kafka.after_request = nothing
        kafka.alter(ALICE, {RATE: "7"})
        await alter(two, ALICE, producer_byte_rate=4096)
        await two.poll()

    kafka.after_request = others
    await apply(one)
    async with frozen(one):
        await one.poll()
    await restore(one)
    equal(one, kafka)
    assert await replaced(one, ALICE) == [({RATE: "4096", OTHER: "1"}, {RATE: "7", OTHER: "1"})]


@pytest.mark.parametrize("end", ["nothing was sent", "lost", "refused"])
async def test_what_the_cluster_took_before_is_not_sent_again_with_a_later_change(
    opened: Opener, kafka: KafkaDouble, end: str
) -> None:
    """A later value by others is followed or put back, with its row: the change of another key does not replace it."""
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    await apply(one)
    await alter(one, ALICE, consumer_byte_rate=2)
    if end == "nothing was sent":
        await take_back(one, kafka)
    elif end == "lost":
        kafka.cut = "before"
        await apply(one)
    else:
        kafka.refusals[ALICE] = AlterRefused(44, "A policy forbids it")
        await apply(one)
        kafka.refusals.clear()
        await alter(one, ALICE, consumer_byte_rate=3)
    async with frozen(one):
        kafka.alter(ALICE, {RATE: "7"})
        await one.poll()
    before = len(kafka.requests)
    await apply(one)
    assert [sorted(values) for each in kafka.requests[before:] for values in each.values()] == [[OTHER]]
    await restore(one)
    equal(one, kafka)
    [change] = [each for each in await rows(one, ALICE) if each.kind != "change"]
    [row] = change.intent.entities
    other = {OTHER: "3" if end == "refused" else "2"}
    assert (row.before, row.after) == ({RATE: "2048", **other}, {RATE: "7", **other})


@pytest.mark.parametrize("arrived", [True, False])
async def test_a_value_that_was_taken_is_sent_again_where_another_one_may_have_arrived_since(
    opened: Opener, kafka: KafkaDouble, *, arrived: bool
) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    await apply(one)
    await alter(one, ALICE, producer_byte_rate=4096)
    kafka.cut = "after" if arrived else "before"
    await apply(one)
    await alter(one, ALICE, producer_byte_rate=2048)
    await apply(one)
    equal(one, kafka)
    assert kafka.requests[-1] == {ALICE: {RATE: "2048"}}


async def test_changes_that_end_with_a_value_applied_before_replace_external_values(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    await apply(one)
    kafka.alter(ALICE, {RATE: "7"})
    await alter(one, ALICE, producer_byte_rate=4096)
    await alter(one, ALICE, producer_byte_rate=2048)
    async with frozen(one):
        await one.poll()
    await restore(one)
    equal(one, kafka)
    assert kafka.requests[-1] == {ALICE: {RATE: "2048"}}
    assert await replaced(one, ALICE) == [({RATE: "2048", OTHER: "1"}, {RATE: "7", OTHER: "1"})]


@pytest.mark.parametrize(("read", "sent"), [(2, {RATE: "2048", OTHER: "3"}), (3, {OTHER: "3"})])
async def test_of_more_changes_than_are_read_any_may_name_a_key(
    opened: Opener, kafka: KafkaDouble, monkeypatch: pytest.MonkeyPatch, read: int, sent: dict[str, str]
) -> None:
    monkeypatch.setattr("confplane.audit.key_changes.MOST_CHANGES", read)
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    await apply(one)
    for rate in (2, 3):
        await alter(one, ALICE, consumer_byte_rate=rate)
    await apply(one)
    assert kafka.requests[-1] == {ALICE: sent}
    equal(one, kafka)


async def test_any_of_more_changes_than_are_read_may_name_a_key_despite_external_changes(
    opened: Opener, kafka: KafkaDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    await apply(one)
    for rate in (4096, 2048):
        await alter(one, ALICE, producer_byte_rate=rate)
    await alter(one, ALICE, consumer_byte_rate=3)
    async with frozen(one):
        kafka.alter(ALICE, {OTHER: "9"})
        await one.poll()
    # The newest two are this row, which is no version, and the change of the other key.
    assert len(await replaced(one, ALICE)) == 1
    monkeypatch.setattr("confplane.audit.key_changes.MOST_CHANGES", 2)
    await apply(one)
    assert kafka.requests[-1] == {ALICE: {RATE: "2048", OTHER: "3"}}


@pytest.mark.parametrize("taken_back", [False, True])
async def test_a_skipped_value_may_be_older_than_the_last_poll(
    world: World, kafka: KafkaDouble, *, taken_back: bool
) -> None:
    async with opener(world, kafka) as opened:
        one = await opened("enforce")
        offset = kafka.alter(BOB, {RATE: "8"})
        for _ in range(2):
            await one.poll()
        assert {key.state for each in await drift(one) if each.entity == BOB for key in each.keys} == {
            KeyDriftState.EXTRA
        }
        await alter(one, BOB, producer_byte_rate=5)
        if taken_back:
            await take_back(one, kafka)
        async with frozen(one):
            # Quotas that are all as before are not compared.
            kafka.alter(ALICE, {OTHER: "9"})
            await one.poll()
        [row] = [each.intent for each in await rows(one, BOB) if each.kind == "put-back"]
        assert (row.entities[0].before, row.entities[0].after) == ({RATE: "5"}, {RATE: "8"})
        assert row.observed is not None
        assert row.observed.after is None or row.observed.after < offset
        await restore(one)
        assert await drift(one) == []


@pytest.mark.parametrize("left", ["extra", "contested", "refused"])
async def test_a_poll_of_unchanged_quotas_shows_what_a_queued_change_replaces(
    world: World, kafka: KafkaDouble, left: str
) -> None:
    async with opener(world, kafka) as opened:
        one = await opened("enforce")
        await restore(one)
        entity = BOB if left == "extra" else ALICE
        if left == "refused":
            kafka.refusals[ALICE] = AlterRefused(42, "No")
            await alter(one, ALICE, producer_byte_rate=2)
            await apply(one)
            kafka.refusals.clear()
        for value in range(8 - enforce.TIMES if left == "contested" else 8, 9):
            kafka.alter(entity, {RATE: str(value)})
            await restore(one)
        await restore(one)
        assert kafka.now.configs[entity][RATE] == "8"
        await alter(one, entity, producer_byte_rate=77)
        async with frozen(one):
            await one.poll()
        await restore(one)
        equal(one, kafka)
        assert "8" in [each.intent.entities[0].after.get(RATE) for each in await rows(one, entity)]


async def test_a_change_after_a_refusal_replaces_an_external_value(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    kafka.refusals[TOPIC] = AlterRefused(44, "A policy forbids it")
    kafka.down = "Nobody is asked before the commit"
    await alter(one, TOPIC, {RETENTION: "2000"})
    kafka.down = None
    await apply(one)
    kafka.alter(TOPIC, {RETENTION: "7"})
    await one.poll()
    # Nothing replaces it as long as the change is refused.
    assert await kinds(one, TOPIC) == ["change"]
    kafka.refusals.clear()
    await alter(one, TOPIC, {RETENTION: "4000"})
    async with frozen(one):
        await one.poll()
    await restore(one)
    equal(one, kafka)
    assert await replaced(one, TOPIC) == [({RETENTION: "4000"}, {RETENTION: "7"})]
