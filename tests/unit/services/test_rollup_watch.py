"""The watch over the rollups: what it measures of the runs that there are, and how little it reads for that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from confplane.domain.errors import UnavailableError
from confplane.services.ports.rollups import JobRuns, RollupRun, RunState
from confplane.services.upkeep.rollup_watch import RollupWatch
from confplane.telemetry import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.services.ports.rollups import Place, RowQuery

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def run(number: int, job: str, state: RunState = RunState.COMPLETE, rows: int | None = 5) -> RollupRun:
    ended = AT + timedelta(seconds=30)
    return RollupRun(
        UUID(int=number), "payments", job, state, AT - timedelta(seconds=number), {}, None, "User:cron", AT,
        None if state is RunState.RUNNING else ended, rows if state is RunState.COMPLETE else None, None,
    )  # fmt: skip


class Results:
    """Runs by cluster and job, and the rows that are pending by run; a set of what is away."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, JobRuns]] = {"payments": {}, "other": {}}
        self.pending: dict[UUID, int] = {}
        self.counted: list[UUID] = []
        self.away = False

    async def runs(self, cluster: str) -> dict[str, JobRuns]:
        if self.away:
            raise UnavailableError("away")
        return self.found[cluster]

    async def count(self, run_id: UUID, members: Mapping[str, Any]) -> int:
        assert members == {"pending": True}
        self.counted.append(run_id)
        return self.pending.get(run_id, 0)

    async def run(self, cluster: str, job: str, run_id: UUID | None = None) -> RollupRun | None:
        raise NotImplementedError

    async def rows(self, query: RowQuery) -> tuple[list[dict[str, Any]], Place | None] | None:
        raise NotImplementedError


def measured(watch: RollupWatch) -> dict[tuple[str, ...], Any]:
    samples = list(watch.metrics())
    assert all(len(sample.labels) == len(METRICS[sample.name].labels) for sample in samples)
    return {(sample.name, *sample.labels): sample.value for sample in samples}


async def test_the_current_run_of_each_rollup_and_the_end_of_the_last_one() -> None:
    results = Results()
    watch = RollupWatch(["payments", "other"], results)
    assert measured(watch) == {}
    await watch.poll()
    assert measured(watch) == {}
    drift = run(3, "drift")
    results.found["payments"] = {
        "drift": JobRuns(drift, drift),
        "impact": JobRuns(run(4, "impact", rows=0), run(5, "impact", RunState.FAILED)),
        "quotas": JobRuns(None, run(6, "quotas", RunState.LOST)),
        "usage": JobRuns(None, run(7, "usage", RunState.RUNNING)),
    }
    await watch.poll()
    found = measured(watch)
    assert found.pop(("rollup_as_of_timestamp_seconds", "payments", "drift")) == AT.timestamp() - 3
    assert found.pop(("rollup_as_of_timestamp_seconds", "payments", "impact")) == AT.timestamp() - 4
    assert found == {
        **{("rollup_finished_timestamp_seconds", "payments", job): AT.timestamp() + 30 for job in ("drift", "impact")},
        **{("rollup_duration_seconds", "payments", job): 30 for job in ("drift", "impact")},
        ("rollup_rows", "payments", "drift"): 5,
        ("rollup_rows", "payments", "impact"): 0,
        **{("rollup_failed", "payments", job): job in {"impact", "quotas"} for job in results.found["payments"]},
    }
    assert results.counted == []


async def test_mismatches_are_counted_once_a_run() -> None:
    results = Results()
    watch = RollupWatch(["payments"], results)
    first, second = run(1, "integrity", rows=7), run(2, "integrity", rows=0)
    results.pending[first.id] = 3
    results.found["payments"] = {"integrity": JobRuns(first, first)}
    for _ in range(2):
        await watch.poll()
    found = measured(watch)
    assert (found["rollup_mismatches", "payments"], found["rollup_mismatches_pending", "payments"]) == (4, 3)
    assert results.counted == [first.id]
    results.found["payments"] = {"integrity": JobRuns(second, second)}
    results.away = True
    with pytest.raises(UnavailableError):
        await watch.poll()
    assert measured(watch) == found
    results.away = False
    await watch.poll()
    found = measured(watch)
    assert (found["rollup_mismatches", "payments"], found["rollup_mismatches_pending", "payments"]) == (0, 0)
    assert results.counted == [first.id, second.id]
