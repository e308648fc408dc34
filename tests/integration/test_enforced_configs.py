"""The mode ``enforce`` of topics, brokers, groups and client metrics.

ZooKeeper and Postgres are real, the Kafka cluster is a double.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.entities import Entity
from confplane.services.kraft.reconcile import enforce
from confplane.services.kraft.reconcile.entity_drift import DriftSelection
from confplane.services.ports.applying import AlterRefused
from tests.support.adopting import (
    ADMIN,
    DEFAULT,
    DELIVERY_STEPS,
    GROUP,
    KEYS,
    TOPIC,
    Turmoil,
    adopt_drift,
    alter,
    apply,
    drift,
    equal,
    kill,
    kinds,
    restore,
    rows,
    shown_drift,
)
from tests.support.kafka_double import KafkaDouble

if TYPE_CHECKING:
    from tests.support.adopting import Opener

BROKER, METRICS = Entity.of(broker="1"), Entity.of(client_metrics="m")
RETENTION, SEGMENT, MANAGED = "retention.ms", "segment.ms", "min.insync.replicas"
REFERENCE = "listener.name.internal.ssl.truststore.location"
PASSWORD = "listener.name.internal.ssl.keystore.password"
SET: dict[Entity, dict[str, str]] = {
    TOPIC: {RETENTION: "1000", SEGMENT: "500"},
    GROUP: {"consumer.session.timeout.ms": "46000"},
    METRICS: {"interval.ms": "1000", "metrics": "a"},
    DEFAULT: {"log.retention.ms": "7000000", MANAGED: "1"},
    BROKER: {"log.cleaner.threads": "2"},
}
OTHERS: dict[Entity, dict[str, str | None]] = {
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
def opened(opened: Opener) -> Opener:
    """Opens processes that enforce; the first imports the cluster."""
    return partial(opened, enforced=True)


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


async def test_external_changes_are_reverted_with_one_row_each(opened: Opener, kafka: KafkaDouble) -> None:
    one, two = await opened(), await opened()
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
    # The chain of versions has no gap.
    await one.replica.record()
    assert await kinds(one, TOPIC) == ["put-back"]


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
        each.entity_id: each.drift for each in (await one.states.load("default", [late.id, other.id])).values()
    } == {
        late.id: {},
        other.id: {},
    }


async def test_a_key_that_is_repeatedly_set_externally_is_contested_until_it_is_reapplied_or_adopted(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one = await opened()
    for value in range(5, 6 + enforce.TIMES):
        kafka.alter(TOPIC, {RETENTION: str(value)})
        kafka.alter(BROKER, {"log.cleaner.threads": str(value)})
        await restore(one)
    last = str(5 + enforce.TIMES)
    expected = {
        "broker=1": {"log.cleaner.threads": ("contested", "2", last, "External:unknown")},
        "topic=t": {RETENTION: ("contested", "1000", last, "External:unknown")},
    }
    assert shown_drift(await drift(one)) == expected
    assert await kinds(one, TOPIC) == ["put-back"] * enforce.TIMES
    two = await opened()
    await restore(two)
    assert two.reporter.apply_report().contested.count == 2
    # A look at other areas forgets nothing.
    assert shown_drift(await drift(two)) == expected
    assert await two.drift.reapply([DriftSelection(BROKER, None)], ADMIN, validate_only=False) == {
        "broker=1": ["log.cleaner.threads"]
    }
    [result] = await adopt_drift(two, DriftSelection(TOPIC, None))
    assert result.error is None
    await restore(two)
    await restore(two)
    assert kafka.now.configs[BROKER] == SET[BROKER]
    assert kafka.now.configs[TOPIC] == {**SET[TOPIC], RETENTION: last}
    assert await drift(two) == []
    equal(two, kafka)


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


@pytest.mark.parametrize(
    "spelling", [("cleanup.policy", "compact , delete", "compact,delete"), (RETENTION, "0100", "100")]
)
async def test_no_spelling_is_put_back(opened: Opener, kafka: KafkaDouble, spelling: tuple[str, str, str]) -> None:
    one = await opened()
    key, ours, kafkas = spelling
    await alter(one, TOPIC, {key: ours})
    await apply(one)
    kafka.alter(TOPIC, {key: kafkas})
    sent = len(kafka.requests)
    for _ in range(2):
        await restore(one)
    assert len(kafka.requests) == sent
    assert await kinds(one, TOPIC) == ["change"]


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
    assert await one.states.load("default", [TOPIC.id]) == {}
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


async def in_turmoil(opened: Opener, kafka: KafkaDouble, seed: int, steps: int) -> None:
    """Expect cluster and tree to be equal behind so many steps; others write fewer times than would be contested."""
    entities = (TOPIC, GROUP, DEFAULT)
    turmoil = Turmoil([await opened(), await opened()], kafka, seed, entities=entities, others=enforce.TIMES)
    one = turmoil.sides[0]
    for entity in entities:
        await alter(one, entity, dict.fromkeys(KEYS[entity], "47000" if entity == GROUP else "1000"))
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


async def test_throttles_of_a_reassignment_are_followed_and_other_keys_put_back(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one = await opened(enforced=True)
    throttles = {TOPIC: "leader.replication.throttled.replicas", BROKER: "leader.replication.throttled.rate"}
    values = {TOPIC: "0:1", BROKER: "1000000"}
    before = {entity: dict(kafka.now.configs.get(entity, {})) for entity in throttles}
    await alter(one, TOPIC, {RETENTION: "5"})
    await apply(one)
    for entity, key in throttles.items():
        kafka.alter(entity, {key: values[entity]})
    kafka.alter(TOPIC, {RETENTION: "6"})
    for _ in range(2):
        await restore(one)
    assert kafka.now.configs[TOPIC] == {**before[TOPIC], RETENTION: "5", throttles[TOPIC]: values[TOPIC]}
    assert kafka.now.configs[BROKER] == {**before[BROKER], throttles[BROKER]: values[BROKER]}
    equal(one, kafka)
    for entity, key in throttles.items():
        kafka.alter(entity, {key: None})
    await restore(one)
    assert kafka.now.configs[TOPIC] == {**before[TOPIC], RETENTION: "5"}
    equal(one, kafka)
    assert sorted(await kinds(one, TOPIC)) == ["change", "observed", "observed", "put-back"]
    assert await kinds(one, BROKER) == ["observed", "observed"]
