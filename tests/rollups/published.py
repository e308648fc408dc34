"""Runs of jobs whose readings are made by hand, and their rows as JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from confplane.rollups.runner import FinishedRun, RunOptions, runner
from tests.audit.rows import fetch

if TYPE_CHECKING:
    from pydantic import SecretStr
    from pyspark.sql import DataFrame, SparkSession

    from confplane.rollups.job import Job
    from confplane.rollups.reading import Reading
    from confplane.services.ports.rollups import RollupRun
    from tests.support import servers

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
