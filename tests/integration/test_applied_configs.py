"""Callers write the configs of a Kafka cluster in the mode ``adopt``: topics, brokers, groups and client metrics.

ZooKeeper and Postgres are real, the Kafka cluster is a double.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from confplane.audit.target_state_statements import MOST_UNKNOWN
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import (
    InvalidConfigError,
    InvalidRequestError,
    NotAttemptedError,
    PolicyViolationError,
    UnavailableError,
    UnknownTopicError,
    WriteOutcome,
)
from confplane.domain.facets import FacetName, Tree
from confplane.domain.ops import Op, OpType
from confplane.services.changes.edits import Edit
from confplane.services.ports.applying import FINGERPRINT, AlterRefused
from confplane.services.ports.kafka import KraftEntityType
from tests.audit.rows import fetch
from tests.support.adopting import ALICE, DELIVERY_STEPS, RATE, alter, apply, equal, kill, opener, rows
from tests.support.kafka_double import KafkaDouble
from tests.support.observing import caller, znode_metadata
from tests.support.stores import soon, until

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.services.changes.edits import EditResult
    from tests.support.adopting import Opener
    from tests.support.observing import Observing
    from tests.support.world import World

TOPIC, GROUP, METRICS = Entity.of(topic="t"), Entity.of(group="g"), Entity.of(client_metrics="m")
DEFAULT, BROKER = Entity.of(broker=None), Entity.of(broker="1")
REFERENCE = "listener.name.internal.ssl.truststore.location"
PASSWORD = "listener.name.internal.ssl.keystore.password"
SETTINGS: dict[Entity, dict[str, str]] = {
    ALICE: {RATE: "3"},
    TOPIC: {"retention.ms": "5", "cleanup.policy": "compact"},
    GROUP: {"consumer.session.timeout.ms": "46000"},
    METRICS: {"interval.ms": "1000"},
    DEFAULT: {"log.retention.ms": "7000000"},
    BROKER: {"log.cleaner.threads": "2"},
}


@pytest.fixture
def kafka() -> KafkaDouble:
    made = KafkaDouble()
    made.create_topic("t")
    made.alter(TOPIC, {"segment.ms": "100"})
    return made


@pytest.fixture
def opened(opened_with_encoder: Opener) -> Opener:
    return opened_with_encoder


async def test_configs_of_each_kind_are_applied_in_shared_requests(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    for entity, values in SETTINGS.items():
        await alter(one, entity, values)
    assert kafka.requests == []
    await apply(one)
    own = {BROKER: SETTINGS[BROKER]}
    quotas = {ALICE: SETTINGS[ALICE]}
    shared = {entity: values for entity, values in SETTINGS.items() if entity not in {ALICE, BROKER}}
    assert [each for each in kafka.requests if len(each) > 1] == [shared]
    assert all(each in kafka.requests for each in (own, quotas))
    assert kafka.now.configs[TOPIC] == {"segment.ms": "100", **SETTINGS[TOPIC]}
    equal(one, kafka)
    await alter(one, TOPIC, {"segment.ms": None, "retention.ms": "6"})
    await apply(one)
    assert kafka.requests[-1] == {TOPIC: {"segment.ms": None, "retention.ms": "6"}}
    # Nothing is left to send, and nothing of it is another's.
    await apply(one)
    await one.poll()
    equal(one, kafka)
    assert len(kafka.requests) == 4
    for entity in SETTINGS:
        assert {each.kind for each in await rows(one, entity)} == {"change"}


@pytest.mark.parametrize("step", DELIVERY_STEPS)
async def test_another_leader_ends_what_a_killed_one_began(opened: Opener, kafka: KafkaDouble, step: str) -> None:
    one = await opened()
    for entity, values in SETTINGS.items():
        await alter(one, entity, values)
    await alter(one, TOPIC, {"segment.ms": None})
    await kill(one, step)
    two = await opened()
    # Even if it looks first.
    await two.poll()
    await apply(two)
    await two.poll()
    assert kafka.now.configs == SETTINGS
    equal(two, kafka)
    for entity in SETTINGS:
        assert {each.kind for each in await rows(two, entity)} == {"change"}


async def test_deliveries_that_end_together_do_not_lower_the_watermark(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await opened()
    published: list[int] = []
    publish = one.store.publish_applied

    async def after_the_other_delivery(revision: int, deadline: float) -> None:
        if one.queues.report().pending == 1:
            await until(lambda: one.queues.report().pending == 0)
        await publish(revision, deadline)
        published.append(revision)

    monkeypatch.setattr(one.store, "publish_applied", after_the_other_delivery)
    for entity in (BROKER, TOPIC):
        await alter(one, entity, SETTINGS[entity])
    await one.store.catch_up(soon())
    newest = max(node.mzxid for each in (BROKER, TOPIC) if (node := one.store.get(Tree.CONFIG, each.id)) is not None)
    await one.round.apply()
    await until(lambda: published and published[-1] >= newest)
    assert published == sorted(published)
    assert len(published) >= 3


@pytest.mark.parametrize("state", ["away", "silent"])
async def test_a_broker_that_does_not_answer_holds_up_nothing_but_itself(
    opened: Opener, kafka: KafkaDouble, state: str
) -> None:
    one = await opened()
    one.applier.start()
    try:
        kafka.away = state == "away"
        if state == "silent":
            kafka.broker_answers.clear()
        await alter(one, BROKER, SETTINGS[BROKER])
        await until(lambda: kafka.calls["alter_configs"] > 0)
        await alter(one, TOPIC, {"retention.ms": "6"})
        await alter(one, DEFAULT, SETTINGS[DEFAULT])
        await until(lambda: kafka.now.configs.get(DEFAULT) == SETTINGS[DEFAULT])
        await until(lambda: kafka.now.configs[TOPIC].get("retention.ms") == "6")
        await until(lambda: one.queues.report().pending == 1)
        assert BROKER not in kafka.now.configs
        if state == "away":
            await until(lambda: one.queues.report().held.first == (("broker=1", "Broker 1 is not alive"),))
        kafka.away = False
        kafka.broker_answers.set()
        await until(lambda: one.queues.report().pending == 0)
        assert kafka.now.configs[BROKER] == SETTINGS[BROKER]
        assert one.queues.report().held.count == 0
    finally:
        await one.applier.stop()


@pytest.mark.parametrize("again", [True, False])
async def test_a_recreated_topic_never_gets_the_configs_of_the_earlier_one(
    opened: Opener, kafka: KafkaDouble, raw_zk: KazooClient, *, again: bool
) -> None:
    one = await opened()
    assert znode_metadata(raw_zk.get("/config/topics/t")[0])["topic_id"] == "id-1"
    await alter(one, TOPIC, {"retention.ms": "5"})
    kafka.delete_topic("t")
    if again:
        kafka.create_topic("t")
        kafka.alter(TOPIC, {"retention.bytes": "77"})
    await apply(one)
    assert kafka.requests == []
    assert one.queues.report().held.count == 1
    await one.poll()
    assert one.config(TOPIC) == ({"retention.bytes": "77"} if again else {})
    await apply(one)
    assert (kafka.requests, one.queues.report().pending, one.queues.report().held.count) == ([], 0, 0)
    assert [each.kind for each in await rows(one, TOPIC)] == ["change", "observed", *(["observed"] if again else [])]
    # The present topic is written as any other.
    if not again:
        kafka.create_topic("t")
    await alter(one, TOPIC, {"retention.ms": "6"})
    await apply(one)
    assert kafka.requests == [{TOPIC: {"retention.ms": "6"}}]
    await one.poll()
    equal(one, kafka)


@pytest.mark.parametrize("emptied", [True, False])
async def test_a_topic_recreated_before_its_first_request_never_gets_the_configs_of_the_earlier_one(
    opened: Opener, kafka: KafkaDouble, raw_zk: KazooClient, *, emptied: bool
) -> None:
    """The id is that of the question before the commit, and in the znode: the process that wrote may be gone."""
    one, two = await opened(), await opened()
    entity = TOPIC if emptied else Entity.of(topic="new")
    if emptied:
        kafka.delete_topic("t")
        await one.poll()
        kafka.create_topic("t")
    else:
        kafka.create_topic("new")
    await alter(one, entity, {"retention.ms": "5"})
    name = entity.get(EntityType.TOPIC)
    assert znode_metadata(raw_zk.get(f"/config/topics/{name}")[0])["topic_id"] == kafka.now.topics[str(name)]
    kafka.delete_topic(str(name))
    kafka.create_topic(str(name))
    await apply(two)
    assert kafka.requests == []
    assert two.queues.report().held.first == ((entity.id, "The topic was created again; its new configs are followed"),)
    await two.poll()
    await apply(two)
    assert (kafka.requests, two.config(entity)) == ([], {})
    # The present topic is written as any other.
    await alter(two, entity, {"retention.ms": "6"})
    await apply(two)
    assert kafka.requests == [{entity: {"retention.ms": "6"}}]
    await two.poll()
    equal(two, kafka)


async def test_a_topic_that_the_cluster_was_not_asked_about_gets_its_id_by_the_first_request(
    opened: Opener, kafka: KafkaDouble, raw_zk: KazooClient
) -> None:
    one = await opened()
    kafka.create_topic("new")
    entity = Entity.of(topic="new")
    kafka.denied.add(KraftEntityType.TOPICS)
    await alter(one, entity, {"retention.ms": "5"})
    kafka.denied.clear()
    # What was written without an id stays so, whatever the cluster names later: it may be of another topic.
    await alter(one, entity, {"segment.ms": "7"})
    assert "topic_id" not in znode_metadata(raw_zk.get("/config/topics/new")[0])
    await apply(one)
    assert kafka.requests == [{entity: {"retention.ms": "5", "segment.ms": "7"}}]
    await one.poll()
    equal(one, kafka)


@pytest.mark.parametrize("enforced", [False, True], ids=["adopt", "enforce"])
async def test_a_config_of_a_topic_that_never_was_is_undone_by_confplane(
    opened: Opener, kafka: KafkaDouble, *, enforced: bool
) -> None:
    one = await opened("enforce" if enforced else "adopt")
    never, gone = Entity.of(topic="never"), Entity.of(topic="gone")
    kafka.create_topic("gone")
    await alter(one, gone, {"retention.ms": "5"})
    await apply(one)
    await one.poll()
    kafka.down = "No broker answers"
    await edit(one, never, retention_ms="5")
    kafka.down = None
    kafka.delete_topic("gone")
    await one.poll()
    assert (one.config(never), one.config(gone)) == ({}, {})
    written, undone = await rows(one, never)
    assert (undone.intent.principal, undone.kind, written.kind) == ("confplane", "observed", "change")
    assert "has no topic of this name" in (undone.intent.reason or "")
    removed = (await rows(one, gone))[-1]
    assert removed.intent.principal == "External:unknown"
    await apply(one)
    assert never not in {entity for request in kafka.requests for entity in request}


async def test_topics_that_never_were_are_told_from_external_changes_of_the_same_poll(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one = await opened()
    never = [Entity.of(topic=f"never-{number}") for number in range(3)]
    await one.poll()
    kafka.down = "No broker answers"
    for each in never:
        await edit(one, each, retention_ms="5")
    kafka.down = None
    kafka.alter(TOPIC, {"segment.ms": "200"})
    await one.poll()
    undone = [(await rows(one, each))[-1] for each in never]
    assert {(each.intent.principal, each.kind) for each in undone} == {("confplane", "observed")}
    assert (await rows(one, TOPIC))[-1].intent.principal == "External:unknown"
    equal(one, kafka)


async def test_a_topic_that_never_was_and_was_written_twice_is_undone_in_one_row(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one, never = await opened(), Entity.of(topic="never")
    await one.poll()
    kafka.down = "No broker answers"
    await edit(one, never, retention_ms="5", segment_ms="6")
    await one.replica.edit(never, FacetName.CONFIGS, (Op("segment.ms", OpType.DELETE),))
    kafka.down = None
    await one.poll()
    *_, undone = found = await rows(one, never)
    assert (len(found), undone.intent.principal, one.config(never)) == (3, "confplane", {})
    # A topic that gets the name later has nothing of it.
    kafka.create_topic("never")
    await apply(one)
    await one.poll()
    assert len(await rows(one, never)) == 3
    equal(one, kafka)


@pytest.mark.parametrize("applied", [False, True], ids=["not applied", "applied"])
async def test_a_broker_that_does_not_know_a_new_topic_yet_takes_no_config_of_it_away(
    opened: Opener, kafka: KafkaDouble, monkeypatch: pytest.MonkeyPatch, *, applied: bool
) -> None:
    new = Entity.of(topic="u")
    one = await opened()
    await one.poll()
    behind = kafka.now.copied()
    kafka.create_topic("u")
    if not applied:
        kafka.behind = behind
    # The controller, which is asked before the commit, knows the topic all along.
    await alter(one, new, {"retention.ms": "5000"})
    await apply(one)
    kafka.behind = behind
    monkeypatch.setattr("confplane.services.kraft.round.POLL_TIMEOUT_S", 0.5)
    for _ in range(2):
        with suppress(UnavailableError):
            await one.poll_once()
    kafka.behind = None
    assert one.config(new) == {"retention.ms": "5000"}
    one.polls.restart_all()
    for _ in range(2):
        await apply(one)
        await one.poll()
    equal(one, kafka)
    assert kafka.now.configs[new] == {"retention.ms": "5000"}
    assert [each.kind for each in await rows(one, new)] == ["change"]


async def test_applied_changes_are_polled_soon(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await alter(one, GROUP, SETTINGS[GROUP])
    await apply(one)
    # Others change it right behind; no look at all groups is due.
    kafka.alter(GROUP, {"consumer.session.timeout.ms": "50000"})
    await one.store.catch_up(soon())
    await one.round.observe()
    assert one.config(GROUP) == {"consumer.session.timeout.ms": "50000"}
    assert [each.kind for each in await rows(one, GROUP)] == ["change", "observed"]


async def test_no_spelling_and_no_reference_counts_as_an_external_change(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await alter(one, TOPIC, {"cleanup.policy": "delete , compact", "retention.ms": " 0100"})
    await alter(one, BROKER, {REFERENCE: "${file:/secrets:key}"})
    await apply(one)
    sent = dict(kafka.now.configs[TOPIC])
    # Kafka answers its own spelling, and the value behind a reference.
    kafka.alter(TOPIC, {"cleanup.policy": "delete,compact", "retention.ms": "100"})
    kafka.alter(BROKER, {REFERENCE: "/secret/place"})
    for _ in range(2):
        await one.poll()
        await apply(one)
    assert len(kafka.requests) == 2
    assert one.config(TOPIC) == sent
    assert one.config(BROKER) == {REFERENCE: "${file:/secrets:key}"}
    for entity in (TOPIC, BROKER):
        assert [each.kind for each in await rows(one, entity)] == ["change"]


def stored_states(world: World) -> str:
    """Everything that the states have of the cluster, as text."""
    with psycopg.connect(world.database.owner_dsn) as connection:
        tables = ("applied_entities", "applied_keys", "deliveries")
        return str([connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables])  # noqa: S608


async def test_a_password_is_sent_in_clear_and_kept_as_a_fingerprint(
    opened: Opener, kafka: KafkaDouble, world: World
) -> None:
    one = await opened()
    sent: list[dict[str, Any]] = []
    alter_configs = kafka.alter_configs

    async def noted(alterations: Any, deadline: float, **more: Any) -> Any:
        if not more:
            sent.extend(dict(each.values) for each in alterations)
        ends = await alter_configs(alterations, deadline, **more)
        # Kafka shows that there is a password, and no more.
        for key in kafka.now.configs.pop(BROKER, {}):
            kafka.now.hidden.setdefault(BROKER, set()).add(key)
        return ends

    kafka.alter_configs = noted  # type: ignore[method-assign]
    await alter(one, BROKER, {PASSWORD: "hunter2"})
    await apply(one)
    assert sent == [{PASSWORD: "hunter2"}]
    stored = (one.config(BROKER) or {})[PASSWORD]
    assert "hunter2" not in stored + stored_states(world)
    assert "fingerprint" in stored_states(world)
    # It is never compared, and sent again only where it is another.
    for _ in range(2):
        await one.poll()
        await apply(one)
    assert (one.config(BROKER) or {})[PASSWORD] == stored
    await alter(one, BROKER, {PASSWORD: "hunter2", "log.cleaner.threads": "2"})
    await apply(one)
    assert sent[1:] == [{"log.cleaner.threads": "2"}]
    await alter(one, BROKER, {PASSWORD: "hunter3"})
    await apply(one)
    assert sent[2:] == [{PASSWORD: "hunter3"}]
    assert "hunter" not in stored_states(world)
    assert {each.kind for each in await rows(one, BROKER)} == {"change"}


async def test_retries_of_a_secret_without_an_encoder_secret_are_retries_of_one_value(
    world: World, kafka: KafkaDouble
) -> None:
    key = "of.a.plugin"
    async with opener(world, kafka) as opened:
        one = await opened()
        await alter(one, BROKER, {key: "hunter2"})
        for _ in range(MOST_UNKNOWN + 2):
            kafka.cut = "before"
            await apply(one)
        [value] = (await one.states.load("default", [BROKER.id]))[BROKER.id].uncertain[key]
        assert (value or "").startswith(FINGERPRINT)
        assert fetch(world.database.owner_dsn, "SELECT count(*), count(outcome) FROM deliveries") == [(MOST_UNKNOWN, 0)]
        assert "hunter" not in stored_states(world)
        await apply(one)
        assert kafka.now.configs[BROKER] == {key: "hunter2"}
        # It is not sent again with another key of the entity.
        await alter(one, BROKER, {"log.cleaner.threads": "2"})
        await apply(one)
        assert kafka.requests[-1] == {BROKER: {"log.cleaner.threads": "2"}}


async def test_a_refusal_that_repeats_a_password_is_kept_without_it(
    opened: Opener, kafka: KafkaDouble, world: World
) -> None:
    one = await opened()
    await alter(one, BROKER, {PASSWORD: "hunter2"})
    kafka.refusals[BROKER] = AlterRefused(40, "The value hunter2 is no password")
    await apply(one)
    assert one.queues.report().refused.first == (("broker=1", "The value [hidden] is no password (code 40)"),)
    assert "hunter2" not in stored_states(world)


async def test_a_password_that_this_process_can_not_open_waits_alone(
    opened: Opener, kafka: KafkaDouble, tmp_path: Path
) -> None:
    one = await opened()
    await alter(one, BROKER, {PASSWORD: "hunter2"})
    await alter(one, TOPIC, {"retention.ms": "5"})
    (tmp_path / "encoder").write_text("another secret")
    two = await opened()
    await apply(two)
    assert kafka.requests == [{TOPIC: {"retention.ms": "5"}}]
    [(name, reason)] = two.queues.report().held.first
    assert name == "broker=1"
    assert "hunter2" not in reason
    await apply(one)
    assert kafka.requests[1:] == [{BROKER: {PASSWORD: "hunter2"}}]


async def edit(one: Observing, entity: Entity, **values: str) -> EditResult:
    """One change by a caller, with its result."""
    ops = tuple(Op(key.replace("_", "."), OpType.SET, value) for key, value in values.items())
    (result,) = await one.replica.edit(entity, FacetName.CONFIGS, ops)
    return result


async def test_what_the_cluster_would_refuse_is_refused_before_the_commit(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    errors = {40: InvalidConfigError, 42: InvalidRequestError, 44: PolicyViolationError}
    for code, error in errors.items():
        kafka.refusals[TOPIC] = AlterRefused(code, "Kafka's words")
        result = await edit(one, TOPIC, retention_ms="5")
        assert type(result.error) is error
        assert (result.error.detail, result.error.outcome) == (
            f"The Kafka cluster would refuse this (code {code}): Kafka's words",
            WriteOutcome.NOT_APPLIED,
        )
    assert await rows(one, TOPIC) == []
    assert one.config(TOPIC) == {"segment.ms": "100"}
    assert kafka.requests == []


async def test_a_topic_is_unknown_if_the_cluster_says_so(opened: Opener, kafka: KafkaDouble) -> None:
    one, new = await opened(), Entity.of(topic="new")
    result = await edit(one, new, retention_ms="5")
    assert isinstance(result.error, UnknownTopicError)
    assert result.error.topics == {"new"}
    # It is made this moment, and no look has seen it.
    kafka.create_topic("new")
    assert (await edit(one, new, retention_ms="5")).error is None
    await apply(one)
    assert kafka.now.configs[new] == {"retention.ms": "5"}


async def test_a_password_is_in_no_refusal_before_the_commit(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    kafka.refusals[BROKER] = AlterRefused(40, "The value hunter2 is no password")
    (result,) = await one.replica.edit(BROKER, FacetName.CONFIGS, (Op(PASSWORD, OpType.SET, "hunter2"),))
    assert result.error is not None
    assert "[hidden] is no password" in result.error.detail
    assert "hunter2" not in result.error.detail


async def test_while_the_cluster_is_away_a_write_commits_with_a_warning(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    kafka.down = "No broker answers"
    for values in ({"retention_ms": "5"}, {"retention_ms": "6"}):
        result = await edit(one, TOPIC, **values)
        assert result.error is None
        assert result.warnings[-1] == ("The Kafka cluster was not asked whether it takes the change: No broker answers")
    # The second was not even tried.
    assert kafka.calls["alter_configs"] == 1
    kafka.down = None
    await apply(one)
    assert kafka.requests == [{TOPIC: {"retention.ms": "6"}}]


async def test_an_atomic_change_is_asked_about_as_a_whole(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    kafka.refusals[GROUP] = AlterRefused(40, "Kafka's words")
    collection = one.replica.parts.clusters.get("default").facets[FacetName.CONFIGS]
    edits = [
        Edit(TOPIC, (Op("retention.ms", OpType.SET, "5"),)),
        Edit(GROUP, (Op("consumer.session.timeout.ms", OpType.SET, "46000"),)),
    ]
    results = await one.replica.parts.alter.alter(collection, edits, caller(), atomic=True)
    assert [type(each.error) for each in results] == [NotAttemptedError, InvalidConfigError]
    assert (await rows(one, TOPIC), kafka.calls["alter_configs"]) == ([], 1)


async def test_no_key_is_removed_that_callers_did_not_set(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await alter(one, TOPIC, {"retention.ms": "5"})
    kafka.alter(TOPIC, {"flush.ms": "9"})
    await asyncio.gather(apply(one), one.poll())
    await one.poll()
    await alter(one, TOPIC, {"retention.ms": None})
    await apply(one)
    assert kafka.requests == [{TOPIC: {"retention.ms": "5"}}, {TOPIC: {"retention.ms": None}}]
    await one.poll()
    assert one.config(TOPIC) == kafka.now.configs[TOPIC] == {"segment.ms": "100", "flush.ms": "9"}
    assert one.store.get(Tree.CONFIG, TOPIC.id) is not None
