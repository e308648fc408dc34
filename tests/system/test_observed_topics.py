"""Topics of an observed cluster that are removed and made again: nothing of an earlier topic comes back.

A look may be ahead of the metadata log, and a next leader reads a part of the log again. ZooKeeper and Postgres are
real, the Kafka cluster is a double.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

import pytest

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.services.kraft.decisions import EntityObservation
from confplane.services.ports.trail import ObservedRange
from tests.kraft.outside.trail_check import Happening, Kind, Row, check_trail
from tests.support.kafka_double import KafkaDouble
from tests.support.observing import Observing, following, znode_metadata
from tests.support.replicas import assert_chains
from tests.support.stores import soon

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from confplane.services.ports.kafka import LogChange
    from confplane.services.ports.trail import AuditRecord
    from tests.support.world import World

TOPIC, OTHER, ALICE = Entity.of(topic="t"), Entity.of(topic="o"), Entity.of(user="alice")
KEY = "retention.ms"


@pytest.fixture
def kafka() -> KafkaDouble:
    return KafkaDouble()


def make(kafka: KafkaDouble, value: str | None) -> None:
    """Make the topic anew, with a value."""
    kafka.create_topic("t")
    if value is not None:
        kafka.alter(TOPIC, {KEY: value})


async def committed(one: Observing) -> list[AuditRecord]:
    """The rows about topics that follow the cluster, behind the import."""
    return [
        row
        for row in await one.followed()
        if row.kind == "observed" and row.outcome is not None and row.outcome.committed
    ]


def faults_of(kafka: KafkaDouble, rows: list[AuditRecord], one: Observing, behind: int) -> list[str]:
    """Return the faults of rows and tree, beside the log; behind an offset each record has to be in a row."""
    written = [_row(row) for row in rows if row.outcome is not None and row.outcome.committed]
    tree = {entity.id: one.config(entity) or {} for entity in (TOPIC, OTHER)}
    happenings = [happened for each in kafka.log if (happened := _happening(each)) is not None]
    return check_trail(happenings, written, tree, every_write_after=behind).faults


def _happening(change: LogChange) -> Happening | None:
    if change.entity not in {TOPIC, OTHER}:
        return None
    at = change.offset, change.at_ms, change.entity.id
    if change.key is None:
        return Happening(*at, Kind.GONE if change.value is None else Kind.MADE)
    return Happening(*at, Kind.REMOVED if change.value is None else Kind.SET, change.key, change.value or "")


def _row(record: AuditRecord) -> Row:
    [entity], at = record.intent.entities, record.intent.observed
    assert at is not None
    return Row(
        str(record.intent.change_id),
        entity.entity_id,
        {key: value or "" for key, value in (entity.before or {}).items()},
        {key: value or "" for key, value in (entity.after or {}).items()},
        *(at.after, at.until, at.at_ms, at.exact, at.writes),
    )


async def test_a_recreated_topic_is_a_removal_and_a_creation(world: World, kafka: KafkaDouble) -> None:
    make(kafka, "5")
    one = await following(world, kafka)
    kafka.delete_topic("t")
    make(kafka, "6")
    await one.reached()
    removal, creation = [row.intent.entities[0] for row in await committed(one)]
    assert (removal.after, creation.before, creation.after) == ({}, {}, {KEY: "6"})
    assert one.config(TOPIC) == {KEY: "6"}
    await one.observer.stop()


@pytest.mark.parametrize("ids", [False, True], ids=["ids unknown", "ids known"])
@pytest.mark.parametrize("ends", [(), (None,), ("8",), ("8", None), ("8", "9")], ids=str)
async def test_records_of_a_topic_that_a_poll_saw_removed_restore_nothing(
    world: World, kafka: KafkaDouble, ends: tuple[str | None, ...], *, ids: bool
) -> None:
    """The look is that of a strong read in another process, while the log waits."""
    kafka.ids_of_configs = ids
    make(kafka, "5")
    one = await following(world, kafka)
    begin = kafka.now.offset
    two = Observing(await world.replica(client_configs_layout="separate", leads=False), kafka)
    await two.aware()
    with kafka.log_stopped():
        kafka.alter(TOPIC, {KEY: "6"})
        kafka.alter(TOPIC, {KEY: "7"})
        kafka.delete_topic("t")
        for number, value in enumerate(ends):
            if number:
                kafka.delete_topic("t")
            make(kafka, value)
        await two.refresher.refresh([TOPIC], (), soon(60))
        looked = await committed(one)
        assert [row.intent.entities[0].after for row in looked][:1] == [{}]
    await one.reached()
    rows = await one.followed()
    assert await committed(one) == looked, "the rows of the look have all records"
    assert faults_of(kafka, rows, one, begin) == []
    assert_chains(rows)
    await one.observer.stop()


async def test_records_that_the_next_leader_reads_again_bring_no_removed_topic_back(
    world: World, kafka: KafkaDouble
) -> None:
    make(kafka, "5")
    one = await following(world, kafka)
    begin = kafka.now.offset
    await one.reporter.publish()
    kafka.alter(TOPIC, {KEY: "6"})
    kafka.delete_topic("t")
    make(kafka, "7")
    kafka.delete_topic("t")
    await one.reached()
    rows = await committed(one)
    # It ends without another report.
    await one.observer.stop()
    two = await following(world, kafka, imported=False)
    assert await committed(two) == rows
    assert len(rows) == 4
    assert faults_of(kafka, await two.followed(), two, begin) == []
    await two.observer.stop()


async def test_the_end_of_an_earlier_topic_is_none_of_the_records_of_the_present_one(
    world: World, kafka: KafkaDouble, raw_zk: KazooClient
) -> None:
    kafka.create_topic("t")
    kafka.alter(TOPIC, {"retention.ms": "5"})
    one = Observing(await world.replica(client_configs_layout="separate"), kafka)
    await one.import_all()
    followed = znode_metadata(raw_zk.get("/config/topics/t")[0])["followed"]
    seen = EntityObservation(
        TOPIC,
        ObservedRange(1006, 1008, 0, exact=True, writes=2),
        1008,
        records=(("retention.ms", "6"), ("flush.ms", "7")),
        topic_id="of the present one",
    )
    await one.polls._writer.follow([seen], in_order=True)
    assert one.config(TOPIC) == {"retention.ms": "6", "flush.ms": "7"}
    rows = [row.intent.observed for row in await one.followed(entity_id="topic=t") if row.kind == "observed"]
    assert rows == [ObservedRange(followed[0], 1008, 0), ObservedRange(1006, 1008, 0, exact=True, writes=2)]


@pytest.mark.parametrize("seed", range(3))
async def test_every_record_of_a_topic_is_in_one_row_regardless_of_polls_and_leaders(
    world: World, kafka: KafkaDouble, seed: int
) -> None:
    """Looks of two processes, brokers that are behind, leaders that end amid their work; the judge is the log."""
    dice = random.Random(seed)  # noqa: S311 - a seed gives the same choices again
    kafka.page, kafka.ids_of_configs = 3, True
    make(kafka, "0")
    one = await following(world, kafka)
    begin = kafka.now.offset
    await one.reporter.publish()
    two = Observing(await world.replica(client_configs_layout="separate", leads=False), kafka)
    await two.aware()

    async def look() -> None:
        with contextlib.suppress(UnavailableError):
            await dice.choice([one, two]).refresher.refresh([TOPIC, OTHER], (), soon(60))

    looks: list[asyncio.Task[None]] = []
    for step in range(40):
        _write(kafka, dice, step)
        if dice.random() < 0.3:
            looks.append(asyncio.create_task(look()))
        if dice.random() < 0.1:
            kafka.behind = kafka.now.copied()
        elif dice.random() < 0.3:
            kafka.behind = None
        if dice.random() < 0.15:
            await one.reporter.publish()
        if dice.random() < 0.1:
            await one.observer.stop()
            one.observer.start()
        await asyncio.sleep(dice.choice((0, 0, 0.02, 0.1)))
    kafka.behind = None
    await asyncio.gather(*looks)
    await one.reached()
    await look()
    rows = await one.followed()
    assert faults_of(kafka, rows, one, begin) == []
    assert {entity: one.config(entity) or {} for entity in (TOPIC, OTHER)} == {
        entity: kafka.now.configs.get(entity, {}) for entity in (TOPIC, OTHER)
    }
    assert_chains([row for row in rows if row.outcome is not None])
    await one.observer.stop()


def _write(kafka: KafkaDouble, dice: random.Random, step: int) -> None:
    name = dice.choice(["t", "t", "o"])
    entity = Entity.of(topic=name)
    if name not in kafka.now.topics:
        kafka.create_topic(name)
        if dice.random() < 0.3:
            return
    elif dice.random() < 0.4:
        kafka.delete_topic(name)
        return
    held = kafka.now.configs.get(entity, {})
    kafka.alter(entity, {KEY: None if KEY in held and dice.random() < 0.3 else str(step)})
