"""The mode ``enforce``: external changes are put back, recorded once, and left alone if they are repeated.

ZooKeeper and Postgres are real, the Kafka cluster is a double that loses requests and answers, and delivers some late.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from confplane.audit.feed import PostgresFeedTrail
from confplane.domain.entities import Entity
from confplane.domain.facets import Tree
from confplane.services.changes.freeze import FreezeService
from confplane.services.feed.events import event_of
from confplane.services.feed.positions import FeedPosition
from confplane.services.kraft.reconcile import enforce
from confplane.services.ports.applying import NO_STATE, AlterRefused
from tests.support.adopting import (
    ALICE,
    BOB,
    DEFAULT,
    DELIVERY_STEPS,
    GROUP,
    KEYS,
    OTHER,
    PAIR,
    RATE,
    TOPIC,
    Turmoil,
    alter,
    apply,
    drift,
    equal,
    kill,
    kinds,
    overtake,
    restore,
    rows,
    shown_drift,
)
from tests.support.kafka_double import KafkaDouble
from tests.support.observing import caller

if TYPE_CHECKING:
    from tests.support.adopting import Opener
    from tests.support.observing import Observing

BROKER, METRICS = Entity.of(broker="1"), Entity.of(client_metrics="m")
RETENTION, SEGMENT, MANAGED = "retention.ms", "segment.ms", "min.insync.replicas"
REFERENCE = "listener.name.internal.ssl.truststore.location"
PASSWORD = "listener.name.internal.ssl.keystore.password"
SET: dict[Entity, dict[str, str]] = {
    ALICE: {RATE: "1024", OTHER: "1"},
    TOPIC: {RETENTION: "1000", SEGMENT: "500"},
    GROUP: {"consumer.session.timeout.ms": "46000"},
    METRICS: {"interval.ms": "1000", "metrics": "a"},
    DEFAULT: {"log.retention.ms": "7000000", MANAGED: "1"},
    BROKER: {"log.cleaner.threads": "2"},
}
OTHERS: dict[Entity, dict[str, str | None]] = {
    ALICE: {RATE: "5", OTHER: None},
    TOPIC: {RETENTION: "9", SEGMENT: None},
    GROUP: {"consumer.session.timeout.ms": None},
    METRICS: {"interval.ms": "2000"},
    DEFAULT: {"log.retention.ms": "8000000"},
    BROKER: {"log.cleaner.threads": "7"},
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
    return "enforce"


@pytest.mark.parametrize("step", ["decided", *DELIVERY_STEPS])
async def test_another_leader_ends_what_a_killed_one_began(opened: Opener, kafka: KafkaDouble, step: str) -> None:
    one = await opened()
    for entity, values in OTHERS.items():
        kafka.alter(entity, values)
    await one.poll()
    if step != "decided":
        await kill(one, step)
    two = await opened()
    await apply(two)
    await restore(two)
    assert kafka.now.configs == SET
    equal(two, kafka)
    for entity in OTHERS:
        assert await kinds(two, entity) == ["put-back"]
    # The next change by others is another one.
    kafka.alter(BROKER, OTHERS[BROKER])
    await restore(two)
    assert await kinds(two, BROKER) == ["put-back", "put-back"]
    equal(two, kafka)


@pytest.mark.parametrize(("ours", "theirs"), [("a", "a\0b"), ("a\0b", "c")])
async def test_a_value_that_postgres_can_not_store_stops_neither_polls_nor_deliveries(
    opened: Opener, kafka: KafkaDouble, ours: str, theirs: str
) -> None:
    kafka.alter(METRICS, {"metrics": ours})
    one = await opened()
    kafka.alter(METRICS, {"metrics": theirs})
    kafka.alter(BROKER, OTHERS[BROKER])
    await restore(one)
    assert kafka.now.configs == SET | {METRICS: SET[METRICS] | {"metrics": ours}}
    assert (await kinds(one, METRICS), await kinds(one, BROKER)) == (["put-back"], ["put-back"])
    # A queued change replaces such a value.
    await alter(one, METRICS, {"metrics": "d"})
    kafka.alter(METRICS, {"metrics": "e\0f"})
    await one.poll()
    await one.poll()
    await restore(one)
    assert kafka.now.configs[METRICS]["metrics"] == "d"
    assert sorted(await kinds(one, METRICS)) == ["change", "put-back", "put-back"]
    equal(one, kafka)


async def test_external_changes_are_reverted_with_one_row_each(opened: Opener, kafka: KafkaDouble) -> None:
    one, two = await opened(), await opened()
    node = one.store.get(Tree.CONFIG, ALICE.id)
    for entity, values in OTHERS.items():
        kafka.alter(entity, values)
    # Both lead for a moment.
    await one.poll()
    await two.poll()
    await apply(two)
    await apply(one)
    await restore(one)
    await restore(two)
    assert kafka.now.configs == SET
    equal(one, kafka)
    for entity, values in OTHERS.items():
        [row] = await rows(one, entity)
        assert (row.kind, row.intent.principal) == ("put-back", "External:unknown")
        assert row.outcome is not None
        assert (row.outcome.committed, row.outcome.revision) == (False, None)
        [made] = row.intent.entities
        assert made.before == SET[entity]
        assert made.after == {key: each for key, each in {**SET[entity], **values}.items() if each is not None}
        assert made.keys == tuple(sorted(values))
        assert made.version_read is None
    # The feed shows it, without a place.
    trail, since = PostgresFeedTrail(one.replica.parts.database), datetime.fromtimestamp(0, UTC)
    changes = await trail.put_backs("default", since, UUID(int=0), 10)
    facets = one.replica.parts.clusters.get("default").facets
    events = [event_of(each, facets, FeedPosition(each.place, each.time_ms)) for each in changes]
    assert {(each.type, each.external) for each in events if each is not None} == {("put-back", True)}
    [part] = [part for each in events if each is not None for part in each.parts if part.entity == ALICE]
    assert [(each.key, each.before, each.after) for each in part.keys] == [(OTHER, 1, None), (RATE, 1024, 5)]
    # The znode never had it, and its chain of versions has no gap.
    assert one.store.get(Tree.CONFIG, ALICE.id) == node
    await one.replica.record()
    assert await kinds(one, ALICE) == await kinds(one, TOPIC) == ["put-back"]


async def test_a_key_that_was_never_set_here_is_left_and_listed(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    late, other = Entity.of(topic="late"), Entity.of(group="other")
    kafka.create_topic("late")
    kafka.alter(late, {RETENTION: "3"})
    kafka.alter(other, {"consumer.heartbeat.interval.ms": "6000"})
    kafka.alter(TOPIC, {"retention.bytes": "77"})
    await restore(one)
    await restore(one)
    assert kafka.requests == []
    assert shown_drift(await drift(one)) == {
        "group=other": {"consumer.heartbeat.interval.ms": ("extra", None, "6000", "External:unknown")},
        "topic=late": {RETENTION: ("extra", None, "3", "External:unknown")},
        "topic=t": {"retention.bytes": ("extra", None, "77", "External:unknown")},
    }
    listed = [name for name, _ in one.reporter.apply_report().extra.first]
    assert listed == [
        "group=other consumer.heartbeat.interval.ms",
        f"topic=late {RETENTION}",
        "topic=t retention.bytes",
    ]
    # Another leader lists them as well, until they are gone.
    two = await opened()
    await restore(two)
    kafka.delete_topic("late")
    kafka.alter(other, {"consumer.heartbeat.interval.ms": None})
    kafka.alter(TOPIC, {"retention.bytes": None})
    await restore(two)
    assert (await drift(two), two.reporter.apply_report().extra.count) == ([], 0)
    assert {
        entity_id: state.drift for entity_id, state in (await one.states.load("default", [late.id, other.id])).items()
    } == {
        late.id: {},
        other.id: {},
    }


async def test_external_names_that_no_index_takes_hold_up_no_other_entity(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    # Random, because Postgres compresses texts.
    name = Entity.of(user=secrets.token_hex(2_000))
    key = f"listener.name.{secrets.token_hex(2_000)}.ssl.truststore.location"
    kafka.alter(name, {RATE: "3"})
    kafka.alter(BROKER, {**OTHERS[BROKER], key: "4"})
    kafka.alter(ALICE, OTHERS[ALICE])
    await restore(one)
    assert kafka.now.configs == {**SET, name: {RATE: "3"}, BROKER: {**SET[BROKER], key: "4"}}
    state = (await one.states.load("default", [BROKER.id]))[BROKER.id]
    assert state.drift.keys() == {key}


async def test_what_the_cluster_hides_or_sets_by_itself_is_never_put_back(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await alter(one, BROKER, {REFERENCE: "${file:/secrets:key}"})
    await apply(one)
    sent = len(kafka.requests)
    kafka.alter(BROKER, {REFERENCE: "/secret/place"})
    kafka.hide(BROKER, PASSWORD)
    kafka.alter(DEFAULT, {MANAGED: "2", "log.retention.ms": "5"})
    for _ in range(2):
        await restore(one)
    assert [set(each) for each in kafka.requests[sent:]] == [{DEFAULT}]
    assert kafka.requests[-1][DEFAULT] == {"log.retention.ms": "7000000"}
    assert one.config(BROKER) == {**SET[BROKER], REFERENCE: "${file:/secrets:key}"}
    assert one.config(DEFAULT) == {**SET[DEFAULT], MANAGED: "2"}
    assert await kinds(one, BROKER) == ["change"]
    assert sorted(await kinds(one, DEFAULT)) == ["observed", "put-back"]
    equal_but(one, kafka, BROKER)


async def test_without_eligible_leader_replicas_nothing_of_brokers_is_the_clusters_own(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one = await opened()
    kafka.keeps_eligible_replicas = False
    await alter(one, DEFAULT, {MANAGED: "3"})
    await apply(one)
    kafka.alter(DEFAULT, {MANAGED: "1"})
    await restore(one)
    assert kafka.now.configs[DEFAULT][MANAGED] == "3"
    assert sorted(await kinds(one, DEFAULT)) == ["change", "put-back"]
    # The feature may be turned on at any time, and its key is the cluster's from then on.
    kafka.keeps_eligible_replicas = True
    kafka.alter(DEFAULT, {MANAGED: "2"})
    await restore(one)
    assert (one.config(DEFAULT) or {})[MANAGED] == "2"
    equal(one, kafka)


def equal_but(one: Any, kafka: KafkaDouble, entity: Entity) -> None:
    """Expect the same configs here and in the cluster, except those of one entity."""
    kafka.now.configs[entity] = one.config(entity)
    equal(one, kafka)


@pytest.mark.parametrize("begun", ["nothing", "decided", "sent"])
async def test_a_recreated_topic_never_gets_the_configs_of_the_earlier_one(
    opened: Opener, kafka: KafkaDouble, begun: str
) -> None:
    one = await opened()
    await alter(one, TOPIC, {RETENTION: "2000", "retention.bytes": "5"})
    await alter(one, TOPIC, {"retention.bytes": None})
    await apply(one)
    if begun != "nothing":
        kafka.alter(TOPIC, {RETENTION: "9"})
        await one.poll()
    if begun == "sent":
        kafka.cut = "before"
        await apply(one)
    sent = len(kafka.requests)
    kafka.delete_topic("t")
    kafka.create_topic("t")
    # Values of the earlier topic, and a key that callers removed of that.
    theirs = {RETENTION: "1000", "retention.bytes": "5"}
    kafka.alter(TOPIC, theirs)
    for _ in range(3):
        await apply(one)
        await one.poll()
    assert len(kafka.requests) == sent
    assert kafka.now.configs[TOPIC] == theirs
    assert one.config(TOPIC) == {}
    assert {key: each[0] for key, each in shown_drift(await drift(one))["topic=t"].items()} == dict.fromkeys(
        theirs, "extra"
    )
    assert one.queues.report().pending == one.queues.report().held.count == 0
    # The present topic is enforced as any other.
    await alter(one, TOPIC, {RETENTION: "7"})
    await apply(one)
    kafka.alter(TOPIC, {RETENTION: "8", "retention.bytes": "6"})
    await restore(one)
    assert kafka.now.configs[TOPIC] == {RETENTION: "7", "retention.bytes": "6"}


async def test_the_state_of_a_topic_that_is_gone_is_dropped(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    kafka.alter(TOPIC, {RETENTION: "9"})
    await one.poll()
    kafka.delete_topic("t")
    await apply(one)
    await restore(one)
    assert one.config(TOPIC) == {}
    await apply(one)
    assert (kafka.requests, one.queues.report().pending, one.queues.report().held.count) == ([], 0, 0)
    assert await one.states.load("default", [TOPIC.id]) == {TOPIC.id: NO_STATE}
    assert await drift(one) == []


async def test_a_broker_that_is_away_is_put_back_once_it_is_there(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    kafka.alter(BROKER, OTHERS[BROKER])
    kafka.alter(TOPIC, OTHERS[TOPIC])
    await one.poll()
    kafka.away = True
    await restore(one)
    assert kafka.now.configs[TOPIC] == SET[TOPIC]
    assert kafka.now.configs[BROKER] == OTHERS[BROKER]
    kafka.away = False
    await restore(one)
    assert kafka.now.configs == SET
    assert await kinds(one, BROKER) == ["put-back"]


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
    kafka.alter(TOPIC, OTHERS[TOPIC])
    kafka.refusals[TOPIC] = AlterRefused(44, "A policy forbids it")
    for _ in range(3):
        await restore(one)
    assert len(kafka.requests) == 1
    assert [name for name, _ in one.queues.report().refused.first] == ["topic=t"]


async def test_a_client_that_writes_during_the_decision_is_not_an_external_writer(
    opened: Opener, kafka: KafkaDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await opened()
    kafka.alter(TOPIC, {RETENTION: "9"})
    enforcer: Any = one.polls._writer.enforcer
    decide = enforcer.correct

    async def late(*given: Any) -> Any:
        monkeypatch.undo()
        await alter(one, TOPIC, {SEGMENT: "600"})
        return await decide(*given)

    monkeypatch.setattr(enforcer, "correct", late)
    await one.poll()
    assert await kinds(one, TOPIC) == ["change"]
    await apply(one)
    await restore(one)
    assert kafka.now.configs[TOPIC] == {RETENTION: "1000", SEGMENT: "600"}
    assert await kinds(one, TOPIC) == ["put-back", "change"]


@pytest.mark.parametrize("mode", ["adopt", "observe"])
async def test_another_mode_takes_over_what_was_left_alone(opened: Opener, kafka: KafkaDouble, mode: str) -> None:
    one = await opened()
    kafka.alter(TOPIC, {"retention.bytes": "77"})
    await restore(one)
    assert one.reporter.apply_report().extra.count == 1
    await one.set_mode(mode)
    await restore(one)
    assert one.config(TOPIC) == {**SET[TOPIC], "retention.bytes": "77"}
    assert await kinds(one, TOPIC) == ["observed"]
    equal(one, kafka)


def report(one: Observing) -> Any:
    """The report on what is applied."""
    return one.reporter.apply_report()


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


async def test_a_key_that_was_never_set_here_is_put_back_once_a_client_sets_it(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one = await opened()
    kafka.alter(BOB, {RATE: "7"})
    await restore(one)
    assert (kafka.now.configs[BOB], one.config(BOB)) == ({RATE: "7"}, None)
    await alter(one, BOB, producer_byte_rate=6)
    await apply(one)
    kafka.alter(BOB, {RATE: "7"})
    await restore(one)
    assert kafka.now.configs[BOB] == {RATE: "6"}
    equal(one, kafka)


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
    assert await kinds(one, ALICE) == ["put-back"] * enforce.TIMES
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


async def test_a_late_duplicate_of_ours_is_repaired_and_not_anothers(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await overtake(one, kafka)
    kafka.arrive()
    await restore(one)
    equal(one, kafka)
    assert await kinds(one, ALICE) == ["change", "change"]
    assert {sample.name: sample.value for sample in one.reporter.metrics()}["applied_late"] == 1


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


QUOTA_KEYS = {ALICE: "1", BOB: "1", PAIR: "1"}
CONFIG_KEYS = {TOPIC: "1000", GROUP: "47000", DEFAULT: "1000"}


async def in_turmoil(opened: Opener, kafka: KafkaDouble, values: dict[Entity, str], seed: int, steps: int) -> None:
    """Expect cluster and tree to be equal behind so many steps; others write fewer times than would be contested."""
    turmoil = Turmoil([await opened(), await opened()], kafka, seed, entities=tuple(values), others=enforce.TIMES)
    one = turmoil.sides[0]
    for entity, value in values.items():
        await alter(one, entity, dict.fromkeys(KEYS[entity], value))
    await apply(one)
    for number in range(steps):
        await turmoil.step(number)
    await turmoil.end()
    equal(one, kafka)
    theirs = await turmoil.theirs()
    assert {kind for kind, _, _ in theirs} <= {"put-back"}
    assert len(theirs) <= enforce.TIMES - turmoil.others


@pytest.mark.parametrize("values", [QUOTA_KEYS, CONFIG_KEYS], ids=["quotas", "configs"])
@pytest.mark.parametrize("seed", range(1, 3))
async def test_cluster_and_tree_are_equal_at_the_end(
    opened: Opener, kafka: KafkaDouble, values: dict[Entity, str], seed: int
) -> None:
    await in_turmoil(opened, kafka, values, seed, 40)


@pytest.mark.long
@pytest.mark.parametrize("values", [QUOTA_KEYS, CONFIG_KEYS], ids=["quotas", "configs"])
@pytest.mark.parametrize("seed", range(100, 142))
async def test_cluster_and_tree_are_equal_after_many_steps(
    opened: Opener, kafka: KafkaDouble, values: dict[Entity, str], seed: int
) -> None:
    await in_turmoil(opened, kafka, values, seed, 200)
