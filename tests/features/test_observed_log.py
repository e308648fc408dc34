"""The metadata log of an observed cluster: each record in one row, in order, however its reading is cut short.

ZooKeeper and Postgres are real, the Kafka cluster is a double.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.entities import Entity
from confplane.services.kraft.decisions import EntityObservation
from confplane.services.ports.applying import AlterRefused
from confplane.services.ports.trail import ObservedRange
from tests.support.adopting import alter, apply, opener
from tests.support.kafka_double import KafkaDouble
from tests.support.observing import Observing, following
from tests.support.replicas import assert_chains
from tests.support.stores import soon, until

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from confplane.services.ports.trail import AuditRecord
    from tests.support.world import World

ALICE, BOB, TOPIC, BROKER = Entity.of(user="alice"), Entity.of(user="bob"), Entity.of(topic="t"), Entity.of(broker="1")
RATE = "producer_byte_rate"


@pytest.fixture
def kafka() -> KafkaDouble:
    return KafkaDouble()


def exact(records: list[AuditRecord]) -> list[tuple[str, ObservedRange]]:
    """The entities of the changes read from the log, and their places."""
    return [
        (each.intent.entities[0].entity_id, each.intent.observed)
        for each in sorted(records, key=lambda record: record.intent.change_id)
        if each.intent.observed is not None and each.intent.observed.exact and each.outcome and each.outcome.committed
    ]


async def test_each_record_is_a_row_with_its_offset_and_time_in_the_order_of_the_log(
    world: World, kafka: KafkaDouble
) -> None:
    kafka.alter(ALICE, {RATE: "1"})
    kafka.create_topic("t")
    one = await following(world, kafka)
    begin = len(kafka.log)
    kafka.alter(ALICE, {RATE: "2"})
    kafka.alter(ALICE, {RATE: "1", "consumer_byte_rate": "5"})
    kafka.alter(TOPIC, {"retention.ms": "5"})
    kafka.alter(ALICE, {RATE: None})
    # The brokers write a record for a value that stays as it is.
    kafka.alter(BROKER, {"background.threads": "12"})
    kafka.alter(BROKER, {"background.threads": "12"})
    kafka.hide(BROKER, "ssl.key.password", "hush-hush")
    await one.reached()
    rows = exact(await one.followed())
    assert rows == [
        (record.entity.id, ObservedRange(record.offset - 1, record.offset, record.at_ms, exact=True))
        for record in kafka.log[begin:]
        if record.entity is not None
    ]
    assert one.config(ALICE) == {"consumer_byte_rate": "5"}
    assert (one.config(TOPIC), one.config(BROKER)) == ({"retention.ms": "5"}, {"background.threads": "12"})
    trail = await one.followed()
    assert "hush-hush" not in str(trail)
    [password] = max(trail, key=lambda record: record.intent.change_id).intent.entities
    assert (password.keys, password.ops) == (
        ("ssl.key.password",), ({"key": "ssl.key.password", "op": "SET", "value": None},)
    )  # fmt: skip
    assert_chains(trail)
    await one.observer.stop()


async def test_many_records_become_runs_that_count_them(world: World, kafka: KafkaDouble) -> None:
    one = await following(world, kafka)
    begin = kafka.now.offset
    for value in range(150):
        kafka.alter(ALICE, {RATE: str(value)})
        kafka.alter(BOB, {RATE: str(value)})
    await one.reached()
    rows = exact(await one.followed())
    assert sum(observed.writes for _, observed in rows) == 300
    assert len(rows) < 10
    assert (rows[0][1].after, max(observed.until for _, observed in rows)) == (begin, kafka.now.offset)
    assert one.config(ALICE) == one.config(BOB) == {RATE: "149"}
    await one.observer.stop()


@pytest.mark.parametrize("seed", range(2))
async def test_whatever_cuts_it_short_every_record_is_in_one_row(world: World, kafka: KafkaDouble, seed: int) -> None:
    """The judge is the log itself: its records, and how many the rows say that they hold."""
    dice = random.Random(seed)  # noqa: S311 - a seed gives the same choices again
    kafka.page = 7
    one = await following(world, kafka)
    begin, written = len(kafka.log), 0
    for step in range(12):
        for _ in range(dice.randint(1, 12)):
            written += 1
            entity = dice.choice([ALICE, BOB])
            held = kafka.now.configs.get(entity, {})
            key = dice.choice([RATE, "consumer_byte_rate"])
            kafka.alter(entity, {key: None if key in held and dice.random() < 0.2 else str(written)})
        await asyncio.sleep(dice.random() / 20)
        if step % 4 == 3:
            # Another process leads, from the last report: what came behind it is read again.
            await one.reporter.publish()
            kafka.alter(ALICE, {RATE: f"{written}000"})
            await one.reached()
            await one.observer.stop()
            kafka.alter(BOB, {RATE: f"{written}001"})
            one = await following(world, kafka, imported=False)
    await one.reached()
    rows = exact(await one.followed())
    offsets: list[int] = []
    for entity_id, observed in rows:
        records = [each for each in kafka.log if each.entity is not None and each.entity.id == entity_id]
        inside = [each.offset for each in records if (observed.after or 0) < each.offset <= observed.until]
        assert len(inside) == observed.writes
        offsets += inside
    assert sorted(offsets) == [record.offset for record in kafka.log[begin:]]
    for entity, config in kafka.now.configs.items():
        assert one.config(entity) == config
    assert_chains([each for each in await one.followed() if each.outcome is not None])
    await one.observer.stop()


async def test_a_log_that_begins_later_causes_a_full_poll(world: World, kafka: KafkaDouble) -> None:
    kafka.alter(ALICE, {RATE: "1"})
    one = await following(world, kafka)
    await one.reporter.publish()
    await one.observer.stop()
    kafka.alter(ALICE, {RATE: "2"})
    kafka.alter(BOB, {RATE: "2"})
    kafka.log_begin = kafka.now.offset + 1
    two = await following(world, kafka, imported=False)
    assert (two.config(ALICE), two.config(BOB)) == ({RATE: "2"}, {RATE: "2"})
    rows: list[Any] = [row for row in await two.followed() if row.kind == "observed"]
    assert len(rows) == 2
    assert not exact(rows)
    await two.observer.stop()


async def test_a_refused_change_does_not_hold_up_the_polls_for_a_log_that_begins_later(
    world: World, kafka: KafkaDouble
) -> None:
    async with opener(world, kafka) as open_one:
        one = await open_one(log=True)
        kafka.refusals[ALICE] = AlterRefused(42, "A value is out of range")
        await alter(one, ALICE, {RATE: 5})
        await apply(one)
        await one.round.step_down()
        # The poll leaves it alone, because the change of a client was refused.
        kafka.alter(ALICE, {RATE: "7"})
        kafka.log_begin = kafka.now.offset + 1
        one.observer.start()
        await one.reached()
        kafka.alter(BOB, {RATE: "7"})
        await until(lambda: one.config(BOB) == {RATE: "7"})
        assert one.config(ALICE) == {RATE: "5"}


async def test_records_that_a_poll_may_have_seen_restore_no_older_value(
    world: World, kafka: KafkaDouble, raw_zk: KazooClient
) -> None:
    kafka.alter(ALICE, {RATE: "9"})
    one = Observing(await world.replica(client_configs_layout="separate"), kafka)
    await one.import_all()
    # A look that began at the offset 10 and ended at 20.
    znode = {"version": 1, "config": {RATE: "9"}, "followed": [10, 20]}
    raw_zk.set("/config/users/alice", json.dumps(znode).encode())
    raw_zk.create("/config/changes/config_change_", b'{"version":2,"entity_path":"users/alice"}', sequence=True)
    await one.store.catch_up(soon())
    follower = one.polls._writer

    def records(after: int, until_: int, *values: str) -> EntityObservation:
        observed_range = ObservedRange(after, until_, 0, exact=True, writes=len(values))
        return EntityObservation(ALICE, observed_range, until_, records=tuple((RATE, value) for value in values))

    before = len(await one.followed())
    followed = await follower.follow([records(14, 15, "7"), records(9, 10, "7")], in_order=True)
    assert ([each.entity for each in followed.stale], followed.written) == ([ALICE], 0), "another poll is needed"
    followed = await follower.follow([records(8, 21, "7", "9", "11")], in_order=True)
    assert (followed.stale, followed.written, one.config(ALICE)) == ([], 1, {RATE: "11"})
    [*_, row] = await one.followed()
    assert len(await one.followed()) == before + 1
    assert row.intent.observed == ObservedRange(10, 21, 0), "some of the three are in the look's row"


async def test_a_poll_ahead_of_the_log_counts_with_records_not_yet_read_from_the_log(
    world: World, kafka: KafkaDouble
) -> None:
    kafka.alter(ALICE, {RATE: "1"})
    one = await following(world, kafka)
    await one.observer.stop()
    followed = kafka.now.offset
    kafka.alter(ALICE, {RATE: "2"})
    kafka.alter(ALICE, {RATE: "1"})
    await one.round.reconcile_up_to(kafka.now.offset)
    kafka.alter(ALICE, {RATE: "3"})
    await one.round.reconcile_up_to(kafka.now.offset)
    # The two writes that no look saw are within the bounds of the row, since the log brings them no more.
    rows = [row.intent.observed for row in await one.followed(entity_id="user=alice") if row.kind == "observed"]
    assert [(row.after, row.until) for row in rows if row is not None] == [(followed, kafka.now.offset)]
    one.observer.start()
    await one.reached()
    assert len([row for row in await one.followed(entity_id="user=alice") if row.kind == "observed"]) == 1
    await one.observer.stop()
