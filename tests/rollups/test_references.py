"""Every job's rows equal those of plain SQL on the same frames, and an incremental run's those of one at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest
from pyspark.sql import functions as F  # noqa: N812

from app.rollups.jobs import JOBS
from tests.bench.sample.files import write
from tests.bench.sample.trail import Plan
from tests.rollups import samples

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from app.rollups.job import Job

CAPACITY: Final = {"producer_byte_rate": 2.5e9, "request_percentage": 0.0}
REFERENCED: Final = ("compatibility", "drift", "activity", "quotas", "impact")
STEPS: Final = (datetime(2026, 3, 3, 12, 30, tzinfo=UTC), datetime(2026, 3, 4, tzinfo=UTC), None)
"""Moments of incremental runs, one soon after another; the last sees everything."""


@pytest.fixture(
    scope="module",
    params=[
        Plan(entities=5_000, events=25_000),
        pytest.param(Plan(20_000, 100_000), marks=pytest.mark.long),
        pytest.param(Plan(100_000, 1_000_000), marks=pytest.mark.long),
    ],
    ids=["25k", "100k", "1M"],
)
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sample")
    write(request.param, directory)
    return directory


@pytest.mark.parametrize("name", REFERENCED)
def test_a_job_is_what_its_definition_says(spark: SparkSession, sample: Path, tmp_path: Path, name: str) -> None:
    rows = samples.run(name, samples.frames(spark, sample), capacity=CAPACITY)
    assert samples.compare(name, rows, sample, tmp_path, CAPACITY) > (20 if name == "drift" else 1000)


@pytest.mark.parametrize("name", [job.name for job in JOBS.values() if job.incremental])
def test_in_steps_it_comes_to_the_same(spark: SparkSession, sample: Path, tmp_path: Path, name: str) -> None:
    job, given = JOBS[name], samples.frames(spark, sample)
    options = {"teams": samples.TEAMS} if "teams" in job.options else {}
    previous: DataFrame | None = None
    then: datetime | None = None
    for number, now in enumerate(STEPS):
        inputs, since = _seen(job, given, then, now)
        rows = job(**inputs, **options, previous=previous, since=since)
        if now is None:
            assert samples.compare(name, rows, sample, tmp_path, CAPACITY) > 1000
            return
        kept = str(tmp_path / f"step-{number}")
        rows.write.parquet(kept)
        previous, then = spark.read.schema(job.output).parquet(kept), now


def _seen(
    job: Job, given: dict[str, DataFrame], then: datetime | None, now: datetime | None
) -> tuple[dict[str, DataFrame], datetime | None]:
    """Return what a run at a moment is given that builds on one of an earlier moment, by the words of ``Job``."""
    seen, since = dict(given), None
    if now is not None:
        concluded = F.col("concluded_at") <= F.lit(now)
        seen["changes"] = given["changes"].where(F.col("recorded_at") <= F.lit(now)).withColumns(
            {
                "outcome": F.when(concluded, F.col("outcome")).otherwise("open"),
                "revision": F.when(concluded, F.col("revision")),
            }
        )  # fmt: skip
        seen["registration_events"] = given["registration_events"].where(F.col("recorded_at") <= F.lit(now))
    if then is not None:
        seen["registration_events"] = seen["registration_events"].where(F.col("recorded_at") > F.lit(then))
        new = (F.col("recorded_at") > F.lit(then)) | (F.col("concluded_at") > F.lit(then))
        [(oldest,)] = seen["changes"].where(new).agg(F.min(F.unix_micros("created_at"))).collect()
        since = datetime.fromtimestamp(oldest / 1e6, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        assert since < then
        first = since - timedelta(days=job.lookback_days)
        seen["changes"] = seen["changes"].where(F.col("created_at") >= F.lit(first))
    return {frame: seen[frame].select(*columns) for frame, columns in job.inputs.items()}, since
