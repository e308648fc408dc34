"""Runs by the runner: what is published is what the job returned, in its order, and only when all of it is there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import pytest_asyncio
from pydantic import SecretStr
from pyspark.sql import functions as F  # noqa: N812
from uuid_utils.compat import uuid7

from confplane.audit import Database, PostgresRollups
from confplane.audit.rollup_parts import RunAttempt
from confplane.audit.rollup_runs import RollupRuns
from confplane.domain.errors import UnavailableError
from confplane.domain.rollups import ROLLUPS
from confplane.rollups.errors import SparkFailedError
from confplane.rollups.jobs import JOBS, activity, compatibility
from confplane.rollups.runner import FinishedRun, RunOptions
from confplane.rollups.sinks import postgres as sink
from confplane.services.ports.rollups import RowQuery, RunState
from tests.audit.rows import count, fetch
from tests.rollups.made import (
    ALL_TYPES,
    CLUSTER,
    ODD,
    START,
    Made,
    change,
    counted,
    reading,
    refused,
    returned,
    run,
    seen,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from uuid import UUID

    from pyspark.sql import DataFrame, SparkSession

    from confplane.rollups.reading import Reading
    from confplane.services.ports.rollups import Place
    from tests.support import servers

LATER = START + timedelta(days=30)


@pytest.fixture
def dsn(migrated: servers.Database) -> SecretStr:
    return SecretStr(migrated.service_dsn)


@pytest_asyncio.fixture
async def rollups(migrated: servers.Database) -> AsyncIterator[PostgresRollups]:
    pool = Database(migrated.service_dsn, 2)
    yield PostgresRollups(pool)
    await pool.close()


async def rows_of(rollups: PostgresRollups, run_id: UUID, page_size: int = 500) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after: Place | None = None
    while True:
        page = await rollups.rows(RowQuery(run_id, page_size, after=after))
        assert page is not None
        found += page[0]
        after = page[1]
        if after is None:
            return found


def test_each_rollup_has_a_job_and_its_key_and_entity_are_columns() -> None:
    assert list(ROLLUPS) == list(JOBS)
    for rollup in ROLLUPS.values():
        assert {*rollup.key, *filter(None, [rollup.entity])} <= {each.name for each in rollup.columns}


def activity_of(made: Made) -> list[dict[str, Any]]:
    """The rows of ``activity`` on all of its frames."""
    given = {name: made.frame(name, columns) for name, columns in activity.JOB.inputs.items()}
    return returned(activity.JOB(**given), activity.JOB)


@pytest.mark.long
async def test_a_run_goes_on_from_the_one_before_and_comes_to_the_same(
    spark: SparkSession, rollups: PostgresRollups, dsn: SecretStr
) -> None:
    changes = [change(number) for number in range(120)]
    attempts = [refused(number, changes[number]["created_at"], "acks") for number in range(0, 120, 4)]
    made = Made(spark, changes=changes[:80], refused=attempts[:20])
    first = run(spark, reading(made, changes[79]["created_at"]), dsn, activity.JOB)
    assert first.run.previous is None
    assert first.is_current
    assert made.lows == {"changes": None, "refused_attempts": None}
    expected = activity_of(made)
    assert await rows_of(rollups, first.run.id) == expected
    assert first.run.rows == len(expected) > 20
    # What was open is settled meanwhile, and more was done.
    changes[76] |= {"outcome": "committed"}
    made = Made(spark, changes=changes, refused=attempts)
    now = reading(made, LATER)
    second = run(spark, now, dsn, activity.JOB)
    assert second.run.previous == first.run.id
    assert made.lows["changes"] == datetime(2026, 1, 6, tzinfo=UTC)  # a week before the first day that is counted anew
    expected = activity_of(made)
    assert await rows_of(rollups, second.run.id) == expected
    assert any(row["reverted_keys"] for row in expected)
    assert sum(row["rejected_keys"] for row in expected) == len(attempts)


def test_where_a_run_begins(spark: SparkSession, dsn: SecretStr, migrated: servers.Database) -> None:
    """On the current run, further back, or at the beginning; and a run of an earlier moment stays behind."""
    given: list[dict[str, Any]] = []

    def transform(**frames: Any) -> DataFrame:
        given.append(frames)
        previous: DataFrame | None = frames["previous"]
        return counted(3)() if previous is None else previous

    job = counted(0, transform=transform, incremental=True, inputs={"changes": ("created_at",)}, lookback_days=7)
    made = Made(spark, changes=[change(number) for number in range(80)])
    now = reading(made, START + timedelta(days=20))

    def made_from(at: Reading, **options: Any) -> tuple[FinishedRun, Any, Any]:
        done = run(spark, at, dsn, job, RunOptions("User:olga@cli", **options))
        assert done.run.rows == 3
        return done, given[-1]["since"], made.lows["changes"]

    first, since, low = made_from(reading(made, START + timedelta(days=14)))
    assert (first.run.previous, since, low) == (None, None, None)
    # Not later than the oldest change that may have been recorded since, whatever is wished for.
    second, since, low = made_from(now, since=START + timedelta(days=300))
    assert second.run.previous == first.run.id
    assert (since, low) == (START + timedelta(days=13), START + timedelta(days=6))
    third, since, low = made_from(now, since=START + timedelta(days=9))
    assert third.run.previous == second.run.id
    assert (since, low) == (START + timedelta(days=8), START + timedelta(days=1))
    fourth, since, low = made_from(now, full=True)
    assert (fourth.run.previous, since, low) == (None, None, None)
    past, since, _ = made_from(reading(made, START + timedelta(days=2)))
    assert (past.run.previous, since, past.is_current) == (None, None, False)
    assert RollupRuns(dsn.get_secret_value(), CLUSTER).current("activity") == fourth.run
    assert count(migrated.owner_dsn, "rollup_runs") == 5


def test_a_row_whose_entity_no_index_takes_has_none() -> None:
    ids = pa.array(["user=" + "x" * 3_000, "user=alice", None])
    batch = pa.RecordBatch.from_pydict({"entity_id": ids, "item": pa.array(["1", "2", "3"])})
    assert b"".join(lines for lines, _ in sink.encode_copy("0", [batch])).decode().splitlines() == [
        "0\t0\t\\N\t1", "0\t1\tuser=alice\t2", "0\t2\t\\N\t3"
    ]  # fmt: skip


async def test_registrations_are_built_on_too(spark: SparkSession, rollups: PostgresRollups, dsn: SecretStr) -> None:
    reports = [(f"user={number}", "i", "lib", "1", number, ["acks"]) for number in range(3)]
    made = Made(spark, events=[seen(number) for number in range(1, 100)], reports=reports)
    first = reading(
        Made(spark, events=made.events[:60], reports=reports[1:] * 2), START + timedelta(days=3), registration_id="60"
    )
    run(spark, first, dsn, compatibility.JOB)
    done = run(spark, reading(made, LATER, registration_id="99"), dsn, compatibility.JOB)
    assert done.run.previous is not None
    assert made.lows["registration_events"] == 61
    events = made.frame("registration_events", compatibility.JOB.inputs["registration_events"])
    reported = made.frame("reports", compatibility.JOB.inputs["reports"])
    assert await rows_of(rollups, done.run.id) == returned(
        compatibility.JOB(registration_events=events, reports=reported), compatibility.JOB
    )


async def test_all_types_and_odd_values_come_back_as_they_went(
    spark: SparkSession, rollups: PostgresRollups, dsn: SecretStr
) -> None:
    frame = spark.createDataFrame(ODD, ALL_TYPES.output)
    runs = RollupRuns(dsn.get_secret_value(), CLUSTER)
    run_id = uuid7()
    with runs.held(run_id):
        attempt = runs.begin(run_id, "quotas", as_of=START, position={}, previous=None, principal="User:x")
        assert isinstance(attempt, RunAttempt)
        store = sink.RunStore(spark, dsn)
        store.publish(sink.sort_rows(frame, ALL_TYPES), ALL_TYPES, run_id=run_id, attempt=attempt)
        runs.complete(run_id)
        back = store.rows(ALL_TYPES.output, run_id=run_id, parts=runs.parts(run_id)).cache()
        assert back.count() == len(ODD)
    assert returned(back, ALL_TYPES) == returned(frame, ALL_TYPES)
    assert [each.dataType.simpleString() for each in back.schema] == [
        each.dataType.simpleString() for each in ALL_TYPES.output
    ]
    found = await rows_of(rollups, run_id)
    # JSON has numbers of any length, and Python reads one without a point as an integer.
    floats = [{**item, "number": item["number"] if item["number"] is None else float(item["number"])} for item in found]
    assert floats == returned(frame, ALL_TYPES)
    of_a = await rollups.rows(RowQuery(run_id, 10, entity_id="user=a"))
    assert of_a == (found[1:4], None)
    assert await rollups.rows(RowQuery(run_id, 10, entity_id="")) == (found[:1], None)
    assert await rollups.rows(RowQuery(run_id, 10, members={"revision": 2**53 + 1})) == (found[:1], None)


async def test_what_jsonb_can_not_hold_is_replaced(
    spark: SparkSession, rollups: PostgresRollups, dsn: SecretStr
) -> None:
    values = [float("inf"), float("-inf"), float("nan"), 1.5]
    row = ODD[0]
    rows = [(f"user={n}", "k", "a\0b", *row[3:6], value, *row[7:]) for n, value in enumerate(values)]
    frame = spark.createDataFrame(rows, ALL_TYPES.output)
    job = counted(0, rollup=ALL_TYPES.rollup, transform=lambda **_: frame)
    done = run(spark, reading(Made(spark), START), dsn, job)
    found = await rows_of(rollups, done.run.id)
    assert [item["number"] for item in found] == [None, None, None, 1.5]
    assert {item["text"] for item in found} == {"a\ufffdb"}


@pytest.mark.usefixtures("two_parts")
async def test_rows_of_many_parts_are_in_the_order_of_the_key(
    spark: SparkSession, rollups: PostgresRollups, dsn: SecretStr, tmp_path: Path
) -> None:
    job = counted(2_000)
    # Rows that go to two places are kept meanwhile, and Spark joins no small parts of kept rows.
    options = RunOptions("User:olga@cli", output=str(tmp_path))
    done = run(spark, reading(Made(spark), START), dsn, job, options)
    found = await rows_of(rollups, done.run.id, 300)
    assert len(found) == done.run.rows == 2_000
    assert found == returned(job(), job)
    assert len(RollupRuns(dsn.get_secret_value(), CLUSTER).parts(done.run.id)) > 1


def test_the_same_run_again_does_nothing_more(spark: SparkSession, dsn: SecretStr, migrated: servers.Database) -> None:
    run_id = uuid7()
    at = reading(Made(spark), START)
    first = run(spark, at, dsn, counted(10), run_id=run_id)
    again = run(spark, at, dsn, counted(20), run_id=run_id)
    assert again.run == first.run
    assert count(migrated.owner_dsn, "rollup_rows") == 10


async def test_a_run_that_fails_leaves_nothing_and_says_why(
    spark: SparkSession, rollups: PostgresRollups, dsn: SecretStr, migrated: servers.Database
) -> None:
    at = reading(Made(spark), START)

    def broken(**_: Any) -> DataFrame:
        # The last rows can't be made; those of other parts are written by then.
        refused = F.when(F.col("committed_keys") > 900, F.raise_error(F.lit("s3cret"))).otherwise(
            F.col("committed_keys")
        )
        return counted(1_000)().withColumn("committed_keys", refused.cast("long"))

    with pytest.raises(SparkFailedError):
        run(spark, at, dsn, counted(0, transform=broken))
    found = (await rollups.runs(CLUSTER))["activity"]
    assert found.current is None
    assert found.latest is not None
    assert found.latest.state is RunState.FAILED
    assert "the run wrote to its log says more" in (found.latest.error or "")
    assert "s3cret" not in (found.latest.error or "")
    assert [count(migrated.owner_dsn, table) for table in ("rollup_rows", "rollup_parts")] == [0, 0]
    # None of it keeps the next one from its work.
    assert run(spark, at, dsn, counted(5)).run.rows == 5


async def test_two_runs_at_once_are_both_fine(
    spark: SparkSession, rollups: PostgresRollups, dsn: SecretStr, migrated: servers.Database
) -> None:
    inner: list[FinishedRun] = []

    def transform(**_: Any) -> DataFrame:
        # The older one is begun; a newer one is made from beginning to end, and does not take it for abandoned.
        inner.append(run(spark, reading(Made(spark), START + timedelta(hours=1)), dsn, counted(20)))
        return counted(10)()

    older = run(spark, reading(Made(spark), START), dsn, counted(0, transform=transform))
    newer = inner[0]
    assert newer.is_current
    assert not older.is_current
    current = await rollups.run(CLUSTER, "activity")
    assert current == newer.run
    assert len(await rows_of(rollups, newer.run.id)) == 20
    assert len(await rows_of(rollups, older.run.id)) == 10
    assert fetch(migrated.owner_dsn, "SELECT state FROM rollup_runs") == [("complete",), ("complete",)]


def test_postgres_away_is_reported(spark: SparkSession) -> None:
    nowhere = SecretStr("postgresql://confplane:secret@127.0.0.1:1/confplane")
    with pytest.raises(UnavailableError) as refused:
        run(spark, reading(Made(spark), START), nowhere, counted(1))
    assert "secret" not in str(refused.value)
