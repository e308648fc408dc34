"""Readings made by hand, jobs that need no stores, and the rows of their runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from confplane.domain.rollups import Column, ColumnType, Rollup
from confplane.rollups import schemas
from confplane.rollups.job import Job
from confplane.rollups.reading import Reading
from confplane.rollups.runner import FinishedRun, RunOptions, runner
from tests.audit.rows import fetch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import SecretStr
    from pyspark.sql import DataFrame, SparkSession

    from confplane.services.ports.rollups import RollupRun
    from tests.support import servers


START = datetime(2026, 1, 1, tzinfo=UTC)
CLUSTER = "payments"


@dataclass
class Made:
    """Frames out of lists: registration events, reports, znodes, and changes as far as ``activity`` looks at them."""

    spark: SparkSession
    events: Sequence[tuple[Any, ...]] = ()
    changes: Sequence[Mapping[str, Any]] = ()
    znodes: Sequence[tuple[Any, ...]] = ()
    reports: Sequence[tuple[Any, ...]] = ()
    refused: Sequence[tuple[Any, ...]] = ()
    lows: dict[str, Any] = field(default_factory=dict)
    """The lower bound that was asked for last, by frame."""

    def frame(self, name: str, columns: Sequence[str], low: int | datetime | None = None) -> DataFrame:
        self.lows[name] = low
        if name == "registration_events":
            rows = [row for row in self.events if low is None or row[0] >= low]
            return self.spark.createDataFrame(rows, schemas.REGISTRATION_EVENTS).select(*columns)
        if name == "reports":
            return self.spark.createDataFrame(list(self.reports), schemas.REPORTS).select(*columns)
        if name == "refused_attempts":
            attempts = [row for row in self.refused if low is None or row[1] >= low]
            return self.spark.createDataFrame(attempts, schemas.REFUSED_ATTEMPTS).select(*columns)
        if name == "znodes":
            return self.spark.createDataFrame(list(self.znodes), schemas.ZNODES).select(*columns)
        assert name == "changes"
        schema = StructType([schemas.CHANGES[column] for column in columns])
        given = [row for row in self.changes if low is None or row["created_at"] >= low]
        return self.spark.createDataFrame([tuple(row[column] for column in columns) for row in given], schema)

    @property
    def history(self) -> Made:
        return self

    def oldest(self, recorded_since: datetime) -> datetime | None:
        times = [row["created_at"] for row in self.changes if row["created_at"] >= recorded_since]
        return min(times, default=None)

    def lowest_revision(self, recorded_since: datetime) -> int | None:
        return min((row["revision"] for row in self.changes if row["created_at"] >= recorded_since), default=None)

    def first_above(self, revision: int) -> datetime | None:
        return min((row["created_at"] for row in self.changes if row["revision"] > revision), default=None)

    def last_until(self, time: datetime) -> int | None:
        return max((row["revision"] for row in self.changes if row["created_at"] <= time), default=None)


def reading(frames: Any, as_of: datetime, **position: Any) -> Reading:
    kept = {"registration_id": "0", "floor": "7", "horizon": "9", "watermark": None, **position}
    return Reading(CLUSTER, as_of, {"as_of": as_of}, {"as_of": as_of.isoformat(), **kept}, frames)


def change(number: int) -> dict[str, Any]:
    """The number-th change, one every four hours; a third of them sets one of five entities' keys to what it was."""
    entity = f"user={'abcde'[number % 5]}"
    return {
        "principal": f"User:{'xyz'[number % 3]}",
        "kind": "external" if number % 7 == 0 else "change",
        "entity_id": entity,
        "path": f"/config/users/{entity}",
        "created_at": START + timedelta(hours=4 * number),
        "revision": 100 + number,
        "outcome": "open" if number % 11 == 10 else "committed",
        "error_code": None,
        "keys": ["producer_byte_rate"],
        "ops": "[]",
        "before": {"producer_byte_rate": str(number % 3)},
        "after": {"producer_byte_rate": str((number + 1) % 3)},
    }


def refused(number: int, at: datetime, *keys: str) -> tuple[Any, ...]:
    return (f"{number:036}", at, "User:x", "user=a", list(keys), 44, 1)


