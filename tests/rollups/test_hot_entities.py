"""An entity that most changes of the trail are of is no single task, as the numbers of rows that tasks read show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.rollups import folding, schemas
from confplane.rollups.jobs import activity
from tests.rollups.test_ranges import frame, history

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

TASKS: Final = 16
BEGIN: Final = datetime(2025, 1, 1, tzinfo=UTC)
HOURS: Final = 360 * 24


def rows_of_tasks(spark: SparkSession, name: str, action: Callable[[], Any]) -> list[list[int]]:
    """Run queries, and return the rows that each task read of a shuffle, a list for each stage that read any."""
    context = spark.sparkContext
    context.setJobGroup(name, name)
    try:
        action()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # how it is unset
    # The store hears of the ends of tasks a little later.
    context._jsc.sc().listenerBus().waitUntilEmpty(300_000)
    store, tracker = context._jsc.sc().statusStore(), context.statusTracker()
    infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(name)]
    stages = {stage for info in infos if info is not None for stage in info.stageIds}
    found = []
    for stage in sorted(stages):
        tasks = store.taskList(stage, 0, 10_000)
        metrics = [tasks.apply(number).taskMetrics() for number in range(tasks.size())]
        found.append([int(each.get().shuffleReadMetrics().recordsRead()) for each in metrics if each.isDefined()])
    return [rows for rows in found if sum(rows)]


@pytest.fixture
def many_tasks(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", str(TASKS))


@pytest.mark.usefixtures("few_rows", "many_tasks")
def test_activity_shares_the_changes_of_a_key_that_has_two_values_in_turn(spark: SparkSession) -> None:
    names = activity.JOB.inputs["changes"]
    fixed = {
        "principal": "User:a", "kind": "change", "entity_id": "topic=hot", "path": "/config/topics/hot",
        "outcome": "committed", "error_code": None, "keys": ["retention.ms"],
        "ops": "[]",
    }  # fmt: skip
    rows = [
        {
            **fixed, "created_at": BEGIN + timedelta(hours=number), "revision": number,
            "before": {"retention.ms": str(number % 2)}, "after": {"retention.ms": str((number + 1) % 2)},
        }
        for number in range(HOURS)
    ]  # fmt: skip
    schema = spark.createDataFrame([], schemas.CHANGES).select(*names).schema
    changes = spark.createDataFrame([tuple(row[name] for name in names) for row in rows], schema)
    refused = spark.createDataFrame([], schemas.REFUSED_ATTEMPTS).select(*activity.JOB.inputs["refused_attempts"])
    given = {"changes": changes, "refused_attempts": refused}
    found: list[Any] = []
    stages = rows_of_tasks(spark, "hot activity", lambda: found.extend(activity.JOB(**given).collect()))
    # Each sets the key back, but for the first one.
    assert sum(row.reverted_keys for row in found) == HOURS - 1
    largest = max(stages, key=sum)
    assert sum(largest) >= 2 * HOURS
    assert max(largest) < sum(largest) / 4, largest


@pytest.mark.usefixtures("few_rows", "many_tasks")
def test_integrity_shares_the_changes_of_an_entity(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "_RANGE_BITS", 7)
    made = history()
    rows = frame(spark, made.changes())
    folded = folding.fold_changes(rows, made.end, made.end, 0, newest_version=None)
    stages = rows_of_tasks(spark, "hot integrity", folded.collect)
    largest = max(stages, key=sum)
    hot = sum(row["entity_id"] == "topic=hot" for row in made.changes())
    assert sum(largest) >= hot > sum(largest) * 0.9
    assert max(largest) < sum(largest) / 4, largest
    # What is left for one task are the ends of ranges, and what says something.
    assert max(max(each) for each in stages if each is not largest) < hot / 4, stages
