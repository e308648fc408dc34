"""Integrity's fold: runs that build on the one before come to the rows of a run that reads all changes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from pydantic import SecretStr
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from confplane.audit.rollup_parts import fold_id
from confplane.audit.rollup_runs import RollupRuns
from confplane.domain.rollups import Column, ColumnType, Rollup
from confplane.rollups import folding, schemas
from confplane.rollups.exports.reading import FileFrames
from confplane.rollups.job import CarriedFold, Fold, Job
from confplane.rollups.jobs import integrity
from confplane.rollups.reading import reading_of
from confplane.rollups.runner import RunOptions
from confplane.rollups.sinks.postgres import RunStore
from tests.audit.rows import fetch
from tests.audit.rows import run as execute
from tests.bench.sample.files import write_frame
from tests.bench.sample.trail import Plan, Trail
from tests.rollups import samples
from tests.rollups.made import CLUSTER, at_once, rows_of, run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from confplane.rollups.reading import Reading
    from confplane.rollups.runner import FinishedRun
    from tests.support import servers

JOB: Final = integrity.JOB
DAY_US: Final = 86_400_000_000
_LATE_ROWS: Final = 10
"""The mean number of rows that are recorded very late, at most. Such a row between two runs makes the fold of the first
one useless: with some on each day no run would build on another."""


@dataclass
class History:
    """A made-up cluster whose trail is seen as of any moment; the znodes are those of the end."""

    spark: SparkSession
    directory: Path
    plan: Plan
    _revisions: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        trail = Trail(self.plan)
        rows = [dict(zip(schemas.CHANGES.names, row, strict=True)) for row in trail.rows()]
        chosen = random.Random(7)  # noqa: S311 - of no use to an attacker
        late = min(0.005, _LATE_ROWS / len(rows))
        kept = []
        for row in rows:
            draw = chosen.random()
            if draw < 0.02:
                continue  # a row that is missing
            if draw < 0.02 + late and row["outcome"] == "committed":
                row["recorded_at"] += 6 * DAY_US  # recorded very late
                row["concluded_at"] += 6 * DAY_US
            if row["facet"] == "client-configs" and draw > 0.5:
                row["path"] = row["path"].replace("/config/", "/confplane/client-configs/", 1)  # in the other tree
            kept.append(row)
        self._revisions = sorted((row["revision"], row["time"]) for row in kept if row["revision"] is not None)
        frames: dict[str, Iterable[Any]] = {
            "changes": [tuple(row.values()) for row in kept], "znodes": trail.znodes(), "states": trail.states()
        }  # fmt: skip
        for name, found in frames.items():
            write_frame(self.directory / name, samples.STORED[name], list(found))

    def reading(self, now: datetime, *, behind: int = 0) -> Reading:
        """The reading of a moment; of a ZooKeeper that went back by a number of changes."""
        until = int(now.timestamp() * 1e6)
        past = [revision for revision, time in self._revisions if time <= until]
        floor = past[-1 - behind]
        options = {
            "as_of": now, "begin": past[0], "floor": floor, "horizon": floor, "ceiling": floor + 2,
            "recorded_since": None, "watermark": floor, "newest_version": 0,
        }  # fmt: skip

        def read(name: str, _columns: Sequence[str], _low: object) -> DataFrame:
            frame = self.spark.read.schema(samples.STORED[name]).parquet(str(self.directory / name))
            return _as_of(frame, now) if name == "changes" else frame

        return reading_of(CLUSTER, options, 0, FileFrames(read))


def _as_of(changes: DataFrame, now: datetime) -> DataFrame:
    """The changes that were recorded by then; those without an outcome then are open."""
    concluded = F.col("concluded_at") <= F.lit(now)
    known = {name: F.when(concluded, F.col(name)) for name in ("revision", "time", "version", "concluded_at")}
    outcome = F.when(concluded, F.col("outcome")).otherwise("open")
    return changes.where(F.col("recorded_at") <= F.lit(now)).withColumns({**known, "outcome": outcome})


def newest(
    changes: DataFrame, carried: CarriedFold | None = None, settled: int | None = None
) -> tuple[DataFrame, DataFrame | None]:
    """The newest revision of each entity; the fold has that of the settled changes."""
    known = changes.where(F.col("revision").isNotNull())
    if carried is not None:
        known = known.unionByName(carried.rows)

    def folded(rows: DataFrame) -> DataFrame:
        return rows.groupBy("entity_id").agg(F.max("revision").alias("revision"))

    return folded(known), None if settled is None else folded(known.where(F.col("revision") <= settled))


_REVISIONS: Final = StructType([schemas.CHANGES["entity_id"], schemas.CHANGES["revision"]])
NEWEST: Final = Job(
    Rollup(
        "integrity",
        "",
        (Column("entity_id", ColumnType.STRING, ""), Column("revision", ColumnType.LONG, "", nullable=True)),
        key=("entity_id",),
        entity="entity_id",
    ),
    inputs={"changes": ("entity_id", "revision")},
    transform=newest,
    fold=Fold(_REVISIONS, 1),
)
"""A job under the name of integrity, for what happens to folds whatever is in them."""


def folds(database: servers.Database) -> set[Any]:
    """The runs whose rows or folds are in the tables."""
    return {found for (found,) in fetch(database.owner_dsn, "SELECT DISTINCT run_id FROM rollup_rows")}


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize(
    ("plan", "steps"),
    [
        (Plan(entities=100, events=700, seed=4), 3),
        pytest.param(
            Plan(entities=5_000, events=50_000, seed=5), 50, marks=[pytest.mark.long, pytest.mark.timeout(3600)]
        ),
    ],
    ids=["3 steps", "50 steps"],
)
def test_in_random_steps_the_rows_are_those_of_a_run_from_the_beginning(
    spark: SparkSession, migrated: servers.Database, tmp_path: Path, plan: Plan, steps: int
) -> None:
    history, dsn = History(spark, tmp_path, plan), SecretStr(migrated.service_dsn)
    chosen = random.Random(steps)  # noqa: S311 - of no use to an attacker
    days = sorted(chosen.uniform(20, 120) for _ in range(steps - 2))
    built_on = []
    # The last two are close together, and at the last one ZooKeeper went back.
    for number, day in enumerate([*days, 121, 121.01]):
        at = history.reading(plan.begin + timedelta(days=day), behind=plan.events // 3 if number == steps - 1 else 0)
        done = run(spark, at, dsn, JOB)
        expected = at_once(at, JOB)
        assert rows_of(migrated, done.run) == expected
        assert expected
        built_on.append(done.run.folded)
    spark.catalog.clearCache()
    assert built_on[0] is None
    assert built_on[-1] is None
    assert len([each for each in built_on if each]) >= steps // 3, built_on


@pytest.mark.usefixtures("few_rows")
def test_only_the_newest_gaps_of_an_entity_are_reported_and_passed_on(
    spark: SparkSession, migrated: servers.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(entities=12, events=900, seed=4)
    history, dsn = History(spark, tmp_path, plan), SecretStr(migrated.service_dsn)
    end = history.reading(plan.end)
    told: dict[tuple[str, str], list[int]] = {}
    for row in at_once(end, JOB):
        if row["kind"] == "gap":
            told.setdefault((row["tree"], row["entity_id"]), []).append(row["trail_revision"])
    assert max(map(len, told.values())) > 3
    monkeypatch.setattr(folding, "GAPS", 2)
    run(spark, history.reading(plan.begin + timedelta(days=90)), dsn, JOB)
    final = run(spark, end, dsn, JOB)
    assert final.run.folded is not None
    found = [
        ((row["tree"], row["entity_id"]), row["trail_revision"])
        for row in rows_of(migrated, final.run)
        if row["kind"] == "gap"
    ]
    assert sorted(found) == sorted((each, revision) for each in told for revision in sorted(told[each])[-2:])
    query = "SELECT max(jsonb_array_length(item -> 'gaps')) FROM rollup_rows WHERE run_id = %s"
    assert fetch(migrated.owner_dsn, query, fold_id(final.run.id)) == [(2,)]


def test_a_fold_goes_with_its_run_and_one_that_is_not_whole_is_of_no_run(
    spark: SparkSession, migrated: servers.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(entities=50, events=300, seed=4)
    history, dsn = History(spark, tmp_path, plan), SecretStr(migrated.service_dsn)
    runs = RollupRuns(migrated.service_dsn, CLUSTER)
    end = plan.end - timedelta(days=9)

    def at(number: int) -> Reading:
        return history.reading(end + timedelta(hours=number))

    # A run that ends before its fold is whole leaves neither, and the next one begins at the beginning.
    with monkeypatch.context() as broken:
        broken.setattr(RunStore, "hand_on", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("away")))
        with pytest.raises(RuntimeError, match="away"):
            run(spark, at(0), dsn, NEWEST)
    assert folds(migrated) == set()
    first = run(spark, at(1), dsn, NEWEST)
    assert first.run.folded is None

    # Two at once build on the same fold; the one of the newer moment is built on next.
    inner: list[FinishedRun] = []
    hand_on = RunStore.hand_on

    def meanwhile(*given: Any, **more: Any) -> None:
        hand_on(*given, **more)
        both.setattr(RunStore, "hand_on", hand_on)
        inner.append(run(spark, at(3), dsn, NEWEST))
        assert inner[0].is_current

    with monkeypatch.context() as both:
        both.setattr(RunStore, "hand_on", meanwhile)
        older = run(spark, at(2), dsn, NEWEST)
    (newer,) = inner
    assert older.run.previous == newer.run.previous == first.run.id
    assert first.run.position["fold"]["revision"] == older.run.folded == newer.run.folded
    assert rows_of(migrated, newer.run) == at_once(at(3), NEWEST)

    # Nothing is built on a fold of another version, or where changes are few.
    other = replace(NEWEST, fold=Fold(_REVISIONS, 2))
    assert run(spark, at(4), dsn, other).run.folded is None
    few = run(spark, at(5), dsn, NEWEST, RunOptions("User:olga@cli", folds=False))
    assert (few.run.folded, few.run.position["fold"]) == (None, None)
    assert fold_id(few.run.id) not in folds(migrated)

    # Folds go with their runs.
    execute(migrated.owner_dsn, "UPDATE rollup_runs SET finished_at = finished_at - interval '2 hours'")
    dropped = runs.purge(NEWEST.name)
    assert set(dropped) == {first.run.id, older.run.id}
    assert not {*map(fold_id, dropped), *dropped} & folds(migrated)
    assert folds(migrated)
