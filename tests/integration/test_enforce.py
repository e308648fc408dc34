"""The mode ``enforce``: what others change in a Kafka cluster is put back, recorded once, and left alone where they insist.

ZooKeeper and Postgres are real, the Kafka cluster is a double that loses requests and answers, and delivers some late.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from confplane.audit.feed import PostgresFeedTrail
from confplane.domain.facets import Tree
from confplane.services.changes.freeze import FreezeService
from confplane.services.feed.events import event_of
from confplane.services.feed.positions import FeedPosition
from confplane.services.kraft.reconcile import enforce
from confplane.services.ports.applying import AlterRefused
from tests.support.adopting import (
    ALICE,
    BOB,
    DELIVERY_STEPS,
    OTHER,
    PAIR,
    RATE,
    Turmoil,
    alter,
    apply,
    equal,
    kill,
    kinds,
    overtake,
    restore,
    rows,
)
from tests.support.observing import caller

if TYPE_CHECKING:
    from confplane.domain.entities import Entity
    from confplane.services.ports.trail import AuditRecord
    from tests.support.adopting import Opener
    from tests.support.kafka_double import KafkaDouble
    from tests.support.observing import Observing


@pytest.fixture
def opened(opened: Opener) -> Opener:
    """Opens processes that enforce; the first imports the cluster."""
    return partial(opened, enforced=True)


def report(one: Observing) -> Any:
    """The report on what is applied."""
    return one.reporter.apply_report()


async def put_back(one: Observing, entity: Entity) -> list[AuditRecord]:
    """The rows of what was put back."""
    return [each for each in await rows(one, entity) if each.kind == "put-back"]


async def test_external_changes_are_reverted_with_a_row_of_both_values(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    node = one.store.get(Tree.CONFIG, ALICE.id)
    kafka.alter(ALICE, {RATE: "5", OTHER: None})
    await restore(one)
    assert kafka.requests == [{ALICE: {RATE: "1024", OTHER: "1"}}]
    equal(one, kafka)
    [row] = await rows(one, ALICE)
    assert (row.kind, row.intent.principal) == ("put-back", "External:unknown")
    assert row.outcome is not None
    assert (row.outcome.committed, row.outcome.revision, row.outcome.versions) == (False, None, {})
    assert row.outcome.time_ms is not None
    [entity] = row.intent.entities
    assert (entity.before, entity.after) == ({RATE: "1024", OTHER: "1"}, {RATE: "5"})
    assert (entity.keys, entity.version_read) == ((OTHER, RATE), None)
    # The feed shows it, without a place.
    trail, since = PostgresFeedTrail(one.replica.parts.database), datetime.fromtimestamp(0, UTC)
    [change] = await trail.put_backs("default", since, UUID(int=0), 10)
    facets = one.replica.parts.clusters.get("default").facets
    event = event_of(change, facets, FeedPosition(change.place, change.time_ms))
    assert event is not None
    assert (event.type, event.external, event.change.place.change_id) == ("put-back", True, row.intent.change_id)
    [part] = event.parts
    assert [(each.key, each.before, each.after) for each in part.keys] == [(OTHER, 1, None), (RATE, 1024, 5)]
    # The znode never had it, and its chain of versions has no gap.
    assert one.store.get(Tree.CONFIG, ALICE.id) == node
    await one.replica.record()
    assert await kinds(one, ALICE) == ["put-back"]


async def test_callers_changes_are_applied_as_ever(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    await alter(one, BOB, producer_byte_rate=3)
    await apply(one)
    await restore(one)
    equal(one, kafka)
    assert await kinds(one, ALICE) == ["change"]
    # Of what was applied, others' changes are put back, too; a key that callers removed is removed again.
    await alter(one, BOB, producer_byte_rate=None, consumer_byte_rate=4)
    await apply(one)
    kafka.alter(BOB, {RATE: "3", OTHER: "9"})
    await restore(one)
    assert kafka.now.configs[BOB] == {OTHER: "4"}
    assert await kinds(one, BOB) == ["put-back", "change", "change"]


async def test_a_key_that_was_never_set_here_is_left(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    kafka.alter(BOB, {RATE: "7"})
    kafka.alter(ALICE, {"request_percentage": "50", RATE: "8"})
    await restore(one)
    assert kafka.now.configs[BOB] == {RATE: "7"}
    assert kafka.now.configs[ALICE] == {RATE: "1024", OTHER: "1", "request_percentage": "50"}
    assert one.config(BOB) is None
    assert [name for name, _ in report(one).extra.first] == ["user=alice request_percentage", f"user=bob {RATE}"]
    [row] = await put_back(one, ALICE)
    assert row.intent.entities[0].keys == (RATE,)
    # A caller sets it: it is ours from now on.
    await alter(one, BOB, producer_byte_rate=6)
    await apply(one)
    kafka.alter(BOB, {RATE: "7"})
    await restore(one)
    assert kafka.now.configs[BOB] == {RATE: "6"}
    # Others remove the other: nothing differs any more.
    kafka.alter(ALICE, {"request_percentage": None})
    await restore(one)
    assert report(one).extra.count == 0
    equal(one, kafka)
    assert (await one.states.load("default", [ALICE.id]))[ALICE.id].drift == {}


async def test_a_removal_by_a_caller_is_kept_for_an_imported_key_too(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await alter(one, ALICE, consumer_byte_rate=None)
    await apply(one)
    assert kafka.now.configs[ALICE] == {RATE: "1024"}
    kafka.alter(ALICE, {OTHER: "1", "request_percentage": "50"})
    await restore(one)
    # Nobody here ever named the other key.
    assert kafka.now.configs[ALICE] == {RATE: "1024", "request_percentage": "50"}
    assert await kinds(one, ALICE) == ["put-back", "change"]


async def test_a_key_that_is_repeatedly_set_externally_is_contested(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    for value in range(5, 5 + enforce.TIMES):
        kafka.alter(ALICE, {RATE: str(value)})
        await restore(one)
        assert kafka.now.configs[ALICE][RATE] == "1024"
    kafka.alter(ALICE, {RATE: "99"})
    await restore(one)
    sent = len(kafka.requests)
    await restore(one)
    assert (kafka.now.configs[ALICE][RATE], len(kafka.requests)) == ("99", sent)
    assert len(await put_back(one, ALICE)) == enforce.TIMES
    assert [name for name, _ in report(one).contested.first] == [f"user=alice {RATE}"]
    # So it is for another leader; other keys of the entity are put back all the same.
    two = await opened()
    kafka.alter(ALICE, {OTHER: "77"})
    await restore(two)
    assert kafka.now.configs[ALICE] == {RATE: "99", OTHER: "1"}
    assert report(two).contested.count == 1
    # A caller's change of another key does not end it, a change of this key does.
    await alter(two, ALICE, consumer_byte_rate=2)
    await apply(two)
    await restore(two)
    assert kafka.now.configs[ALICE] == {RATE: "99", OTHER: "2"}
    await alter(two, ALICE, producer_byte_rate=3)
    await apply(two)
    await restore(two)
    assert kafka.now.configs[ALICE] == {RATE: "3", OTHER: "2"}
    assert report(two).contested.count == 0
    kafka.alter(ALICE, {RATE: "99"})
    await restore(two)
    assert kafka.now.configs[ALICE][RATE] == "3"


async def contest(one: Observing, kafka: KafkaDouble) -> None:
    """Have others set a key again and again, until they are let alone with the value 8."""
    for value in range(8 - enforce.TIMES, 9):
        kafka.alter(ALICE, {RATE: str(value)})
        await restore(one)
    assert report(one).contested.count == 1
    assert kafka.now.configs[ALICE][RATE] == "8"


async def test_changes_that_come_back_to_the_value_of_before_end_a_contest(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    await apply(one)
    await contest(one, kafka)
    # Both wait, and are sent as one.
    await alter(one, ALICE, producer_byte_rate=4096)
    await alter(one, ALICE, producer_byte_rate=2048)
    await restore(one)
    assert (kafka.now.configs[ALICE][RATE], report(one).contested.count) == ("2048", 0)


async def test_what_was_contested_is_sent_in_the_mode_adopt(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    await apply(one)
    await contest(one, kafka)
    await one.set_mode("adopt")
    await restore(one)
    assert one.config(ALICE) == {RATE: "8", OTHER: "1"}
    # The value that the cluster took before the contest.
    await alter(one, ALICE, producer_byte_rate=2048)
    await restore(one)
    assert kafka.now.configs[ALICE][RATE] == "2048"
    equal(one, kafka)
    assert [each for each in await kinds(one, ALICE) if each != "put-back"] == ["change", "observed", "change"]


async def test_external_writers_that_stop_end_the_contest(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await contest(one, kafka)
    kafka.alter(ALICE, {RATE: "1024"})
    await restore(one)
    assert report(one).contested.count == 0
    equal(one, kafka)


async def test_two_leaders_make_one_row(opened: Opener, kafka: KafkaDouble) -> None:
    one, two = await opened(), await opened()
    kafka.alter(ALICE, {RATE: "5"})
    await one.poll_once()
    await two.poll_once()
    await apply(two)
    await apply(one)
    await restore(one)
    await restore(two)
    assert await kinds(one, ALICE) == ["put-back"]
    equal(one, kafka)


async def test_a_leader_that_is_paused_before_it_decides_makes_no_second_row(
    opened: Opener, kafka: KafkaDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await opened(), await opened()
    kafka.alter(ALICE, {RATE: "5"})
    states: Any = one.polls._writer.enforcer._states
    correct = states.correct

    async def paused(*given: Any) -> set[str]:
        monkeypatch.undo()
        await restore(two)
        return await correct(*given)  # type: ignore[no-any-return]

    monkeypatch.setattr(states, "correct", paused)
    await one.poll_once()
    await restore(one)
    assert await kinds(one, ALICE) == ["put-back"]
    equal(one, kafka)


@pytest.mark.parametrize("step", ["decided", *DELIVERY_STEPS])
async def test_another_leader_ends_what_a_killed_one_began(opened: Opener, kafka: KafkaDouble, step: str) -> None:
    one = await opened()
    kafka.alter(ALICE, {RATE: "5"})
    await one.poll_once()
    if step != "decided":
        await kill(one, step)
    two = await opened()
    await apply(two)
    await restore(two)
    equal(two, kafka)
    assert await kinds(two, ALICE) == ["put-back"]
    # The next change by others is another one.
    kafka.alter(ALICE, {RATE: "6"})
    await restore(two)
    assert await kinds(two, ALICE) == ["put-back", "put-back"]
    equal(two, kafka)


async def test_a_late_duplicate_of_ours_is_repaired_and_not_anothers(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await overtake(one, kafka)
    kafka.arrive()
    await restore(one)
    equal(one, kafka)
    assert await put_back(one, ALICE) == []
    assert {sample.name: sample.value for sample in one.queues.metrics()}["applied_late"] == 1


async def test_nothing_is_put_back_while_frozen(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    freezes = FreezeService(one.replica.parts.runner)
    await freezes.freeze(one.store, "a drill", caller())
    kafka.alter(ALICE, {RATE: "5"})
    await restore(one)
    assert (kafka.requests, await rows(one, ALICE)) == ([], [])
    await freezes.thaw(one.store, "over", caller())
    await restore(one)
    equal(one, kafka)
    assert await kinds(one, ALICE) == ["put-back"]


async def test_what_the_cluster_refuses_is_not_sent_again_and_again(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    kafka.alter(ALICE, {RATE: "5"})
    kafka.refusals[ALICE] = AlterRefused(44, "A policy forbids it")
    await restore(one)
    await restore(one)
    assert len(kafka.requests) == 1
    assert report(one).refused.first == (("user=alice", "A policy forbids it (code 44)"),)


async def test_the_mode_adopt_takes_over_what_was_left_alone(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    kafka.alter(BOB, {RATE: "7"})
    await restore(one)
    assert report(one).extra.count == 1
    await one.set_mode("adopt")
    await restore(one)
    assert (one.config(BOB), report(one).extra.count) == ({RATE: "7"}, 0)
    assert await kinds(one, BOB) == ["observed"]
    equal(one, kafka)


@pytest.mark.parametrize("mode", ["adopt", "observe"])
async def test_skipped_values_may_be_older_than_the_last_poll_of_the_mode(
    opened: Opener, kafka: KafkaDouble, mode: str
) -> None:
    one = await opened()
    await one.poll()
    offset = kafka.alter(BOB, {RATE: "8"})
    await restore(one)
    kafka.alter(ALICE, {OTHER: "9"})
    for _ in range(2):
        await restore(one)
    await one.set_mode(mode)
    await one.poll()
    [row] = [each.intent for each in await rows(one, BOB)]
    assert row.observed is not None
    assert row.observed.after is None or row.observed.after < offset <= row.observed.until


async def in_turmoil(opened: Opener, kafka: KafkaDouble, seed: int, steps: int) -> None:
    """Expect cluster and tree to be equal behind so many steps; others write fewer times than would be contested."""
    turmoil = Turmoil([await opened(), await opened()], kafka, seed, entities=(ALICE, BOB, PAIR), others=enforce.TIMES)
    one = turmoil.sides[0]
    for entity in (ALICE, BOB, PAIR):
        await alter(one, entity, producer_byte_rate=1, consumer_byte_rate=2)
    await apply(one)
    for number in range(steps):
        await turmoil.step(number)
    await turmoil.end()
    equal(one, kafka)
    theirs = await turmoil.theirs()
    assert {kind for kind, _, _ in theirs} <= {"put-back"}
    assert len(theirs) <= enforce.TIMES - turmoil.others


@pytest.mark.parametrize("seed", range(1, 3))
async def test_cluster_and_tree_are_equal_at_the_end(opened: Opener, kafka: KafkaDouble, seed: int) -> None:
    await in_turmoil(opened, kafka, seed, 40)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 142))
async def test_cluster_and_tree_are_equal_after_many_steps(opened: Opener, kafka: KafkaDouble, seed: int) -> None:
    await in_turmoil(opened, kafka, seed, 200)
