"""Values of others that were put back in a Kafka cluster, or replaced, are no versions: integrity leaves them out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from confplane.audit import Database, PostgresTargetStates
from confplane.rollups import schemas, stores
from confplane.rollups.jobs import activity
from confplane.rollups.origin import Origin
from confplane.services.ports.applying import BaseValue, Correction, LostUpdate
from confplane.services.ports.trail import PUT_BACK, ObservedRange
from confplane.settings import ClusterSettings
from tests.audit.rows import committed, entity
from tests.rollups import samples
from tests.rollups.trail import CLUSTER, EPOCH, START_MS, collected, own, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from confplane.services.ports.trail import Intent
    from tests.support import servers

ALICE, PATH, RATE = "user=alice", "/config/users/alice", "producer_byte_rate"


def change(number: int, version: int | None, before: dict[str, str], after: dict[str, str]) -> Intent:
    """The number-th change of Alice, made on a version."""
    czxid = None if version is None else 1
    return own(number, entity(ALICE, path=PATH, before=before, after=after, version_read=version, czxid_read=czxid))


def of_others(number: int, before: str, theirs: str) -> Intent:
    """A value of others beside the one here."""
    made = change(number, None, {RATE: before}, {RATE: theirs})
    return replace(made, kind=PUT_BACK, principal="External:unknown", observed=ObservedRange(1, 2, START_MS))


def write_of_others(dsn: str) -> None:
    """Write the rows of two values of others, as the states do."""

    async def write_all() -> None:
        pool = Database(dsn, 4)
        states = PostgresTargetStates(pool)
        base = {RATE: BaseValue("7", 2)}
        one = Correction(ALICE, 1, 2, base, {}, {RATE: [1.0]}, of_others(2, "1", "7"))
        assert await states.correct(CLUSTER, [one]) == {ALICE}
        await states.record_lost_updates(
            CLUSTER, [LostUpdate(ALICE, 3, base, {RATE: BaseValue("8", 3)}, of_others(4, "2", "8"))]
        )
        await pool.close()

    asyncio.run(write_all())


def test_integrity_leaves_out_what_never_was_a_version(
    spark: SparkSession, tmp_path: Path, migrated: servers.Database
) -> None:
    first, second = change(1, None, {}, {RATE: "1"}), change(3, 0, {RATE: "1"}, {RATE: "2"})
    ends = [committed(first, revision=1, versions={PATH: 0}), committed(second, revision=2, versions={PATH: 1})]
    write(migrated.service_dsn, [first, second], ends)
    write_of_others(migrated.service_dsn)
    origin = Origin(CLUSTER, ClusterSettings(zookeeper="127.0.0.1:1"), SecretStr(migrated.service_dsn))
    with stores.read(spark, origin, jobs=(activity.JOB,)) as (reading, _):
        found = collected(reading.frame("changes", schemas.CHANGES.names))
    assert [(row["kind"], row["outcome"]) for row in sorted(found, key=lambda row: str(row["change_id"]))] == [
        ("change", "committed"), (PUT_BACK, "rejected"), ("change", "committed"), (PUT_BACK, "rejected")
    ]  # fmt: skip

    def mismatches(rows: list[dict[str, Any]]) -> list[Any]:
        znode: tuple[Any, ...] = ("/config", PATH, ALICE, {RATE: "2"}, {}, 1, 1, 2, START_MS * 1000, None, False, False)
        directory = tmp_path / str(len(rows))
        directory.mkdir()
        samples.save(
            directory,
            changes=[tuple(row[name] for name in schemas.CHANGES.names) for row in rows],
            znodes=[znode],
        )
        usual: dict[str, Any] = {
            "begin": 1,
            "ceiling": 9,
            "floor": 9,
            "horizon": 9,
            "recorded_since": None,
            "watermark": None,
        }
        usual |= {"as_of": EPOCH}
        return samples.run("integrity", samples.frames(spark, directory), **usual, newest_version=0).collect()

    assert mismatches(found) == []
    # Of a change that is missing it would speak.
    assert mismatches([row for row in found if row["revision"] != 2]) != []
