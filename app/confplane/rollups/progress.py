"""The progress of a run, as counted by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark.sql import SparkSession


class StageProgress(NamedTuple):
    """The progress of a stage of a run."""

    done: int
    """The number of its tasks that are done."""
    tasks: int
    """The number of all its tasks."""
    is_running: bool


def stages_of(spark: SparkSession, run_id: UUID) -> dict[int, StageProgress]:
    """Return the stages of a run known so far, by number. Later ones become known when earlier ones have ended."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(str(run_id))]
    stages = {number for job in jobs if job is not None for number in job.stageIds}
    found = {number: tracker.getStageInfo(number) for number in sorted(stages)}
    return {
        number: StageProgress(stage.numCompletedTasks, stage.numTasks, stage.numActiveTasks > 0)
        for number, stage in found.items()
        if stage is not None
    }
