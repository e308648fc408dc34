"""A made-up history at full size in Postgres: stores and lake have its rows, and jobs find the same in both."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import duckdb
import pytest

from confplane.rollups import schemas, stores
from confplane.rollups.exports.alterations import ExportAlterations
from confplane.rollups.exports.exporter import Exporter, exclusive_export
from confplane.rollups.exports.reading import read_lake
from confplane.rollups.jobs import activity, compatibility
from tests.bench.sample.files import write, write_frame
from tests.bench.sample.trail import Plan
from tests.rollups import samples
from tests.rollups.loaded import load
from tests.rollups.test_exports import origin_of
from tests.rollups.trail import CLUSTER

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from confplane.rollups.job import Job
    from confplane.rollups.reading import Reading
    from tests.support import servers

JOBS: Final = (activity.JOB, compatibility.JOB)
"""Together they read all that Postgres has of each change and each registration; the others read znodes too."""
EXPORTS: Final = {"changes": "trail", "registration_events": "registrations", "states": "states"}


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("plan", [Plan(20_000, 100_000), Plan(100_000, 1_000_000)], ids=["100k", "1M"])
def test_stores_and_lake_have_the_rows_that_were_made_and_jobs_equal_their_references(
    spark: SparkSession, migrated: servers.Database, tmp_path: Path, plan: Plan
) -> None:
    sample, lake = tmp_path / "sample", tmp_path / "lake"
    write(plan, sample)
    # A lake has no reports.
    shutil.rmtree(sample / "reports")
    write_frame(sample / "reports", schemas.REPORTS, ())
    load(migrated.owner_dsn, sample, CLUSTER)
    origin = origin_of(migrated)
    with exclusive_export(origin.dsn, CLUSTER), stores.open_reading(spark, origin, jobs=[]) as (reading, frames):
        Exporter(spark, str(lake), reading, frames, ExportAlterations()).export(("trail", "registrations"))
        for job in JOBS:
            assert samples.compare(job.name, found(reading, job), sample, tmp_path, {}) > 1000
    assert_same(sample, lake)
    exported = read_lake(spark, str(lake), CLUSTER, JOBS)
    for job in JOBS:
        assert samples.compare(job.name, found(exported, job), sample, tmp_path, {}) > 1000


def found(reading: Reading, job: Job) -> DataFrame:
    """The rows of a job from the beginning."""
    frames, since = reading.frames(job)
    options = {"teams": samples.TEAMS} if "teams" in job.options else {}
    return job(**frames, **options, previous=None, since=since)


def assert_same(sample: Path, lake: Path) -> None:
    """Assert that the files of the lake have the made-up rows, each once, by DuckDB."""
    with duckdb.connect() as database:
        for frame, export in EXPORTS.items():
            # JSON is spelled in another way by Postgres, and the order of a map's entries says nothing.
            columns = ", ".join(
                f"list_sort(map_entries({name}))" if name in {"before", "after", "content"} else name
                for name in samples.STORED[frame].names
                if name != "ops"
            )
            made = f"SELECT {columns} FROM read_parquet('{sample / frame}/*.parquet')"  # noqa: S608 - of a test
            there = f"SELECT {columns} FROM read_parquet('{lake}/export={export}/*/*/*/*.parquet')"  # noqa: S608 - of a test
            missing = database.execute(f"({made}) EXCEPT ALL ({there}) LIMIT 3").fetchall()
            unexpected = database.execute(f"({there}) EXCEPT ALL ({made}) LIMIT 3").fetchall()
            assert (missing, unexpected) == ([], []), frame
