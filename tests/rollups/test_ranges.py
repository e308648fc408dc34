"""The history of an entity that is changed all the time is folded up in ranges, which tasks share, and comes to the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.sql.types import StructType

from confplane.rollups import folding, schemas
from confplane.rollups.job import CarriedFold
from confplane.rollups.jobs import activity
from confplane.rollups.jobs.integrity import JOB
from confplane.rollups.schemas import COMMITTED, OPEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


BITS: Final = 7
"""Of a range in these tests: 128 versions."""
HOT: Final = 6_000
"""Changes of the entity that is changed all the time."""
SETTLED: Final = 3_001
"""The revision of the fold that is handed on."""
CHANGES: Final = StructType([schemas.CHANGES[name] for name in JOB.inputs["changes"]])


@dataclass
class Znode:
    """A znode, and the rows of its changes."""

    entity_id: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    version: int | None = None
    czxid: int | None = None
    config: dict[str, str] = field(default_factory=dict)

    def write(self, revision: int, config: dict[str, str] | None, *, writes: int | None = None) -> None:
        """Store a config at a revision, by one write or, by others, by several; None deletes the znode."""
        if config is None:
            version = None
        elif self.version is None:
            version = 0
        else:
            version = self.version + (writes or 1)
        self.rows.append(
            {
                "change_id": f"{revision:020}", "entity_id": self.entity_id, "facet": "configs",
                "path": f"/config/topics/{self.entity_id}", "version_read": self.version, "czxid_read": self.czxid,
                "writes": writes, "before": dict(self.config), "after": config or {}, "outcome": COMMITTED,
                "revision": revision, "version": version,
            }
        )  # fmt: skip
        self.czxid = None if version is None else revision if self.version is None else self.czxid
        self.version, self.config = version, config or {}


@dataclass
class History:
    """One topic with very many changes among some with few."""

    znodes: list[Znode]
    gaps: set[str]
    """The ids of the changes before which a row is missing."""
    end: int

    def changes(self) -> list[dict[str, Any]]:
        return [row for znode in self.znodes for row in znode.rows]


def history() -> History:
    hot, others = Znode("topic=hot"), [Znode(f"topic={number}") for number in range(40)]
    revision = 1
    for number in range(HOT):
        revision += 1
        if number in {700, 701, 705, 4_000, HOT - 400}:
            hot.write(revision, None)  # deleted, and made again by the next one
            continue
        if number % 1_000 == 999:
            hot.write(revision, {"retention.ms": str(number)}, writes=300)  # of others, beyond a range at once
            continue
        hot.write(revision, {"retention.ms": str(number), "segment.ms": str(number % 3)})
        if number % 50 == 0:
            revision += 1
            others[number // 50 % 40].write(revision, {"retention.ms": str(number)})
    # A range has the versions from 0 on; these changes are the first, the last, and some in the middle of theirs.
    rows = {row["version_read"]: row for row in hot.rows if row["version_read"] is not None}
    withheld = [rows[version] for version in (2 * 128 - 1, 5 * 128, 9 * 128 + 50, 9 * 128 + 51)]
    gaps = {rows[version]["change_id"] for version in (2 * 128, 5 * 128 + 1, 9 * 128 + 52)}
    hot.rows = [row for row in hot.rows if row not in withheld]
    hot.rows.append({**hot.rows[-1], "change_id": "open", "outcome": OPEN, "revision": None, "version": None})
    return History([hot, *others], gaps, revision)


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "_RANGE_BITS", BITS)


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame([tuple(row[name] for name in CHANGES.names) for row in rows], CHANGES)


def by_entity(folded: DataFrame) -> dict[str, dict[str, Any]]:
    """The folded rows; what is in no order, sorted."""
    found = {}
    for row in folded.collect():
        each = row.asDict(recursive=True)
        for name in ("tail", "gaps"):
            each[name].sort(key=lambda entry: entry["revision"])
        found[each["entity_id"]] = each
    return found


@pytest.mark.usefixtures("small_ranges")
def test_in_ranges_the_fold_is_that_of_the_history_at_once(spark: SparkSession) -> None:
    made = history()
    changes, floor = frame(spark, made.changes()).persist(), made.end - 10

    def fold(**given: Any) -> DataFrame:
        return folding.fold_changes(changes, floor, made.end, 1, settled=SETTLED, **given)

    in_ranges = fold(newest_version=2**BITS)
    found = by_entity(in_ranges)
    assert found == by_entity(fold(newest_version=2**BITS - 1))
    hot = found["topic=hot"]
    assert {gap["change_id"] for gap in hot["gaps"]} == made.gaps
    revisions = [row["revision"] for row in made.znodes[0].rows if row["revision"] is not None]
    assert {each["revision"] for each in hot["tail"]} == {
        *(each for each in revisions if each > floor), max(each for each in revisions if each <= floor)
    }  # fmt: skip
    assert hot["open"] == ["open"]
    assert hot["last"]["revision"] == max(each for each in revisions if each <= SETTLED)
    assert all(each["gaps"] == [] for entity_id, each in found.items() if entity_id != "topic=hot")
    # What is handed on continues in the range of the changes behind it.
    carried = CarriedFold(folding.next_fold(in_ranges, SETTLED), SETTLED, datetime(2026, 1, 1, tzinfo=UTC))
    assert by_entity(fold(newest_version=None, carried=carried)) == found


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


@pytest.mark.usefixtures("few_rows", "many_tasks", "small_ranges")
def test_integrity_shares_the_changes_of_an_entity(spark: SparkSession) -> None:
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
