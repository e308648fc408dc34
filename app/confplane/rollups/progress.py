"""The progress of a run, as counted by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark.sql import SparkSession


class Tasks(NamedTuple):
    """Tasks of the stages known so far. Later stages become known when earlier ones have ended."""

    done: int
    known: int


def tasks_of(spark: SparkSession, run_id: UUID) -> Tasks:
    """Return the tasks of a run's jobs."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(str(run_id))]
    stages = {number for job in jobs if job is not None for number in job.stageIds}
    found = [stage for stage in map(tracker.getStageInfo, sorted(stages)) if stage is not None]
    return Tasks(sum(stage.numCompletedTasks for stage in found), sum(stage.numTasks for stage in found))