def seen(number: int) -> tuple[Any, ...]:
    at = START + timedelta(hours=number)
    return (number, "seen", f"user={number % 9}", "lib", str(number % 2), ["acks", f"k{number % 4}"], at, at)


ALL_TYPES = Job(
    Rollup(
        "quotas",
        "",
        tuple(
            Column(name, ColumnType(kind.rstrip("?")), "", nullable=kind.endswith("?"))
            for name, kind in (
                ("entity_id", "string"), ("config_key", "string"), ("text", "string?"), ("texts", "array<string>"),
                ("small", "int?"), ("revision", "bigint?"), ("number", "double?"), ("flag", "boolean?"),
                ("day", "date?"), ("at", "timestamp?"),
            )
        ),
        key=("entity_id", "config_key"),
        entity="entity_id",
    ),
    inputs={},
    transform=dict,  # never run
)  # fmt: skip
"""Has a column of each type; under the name of a job that has an entity."""

ODD = [
    ("user=a", "", None, [], None, None, None, None, None, None),
    ("user=a", "k", "", [""], 0, 0, 0.0, False, date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)),
    ("user=a", "ké\U0001f418", "\\ \\N \\. \t \n \r \" ' \u2028 \x01 \x7f", ["a\\", "\tb"], -1, 2**63 - 1, 1e300, True, date(2026, 2, 28), datetime(2026, 2, 28, 23, 59, 59, 999999, tzinfo=UTC)),
    ("user=~C3~A9", "\\u0000", "\\\\u0000", ["\\N"], 2**31 - 1, -(2**63), -5e-324, True, date(9999, 12, 31), datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC)),
    ("", "z", "of the cluster", ["z"], 1, 2**53 + 1, 0.1, False, date(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 500000, tzinfo=UTC)),
]  # fmt: skip


def counted(rows: int, **more: Any) -> Job:
    """A job of this many rows, which has no inputs."""
    from confplane.rollups.jobs import activity  # noqa: PLC0415 - only where Spark runs

    def transform(**_: Any) -> DataFrame:
        from confplane.rollups.session import session  # noqa: PLC0415 - only where Spark runs

        numbers = session().range(rows)
        number = F.lpad(F.col("id").cast("string"), 9, "0")
        return numbers.select(
            F.date_sub(F.lit("2026-01-01"), (F.col("id") % 5).cast("int")).alias("day"),
            F.concat(F.lit("User:"), number).alias("principal"),
            *[F.lit("").alias(name) for name in ("kind", "entity_type", "config_key")],
            F.lit(0).alias("error_code"),
            F.lit(None).cast("string").alias("team"),
            *[F.col("id").alias(name) for name in activity.JOB.output.names[-4:]],
        )

    return Job(**{"rollup": activity.JOB.rollup, "inputs": {}, "transform": transform, **more})


OPTIONS = RunOptions("User:olga@cli")


def run(
    spark: SparkSession, at: Reading, dsn: SecretStr, job: Job, options: RunOptions = OPTIONS, **more: Any
) -> FinishedRun:
    with runner(spark, at, dsn) as found:
        return found.run(job, options, **more)


def rows_of(database: servers.Database, done: RollupRun) -> list[dict[str, Any]]:
    """The rows of a run in Postgres, in their order."""
    query = "SELECT item FROM rollup_rows WHERE run_id = %s ORDER BY part, ordinal"
    return [item for (item,) in fetch(database.owner_dsn, query, done.id)]


def at_once(at: Reading, job: Job) -> list[dict[str, Any]]:
    """The rows of a run that reads all changes."""
    frames, _ = at.frames(job)
    return returned(job(**frames, **{name: at.options.get(name) for name in job.options}), job)


def plain(value: Any) -> Any:
    """A value as in JSON."""
    if isinstance(value, datetime):
        # Spark hands out times of the machine's zone, without it.
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return value if isinstance(value, (list, float, int, str, type(None))) else str(value)


def returned(frame: DataFrame, job: Job) -> list[dict[str, Any]]:
    """The rows of a job as JSON, in the order of its key."""
    rows = [{name: plain(value) for name, value in row.asDict().items()} for row in frame.collect()]
    return sorted(rows, key=lambda row: tuple(row[name] for name in job.key))
