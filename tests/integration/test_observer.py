"""A Kafka cluster without ZooKeeper is observed: the configs here are those of the cluster, and the trail says why.

ZooKeeper and Postgres are real, the Kafka cluster is a double whose brokers can be behind, away, or others.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.entities import Entity
from confplane.domain.errors import ObservedError, UnavailableError
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.services.changes.freeze import FreezeService
from confplane.services.kraft import reporter
from confplane.services.kraft.observe.session import IDENTITY_S, PERMISSIONS_S
from confplane.services.kraft.reconcile.drift import DriftSelection
from confplane.services.ports.kafka import (
    EntityTypePermission,
    KraftEntityType,
    NotPermittedError,
    OtherClusterError,
    Unmanaged,
)
from confplane.services.ports.trail import ObservedRange
from tests.support.alerts import PartAlerts
from tests.support.kafka_double import CLUSTER_ID, KafkaDouble
from tests.support.metrics import value_of
from tests.support.observing import Observing, caller, znode_metadata
from tests.support.replicas import assert_chains
from tests.support.stores import kafka_writes, soon, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kazoo.client import KazooClient

    from confplane.services.ports.trail import AuditRecord
    from tests.support.world import World

    Opener = Callable[..., Awaitable[Observing]]

ALICE, BOB = Entity.of(user="alice"), Entity.of(user="bob")
PAIR, IP = Entity.of(user="alice", client_id="x"), Entity.of(ip="10.0.0.1")
TOPIC, BROKER, EVERY_BROKER = Entity.of(topic="t"), Entity.of(broker="1"), Entity.of(broker=None)
RATE = "producer_byte_rate"


@pytest.fixture
def kafka() -> KafkaDouble:
    return KafkaDouble()


@pytest.fixture
async def opened(world: World, kafka: KafkaDouble) -> AsyncIterator[Opener]:
    """Opens processes that observe the cluster."""
    found: list[Observing] = []

    async def open_one(*, imported: bool = True, **more: Any) -> Observing:
        replica = await world.replica(client_configs_layout="separate")
        found.append(Observing(replica, kafka, **more))
        if imported:
            await found[-1].import_all()
        return found[-1]

    yield open_one
    for each in found:
        await each.observer.stop()


def filled(kafka: KafkaDouble) -> None:
    """Write one of each."""
    kafka.alter(ALICE, {RATE: "1024", "request_percentage": "12.5"})
    kafka.alter(PAIR, {RATE: "1"})
    kafka.alter(IP, {"connection_creation_rate": "7"})
    kafka.alter(EVERY_BROKER, {"log.retention.ms": "604800000"})
    kafka.alter(BROKER, {"background.threads": "12"})
    kafka.create_topic("t")
    kafka.create_topic("plain")
    kafka.alter(TOPIC, {"cleanup.policy": "delete,compact", "retention.ms": "5"})


def of_configs(records: list[AuditRecord]) -> list[AuditRecord]:
    """Without the changes of the target itself, whose znode is made with the session."""
    return [each for each in records if each.intent.entities[0].facet != "cluster"]


async def test_an_import_takes_over_all_configs_each_in_one_row(
    opened: Opener, kafka: KafkaDouble, raw_zk: KazooClient
) -> None:
    filled(kafka)
    one = await opened(imported=False)
    survey = await one.importer.survey(soon())
    assert (survey.blockers, survey.target, survey.identity.cluster_id) == ((), None, CLUSTER_ID)
    assert {area: each.differing for area, each in survey.entity_types.items() if each.differing} == {
        KraftEntityType.QUOTAS: 3,
        KraftEntityType.BROKERS: 2,
        KraftEntityType.TOPICS: 1,
    }
    assert await one.replica.trail() == []
    assert await one.import_all() == 6
    for entity, config in kafka.now.configs.items():
        assert one.config(entity) == config
    assert one.config(Entity.of(topic="plain")) is None
    assert znode_metadata(raw_zk.get("/config/topics/t")[0])["topic_id"] == kafka.now.topics["t"]
    rows = await one.followed()
    assert sorted(sorted(each.entity_id for each in row.intent.entities) for row in rows) == [
        ["broker", "broker=1"],
        ["ip=10.0.0.1", "user=alice", "user=alice,client-id=x"],
        ["topic=t"],
    ]
    assert {row.kind for row in rows} == {"import"}
    assert {(row.intent.principal, row.intent.source) for row in rows} == {("External:unknown", "kafka")}
    assert {row.intent.observed for row in rows} == {
        ObservedRange(None, kafka.now.offset, row.intent.observed.at_ms)
        for row in rows
        if row.intent.observed is not None
    }
    [made] = [each for row in rows for each in row.intent.entities if each.entity_id == "user=alice"]
    assert (made.facet, made.keys, made.before, made.after) == (
        "client-quotas",
        (RATE, "request_percentage"),
        {},
        {RATE: "1024", "request_percentage": "12.5"},
    )
    assert made.ops == (
        {"key": RATE, "op": "SET", "value": 1024},
        {"key": "request_percentage", "op": "SET", "value": 12.5},
    )
    # Again: nothing is left to write, and the observation finds nothing either.
    assert await one.import_all() == 0
    await one.poll()
    assert await one.followed() == rows


async def test_an_entity_that_an_import_can_not_write_holds_back_no_other_of_its_change(
    opened: Opener, kafka: KafkaDouble, raw_zk: KazooClient
) -> None:
    filled(kafka)
    raw_zk.create("/config/users/alice", b"no JSON", makepath=True)
    one = await opened(imported=False)
    assert await one.import_all() == 5
    assert list(one.importer.refused) == ["user=alice"]
    assert raw_zk.get("/config/users/alice")[0] == b"no JSON"
    assert (one.config(PAIR), one.config(IP)) == (kafka.now.configs[PAIR], kafka.now.configs[IP])
    rows = [row.intent.entities for row in await one.followed()]
    assert sorted(len(each) for each in rows) == [1, 1, 1, 2]


async def test_a_change_of_several_entities_is_decided_again_where_one_is_not_as_the_mirror_has_it(
    opened: Opener, kafka: KafkaDouble, raw_zk: KazooClient
) -> None:
    filled(kafka)
    one = await opened(imported=False)
    raw_zk.create("/config/users/alice", b'{"version":1,"config":{"foreign":"1"}}', makepath=True)  # not notified
    assert await one.import_all() == 6
    assert one.config(ALICE) == {"foreign": "1", **kafka.now.configs[ALICE]}
    rows = await one.followed()
    assert sorted((len(row.intent.entities), row.intent.attempt) for row in rows) == [(1, 1), (2, 1), (3, 2)]


async def test_an_import_writes_what_its_survey_saw_and_the_observer_what_came_after(
    opened: Opener, kafka: KafkaDouble
) -> None:
    filled(kafka)
    one, two = await opened(imported=False), await opened(imported=False)
    await one.importer.survey(soon())
    await two.importer.survey(soon())
    surveyed_at, looks = kafka.now.offset, kafka.calls["quotas"]
    kafka.alter(ALICE, {RATE: "2048"})
    kafka.alter(BOB, {RATE: "5"})
    assert await one.import_all() == 6
    assert kafka.calls["quotas"] == looks
    assert (one.config(ALICE), one.config(BOB)) == ({RATE: "1024", "request_percentage": "12.5"}, None)
    await one.poll()
    assert (one.config(ALICE), one.config(BOB)) == (kafka.now.configs[ALICE], {RATE: "5"})
    rows = [row for row in await one.followed() if row.kind == "observed"]
    places = [row.intent.observed and (row.intent.observed.after, row.intent.observed.until) for row in rows]
    assert places == [(surveyed_at, kafka.now.offset)] * 2
    # The other survey is older than the znodes: its entities are looked at again, and nothing is written.
    await two.aware()
    assert await two.import_all() == 0
    kafka.alter(BOB, {RATE: None})
    assert await two.import_all() == 1
    assert two.config(BOB) in (None, {})


async def test_external_changes_are_followed_with_their_offset_in_the_log(opened: Opener, kafka: KafkaDouble) -> None:
    filled(kafka)
    one = await opened()
    await one.poll()
    before = kafka.now.offset
    kafka.alter(ALICE, {RATE: "2048", "request_percentage": None})
    kafka.alter(BOB, {RATE: "5"})
    kafka.alter(PAIR, {RATE: None})
    kafka.alter(TOPIC, {"retention.ms": "6"})
    kafka.alter(EVERY_BROKER, {"log.retention.ms": None})
    await one.poll()
    assert one.config(ALICE) == {RATE: "2048"}
    assert (one.config(BOB), one.config(PAIR), one.config(EVERY_BROKER)) == ({RATE: "5"}, {}, {})
    rows = [row for row in await one.followed() if row.kind == "observed"]
    assert {row.intent.entities[0].entity_id for row in rows} == {
        "user=alice", "user=bob", "user=alice,client-id=x", "topic=t", "broker"
    }  # fmt: skip
    for row in rows:
        observed = row.intent.observed
        assert observed is not None
        assert (observed.after, observed.until, observed.exact, observed.writes) == (before, kafka.now.offset, False, 1)
    assert_chains(of_configs(await one.replica.trail()))


async def test_a_recreated_topic_is_removed_and_imported_again_in_one_poll(
    opened: Opener, kafka: KafkaDouble, raw_zk: KazooClient
) -> None:
    filled(kafka)
    one = await opened()
    kafka.delete_topic("t")
    made = kafka.create_topic("t")
    kafka.alter(TOPIC, {"retention.ms": "5", "segment.ms": "7"})
    await one.poll()
    assert one.config(TOPIC) == {"retention.ms": "5", "segment.ms": "7"}
    assert znode_metadata(raw_zk.get("/config/topics/t")[0])["topic_id"] == made
    removal, creation = [row for row in await one.followed(entity_id="topic=t") if row.kind == "observed"]
    [gone], [new] = removal.intent.entities, creation.intent.entities
    assert (gone.after, sorted(gone.keys)) == ({}, ["cleanup.policy", "retention.ms"])
    assert {op["op"] for op in gone.ops} == {"DELETE"}
    assert (new.before, new.after) == ({}, {"retention.ms": "5", "segment.ms": "7"})
    kafka.delete_topic("t")
    await one.poll()
    emptied = raw_zk.get("/config/topics/t")[0]
    assert (one.config(TOPIC), znode_metadata(emptied)) == ({}, {"followed": [kafka.now.offset, kafka.now.offset]})
    await one.poll()
    assert len(await one.followed(entity_id="topic=t")) == 4


async def test_a_lagging_broker_brings_no_older_state_back(opened: Opener, kafka: KafkaDouble) -> None:
    filled(kafka)
    one = await opened()
    with kafka.lagging():
        kafka.alter(ALICE, {RATE: "2048"})
        kafka.delete_topic("t")
        stale, kafka.behind = kafka.behind, None
        await one.poll()
        await until(lambda: one.config(TOPIC) == {})
        rows = await one.followed()
        # Another broker answers next, which is not that far.
        kafka.behind = stale
        for state in one.polls.entity_types.values():
            state.restart()
        await one.round.observe()
        assert all(state.report.problem for state in one.polls.entity_types.values())
        # And so another leader, who has the first one's report.
        await one.reporter.publish()
        await until(lambda: one.reporter.report is not None and one.reporter.report.moved == kafka.now.offset)
        other = await opened(imported=False)
        await until(lambda: other.reporter.report == one.reporter.report)
        await other.poll_once()
    assert (one.config(ALICE), await one.followed()) == ({RATE: "2048", "request_percentage": "12.5"}, rows)
    for state in one.polls.entity_types.values():
        state.due = 0.0
    await one.poll()
    assert not any(state.report.problem for state in one.polls.entity_types.values())
    assert await one.followed() == rows


async def test_two_leaders_at_once_make_one_row_of_each_change(opened: Opener, kafka: KafkaDouble) -> None:
    filled(kafka)
    one = await opened()
    two = await opened(imported=False)
    for value in range(20):
        kafka.alter(ALICE, {RATE: str(value)})
        kafka.alter(BOB, {RATE: str(value)})
        await asyncio.gather(one.poll(), two.poll())
        assert one.config(ALICE) == {RATE: str(value), "request_percentage": "12.5"}
    rows = [row for row in await one.followed() if row.kind == "observed" and row.outcome is not None]
    assert sum(row.outcome.committed for row in rows if row.outcome is not None) == 40
    assert_chains(of_configs(await one.replica.trail()))


async def test_a_pause_stops_it_and_a_freeze_does_not(opened: Opener, kafka: KafkaDouble) -> None:
    filled(kafka)
    one = await opened()
    await FreezeService(one.replica.parts.runner).freeze(one.store, "upgrade", caller())
    kafka.alter(BOB, {RATE: "5"})
    await one.poll()
    assert one.config(BOB) == {RATE: "5"}
    assert (await one.targets.pause(caller())).paused
    await one.aware()
    kafka.alter(BOB, {RATE: "6"})
    kafka.release = "4.2"
    await one.poll()
    await one.reporter.publish()
    assert one.config(BOB) == {RATE: "5"}
    with pytest.raises(ObservedError):
        await one.polls._writer.follow((await one.polls._poller.poll_quotas(b"", None, soon())).differing)
    await one.targets.resume(caller())
    await one.aware()
    await one.poll()
    assert one.config(BOB) == {RATE: "6"}
    states = [row for row in await one.replica.trail() if row.intent.entities[0].entity_id == "cluster"]
    assert [row.intent.entities[0].keys for row in states] == [
        ("target",),
        ("target",),
        ("frozen",),
        *2 * [("target",)],
    ]


async def test_failures_are_reported_and_nothing_is_lost_or_written(opened: Opener, kafka: KafkaDouble) -> None:
    filled(kafka)
    one = await opened()
    await one.poll()
    before, alerts = await one.followed(), PartAlerts(one.reporter)
    assert alerts.scrape() == set()
    kafka.alter(BOB, {RATE: "5"})
    kafka.cluster_id = "another"
    one.loops.session.clock = lambda: time.monotonic() + IDENTITY_S
    with pytest.raises(OtherClusterError, match="belong to the cluster another"):
        await one.poll()
    kafka.cluster_id, kafka.release = CLUSTER_ID, "4.2"
    with pytest.raises(UnavailableError, match=r"of release 4.2, and had 4.4 before"):
        await one.poll()
    kafka.release, kafka.down = "4.4", "No broker answers"
    with pytest.raises(UnavailableError, match="No broker"):
        await one.poll()
    assert await one.followed() == before
    # By itself, and again by itself once the cluster is back.
    one.observer.start()
    await until(lambda: one.reporter.problem == "No broker answers")
    assert "KafkaNotFollowed" in alerts.scrape()
    await one.reporter.publish()
    await until(lambda: (found := one.reporter.report) is not None and found.problem == "No broker answers")
    assert any("is not observed now" in notice.public for notice in one.loops.warnings.warnings())
    kafka.down = None
    await until(lambda: one.config(BOB) == {RATE: "5"})
    await until(lambda: one.reporter.problem == "")
    assert "KafkaNotFollowed" not in alerts.scrape()


async def test_an_entity_type_that_is_not_shown_is_off_and_the_rest_works(opened: Opener, kafka: KafkaDouble) -> None:
    filled(kafka)
    kafka.denied = {KraftEntityType.TOPICS, KraftEntityType.GROUPS}
    one = await opened()
    kafka.alter(BOB, {RATE: "5"})
    await one.poll()
    assert (one.config(BOB), one.config(TOPIC)) == ({RATE: "5"}, None)
    await one.reporter.publish()
    await until(lambda: one.reporter.report is not None and KraftEntityType.TOPICS in one.reporter.report.areas)
    report = one.reporter.report
    assert report is not None
    assert (report.areas[KraftEntityType.TOPICS].permission, report.areas[KraftEntityType.TOPICS].reason) == (
        EntityTypePermission.NONE, "The right DESCRIBE_CONFIGS is missing"
    )  # fmt: skip
    assert [
        notice for notice in one.loops.warnings.warnings() if "does not permit reads of its topics" in notice.public
    ]
    kafka.denied = set()
    one.loops.session.clock = lambda: time.monotonic() + PERMISSIONS_S
    await one.poll()
    assert one.config(TOPIC) == kafka.now.configs[TOPIC]


async def test_a_denied_topic_keeps_its_configs_and_its_drift(opened: Opener, kafka: KafkaDouble) -> None:
    filled(kafka)
    one = await opened()
    kafka.denied_entities = {TOPIC}
    before = one.config(TOPIC)
    kafka.alter(TOPIC, {"retention.ms": "5"})
    kafka.alter(BOB, {RATE: "5"})
    await one.poll()
    assert before is not None
    assert (one.config(TOPIC), one.config(BOB)) == (before, {RATE: "5"})
    assert one.polls.entity_types[KraftEntityType.TOPICS].report.denied.first == (
        (TOPIC.id, "DESCRIBE_CONFIGS is missing"),
    )
    with pytest.raises(NotPermittedError, match="DESCRIBE_CONFIGS is missing"):
        await one.refresher.refresh([TOPIC], [], soon())
    assert await one.refresher.refresh([], [KraftEntityType.TOPICS], soon()) is not None
    assert one.config(TOPIC) == before
    await one.set_mode("adopt")
    with pytest.raises(NotPermittedError, match="DESCRIBE_CONFIGS is missing"):
        await one.drift.edits([DriftSelection(TOPIC, None)], soon())
    kafka.denied_entities = set()
    await one.poll()
    assert (one.config(TOPIC) or {})["retention.ms"] == "5"


async def test_an_entity_type_without_an_answer_delays_no_other_and_is_named(
    opened: Opener, kafka: KafkaDouble
) -> None:
    filled(kafka)
    one = await opened()
    await one.poll()
    alerts = PartAlerts(one.reporter)
    assert alerts.scrape() == set()
    kafka.unanswered = {KraftEntityType.QUOTAS, KraftEntityType.BROKERS}
    kafka.alter(BOB, {RATE: "5"})
    kafka.alter(TOPIC, {"retention.ms": "5"})
    await one.poll()
    assert (one.config(BOB), (one.config(TOPIC) or {})["retention.ms"]) == (None, "5")
    assert one.reporter.problem == ""
    await one.reporter.publish()
    await until(
        lambda: (found := one.reporter.report) is not None and bool(found.areas[KraftEntityType.QUOTAS].problem)
    )
    state = one.polls.entity_types[KraftEntityType.QUOTAS]
    assert state.report.problem == "No answer about client-quotas"
    state.report = replace(state.report, observed_at=(state.report.observed_at or 0) - 100_000)
    assert alerts.scrape() == {"KafkaNotLookedAt"}
    kafka.unanswered = set()
    await one.poll()
    assert one.config(BOB) == {RATE: "5"}


async def test_the_age_of_an_entity_type_without_any_complete_poll_is_that_of_the_term(
    opened: Opener, kafka: KafkaDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(kafka)
    kafka.denied = {KraftEntityType.GROUPS}
    one = await opened()
    await one.poll()
    kafka.denied, kafka.unanswered = set(), {KraftEntityType.GROUPS}
    one.loops.session.clock = lambda: time.monotonic() + PERMISSIONS_S
    await one.poll()
    labels = ("default", KraftEntityType.GROUPS.value)
    later = SimpleNamespace(time=lambda: time.time() + 1_000)
    with monkeypatch.context() as patch:
        patch.setattr(reporter, "time", later)
        most = value_of(one.reporter, "observation_max_age_seconds", *labels)
        assert value_of(one.reporter, "observation_age_seconds", *labels) > most
    kafka.unanswered = set()
    await one.poll()
    assert value_of(one.reporter, "observation_age_seconds", *labels) < most


async def test_the_report_writes_the_names_of_all_topics(opened: Opener, kafka: KafkaDouble) -> None:
    filled(kafka)
    one = await opened()
    await one.poll()
    await one.reporter.publish_if_due()
    assert dict((await one.topics.load("default")).ids) == kafka.now.topics
    found = await one.topics.poll("default")
    assert found is not None
    assert found.topics == len(kafka.now.topics) == 2
    kafka.delete_topic("plain")
    kafka.denied = {KraftEntityType.TOPICS}
    one.loops.session.clock = lambda: time.monotonic() + PERMISSIONS_S
    await one.poll()
    await one.reporter.publish()
    # A list that is not permitted leaves the table as it is, and as old.
    assert await one.topics.poll("default") == found


async def test_foreign_keys_passwords_and_names_without_a_place_stay_out(
    opened: Opener, kafka: KafkaDouble, raw_zk: KazooClient
) -> None:
    raw_zk.create(
        "/config/users/alice", b'{"version":1,"config":{"SCRAM-SHA-256":"salt=x"},"odd":{"a":[1]}}', makepath=True
    )
    filled(kafka)
    kafka.hide(BROKER, "ssl.key.password")
    kafka.alter(BROKER, {"acme.x": "secret?"})
    kafka.now.unmanaged = (
        Unmanaged(KraftEntityType.QUOTAS, "user=..", "The user name '..' can't be stored in ZooKeeper"),
    )
    one = await opened()
    await one.poll()
    assert one.config(ALICE) == {"SCRAM-SHA-256": "salt=x", RATE: "1024", "request_percentage": "12.5"}
    assert one.config(BROKER) == {"background.threads": "12"}
    assert znode_metadata(raw_zk.get("/config/users/alice")[0])["odd"] == {"a": [1]}
    report = one.polls.entity_types[KraftEntityType.BROKERS].report
    assert dict(report.hidden.first).keys() == {"broker=1 ssl.key.password", "broker=1 acme.x"}
    assert one.polls.entity_types[KraftEntityType.QUOTAS].report.unmanaged.first == (
        ("user=..", "The user name '..' can't be stored in ZooKeeper"),
    )
    shown = str(await one.replica.trail())
    assert "salt=x" not in shown
    assert "secret?" not in shown
    kafka.alter(ALICE, {RATE: None, "request_percentage": None})
    await one.poll()
    assert one.config(ALICE) == {"SCRAM-SHA-256": "salt=x"}


async def test_writes_into_the_znodes_are_recorded_and_put_back(
    opened: Opener, kafka: KafkaDouble, raw_zk: KazooClient
) -> None:
    filled(kafka)
    one = await opened()
    await one.poll()
    await one.replica.record()
    kafka_writes(raw_zk, "users/alice", b'{"version":1,"config":{"producer_byte_rate":"66"}}')
    kafka_writes(raw_zk, "topics/t", b'{"version":1,"config":{}}')
    await until(lambda: one.config(ALICE) == {RATE: "66"} and one.config(TOPIC) == {})
    await one.replica.record()
    await one.round.observe()
    assert (one.config(ALICE), one.config(TOPIC)) == (kafka.now.configs[ALICE], kafka.now.configs[TOPIC])
    await one.replica.record()
    trail = await one.replica.trail()
    external = [row for row in trail if row.kind == "external"]
    assert sorted(row.intent.entities[0].entity_id for row in external) == ["topic=t", "user=alice"]
    assert_chains(of_configs(trail))


async def test_a_strong_read_polls_after_what_any_process_acknowledged(opened: Opener, kafka: KafkaDouble) -> None:
    filled(kafka)
    one = await opened()
    other = await opened(imported=False)
    with kafka.lagging():
        kafka.alter(ALICE, {RATE: "2048"})
        looking = asyncio.create_task(other.refresher.refresh([ALICE, TOPIC, BROKER], (), soon()))
        await until(lambda: kafka.calls["quotas_of"] > 2)
        assert not looking.done(), "the broker asked is behind"
    assert await looking is not None
    assert other.config(ALICE) == {RATE: "2048", "request_percentage": "12.5"}
    with kafka.lagging():
        kafka.alter(ALICE, {RATE: "1"})
        with pytest.raises(UnavailableError, match="behind the metadata offset"):
            await other.refresher.refresh([ALICE], (), soon(1))
    await one.targets.pause(caller())
    await other.aware()
    assert await other.refresher.refresh([ALICE], (), soon()) is None


async def test_an_import_is_refused_where_the_ensemble_is_not_free(
    world: World, kafka: KafkaDouble, raw_zk: KazooClient
) -> None:
    raw_zk.create("/brokers/ids/1", makepath=True)
    raw_zk.create("/controller", b'{"version":1,"brokerid":1,"timestamp":"1"}', ephemeral=True)
    replica = await world.replica(client_configs_layout="shared")
    one = Observing(replica, kafka)
    kafka.denied = set(KraftEntityType)
    brokers, layout, rights = (await one.importer.survey(soon())).blockers
    assert "belongs to brokers" in brokers
    assert "confplane layout move --cluster default --to separate --apply" in layout
    assert "DESCRIBE_CONFIGS" in rights


@pytest.mark.parametrize("kind", ["topic", "group"])
async def test_a_first_config_after_a_poll_listed_the_names_is_in_the_next_row(
    opened: Opener, kafka: KafkaDouble, kind: str
) -> None:
    one = await opened()
    entity = Entity.of(**{kind: "late"})
    key = "retention.ms" if kind == "topic" else "consumer.session.timeout.ms"
    double: Any = kafka
    asked = double.topics if kind == "topic" else double.names
    offsets: list[int] = []

    async def named(*given: Any) -> Any:
        found = await asked(*given)
        if not offsets and (kind == "topic" or given[0] is KraftEntityType.GROUPS):
            if kind == "topic":
                kafka.create_topic("late")
            offsets.append(kafka.alter(entity, {key: "45000"}))
            kafka.create_topic("other")
        return found

    if kind == "topic":
        kafka.create_topic("first")
        double.topics = named
    else:
        double.names = named
    await one.poll()
    await one.poll()
    [row] = await one.followed()
    assert row.intent.entities[0].entity_id == entity.id
    assert row.intent.observed is not None
    assert row.intent.observed.after is not None
    assert row.intent.observed.after < offsets[0] <= row.intent.observed.until


async def test_changes_to_an_unavailable_broker_are_dated_after_its_last_poll(
    opened: Opener, kafka: KafkaDouble
) -> None:
    kafka.alter(BROKER, {"background.threads": "12"})
    one = await opened()
    await one.poll()
    last = kafka.now.offset
    kafka.away = True
    kafka.alter(BROKER, {"background.threads": "13"})
    kafka.alter(ALICE, {RATE: "1"})
    await one.poll()
    kafka.away = False
    kafka.alter(ALICE, {RATE: "2"})
    await one.poll()
    rows = [row.intent.observed for row in await one.followed(entity_id="broker=1") if row.kind == "observed"]
    assert [(row.after, row.until) for row in rows if row is not None] == [(last, kafka.now.offset)]


async def test_timeouts_of_clients_name_the_groups_keys_that_work_under_the_new_protocol(opened: Opener) -> None:
    one = await opened()
    found = {}
    for key, value in {"session.timeout.ms": "20000", "heartbeat.interval.ms": "3000", "acks": "all"}.items():
        [result] = await one.replica.edit(ALICE, FacetName.CLIENT_CONFIGS, (Op(key, OpType.SET, value),))
        assert result.error is None
        found[key] = result.warnings
    assert found["acks"] == ()
    for key in ("session.timeout.ms", "heartbeat.interval.ms"):
        [warning] = found[key]
        assert warning.startswith(f"{key} reaches no consumer with group.protocol=consumer")
        assert f"consumer.{key} of the entity group=" in warning
    removal = (Op("session.timeout.ms", OpType.DELETE),)
    [result] = await one.replica.edit(ALICE, FacetName.CLIENT_CONFIGS, removal)
    assert (result.error, result.warnings) == (None, ())


async def test_an_external_znode_that_no_index_takes_holds_up_no_other_entity(
    opened: Opener, kafka: KafkaDouble, raw_zk: KazooClient
) -> None:
    filled(kafka)
    one = await opened()
    kafka_writes(raw_zk, f"users/{secrets.token_hex(2_000)}", b'{"version":1,"config":{"producer_byte_rate":"5"}}')
    kafka.alter(BOB, {RATE: "7"})
    await one.poll()
    assert one.config(BOB) == {RATE: "7"}
    kafka.alter(BOB, {RATE: "8"})
    await one.poll()
    assert one.config(BOB) == {RATE: "8"}
