"""Every job's rows equal those of plain SQL on the same frames, and an incremental run's those of one at once."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest

from confplane.rollups.jobs import JOBS
from tests.bench.sample.files import write
from tests.bench.sample.trail import Plan
from tests.rollups import samples

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

CAPACITY: Final = {"producer_byte_rate": 2.5e9, "request_percentage": 0.0}
AT_ONCE: Final = ("drift", "quotas", "impact")
INCREMENTAL: Final = [job.name for job in JOBS.values() if job.incremental]
STEPS: Final = (datetime(2026, 3, 3, 12, 30, tzinfo=UTC), datetime(2026, 3, 4, tzinfo=UTC), None)
"""Moments of incremental runs, one soon after another; the last sees everything."""


@pytest.fixture(
    scope="module",
    params=[
        Plan(entities=5_000, events=25_000),
        pytest.param(Plan(100_000, 1_000_000), marks=pytest.mark.long),
    ],
    ids=["25k", "1M"],
)
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sample")
    write(request.param, directory)
    return directory


@pytest.mark.usefixtures("two_parts")
@pytest.mark.parametrize("name", AT_ONCE)
def test_a_job_is_what_its_definition_says(spark: SparkSession, sample: Path, tmp_path: Path, name: str) -> None:
    rows = samples.run(name, samples.frames(spark, sample), capacity=CAPACITY)
    assert samples.compare(name, rows, sample, tmp_path, CAPACITY) > (20 if name == "drift" else 1000)


@pytest.mark.usefixtures("two_parts")
@pytest.mark.parametrize("name", INCREMENTAL)
def test_in_steps_it_comes_to_the_same(spark: SparkSession, sample: Path, tmp_path: Path, name: str) -> None:
    rows = in_steps(spark, sample, tmp_path, name, STEPS)
    assert samples.compare(name, rows, sample, tmp_path, CAPACITY) > 1000


@pytest.mark.usefixtures("few_rows")
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", INCREMENTAL)
def test_in_fifty_random_steps_it_comes_to_the_same(spark: SparkSession, tmp_path: Path, name: str) -> None:
    plan, sample = Plan(entities=1_000, events=5_000), tmp_path / "sample"
    days = (write(plan, sample).now - plan.begin) / timedelta(days=1)
    chosen = random.Random(11)  # noqa: S311 - the same each time
    moments = sorted(plan.begin + timedelta(days=days * chosen.uniform(0.2, 1)) for _ in range(49))
    rows = in_steps(spark, sample, tmp_path, name, [*moments, None])
    assert samples.compare(name, rows, sample, tmp_path, CAPACITY) > 200


def in_steps(
    spark: SparkSession, sample: Path, directory: Path, name: str, moments: Sequence[datetime | None]
) -> DataFrame:
    """The rows of the last of several runs, each built on the one before."""
    job, given = JOBS[name], samples.frames(spark, sample)
    options = {"teams": samples.TEAMS} if "teams" in job.options else {}
    previous: DataFrame | None = None
    then: datetime | None = None
    for number, now in enumerate(moments):
        inputs, since = samples.inputs_of(job, given, then, now)
        rows = job(**inputs, **options, previous=previous, since=since)
        if number + 1 == len(moments):
            return rows
        kept = str(directory / f"step-{number}")
        rows.write.parquet(kept)
        spark.catalog.clearCache()
        previous, then = spark.read.schema(job.output).parquet(kept), now
    raise AssertionError("no moment was given")
