"""The watch over the rollups: their last complete runs and failures as metrics, read from Postgres once a minute.

Runs are made by other processes, on a schedule of their own: a schedule that stopped goes unnoticed unless the age of
the results is measured. Each process reads the few rows of runs for itself, so that a scrape reads none.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.services.background import BackgroundService, BackgroundTask, poll_repeatedly
from confplane.services.metrics import Sample
from confplane.services.ports.rollups import RunState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from uuid import UUID

    from confplane.services.ports.rollups import JobRuns, RollupResults, RollupRun

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 60.0
_INTEGRITY: Final = "integrity"
_ENDED_BADLY: Final = frozenset({RunState.FAILED, RunState.LOST})


class _Mismatches(NamedTuple):
    """The mismatches that a run of integrity found."""

    run_id: UUID
    lasting: int
    """The number of mismatches that will not go away by themselves."""
    pending: int


class RollupWatch(BackgroundService):
    """Reads the runs of all clusters' rollups in the background.

    Args:
        clusters: The clusters' names.
        results: The results.
    """

    def __init__(self, clusters: Sequence[str], results: RollupResults) -> None:
        self._clusters = clusters
        self._results = results
        self._runs: dict[str, Mapping[str, JobRuns]] = {}
        self._mismatches: dict[str, _Mismatches] = {}
        self._background = BackgroundTask(self._run, name="rollup-watch")

    async def _run(self) -> None:
        await poll_repeatedly(self.poll, INTERVAL_S, logger, "The runs of rollups could not be read")

    async def poll(self) -> None:
        """Read the runs.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        for cluster in self._clusters:
            found = await self._results.runs(cluster)
            current = found[_INTEGRITY].current if _INTEGRITY in found else None
            if current is not None:
                await self._count(cluster, current)
            self._runs[cluster] = found

    async def _count(self, cluster: str, run: RollupRun) -> None:
        known = self._mismatches.get(cluster)
        if known is None or known.run_id != run.id:
            # Rows of a run never change, so they are counted once.
            pending = await self._results.count(run.id, {"pending": True})
            self._mismatches[cluster] = _Mismatches(run.id, (run.rows or 0) - pending, pending)

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics of the runs as last seen; none of a rollup that never ran."""
        for cluster, jobs in self._runs.items():
            for job, runs in jobs.items():
                labels = (cluster, job)
                if runs.latest is not None:
                    yield Sample("rollup_failed", runs.latest.state in _ENDED_BADLY, labels)
                run = runs.current
                if run is not None and run.finished_at is not None:
                    yield Sample("rollup_as_of_timestamp_seconds", run.as_of.timestamp(), labels)
                    yield Sample("rollup_finished_timestamp_seconds", run.finished_at.timestamp(), labels)
                    yield Sample("rollup_duration_seconds", (run.finished_at - run.started_at).total_seconds(), labels)
                    yield Sample("rollup_rows", run.rows or 0, labels)
        for cluster, found in self._mismatches.items():
            yield Sample("rollup_mismatches", found.lasting, (cluster,))
            yield Sample("rollup_mismatches_pending", found.pending, (cluster,))
