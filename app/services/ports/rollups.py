"""Results of rollups, and the runs that made them. Implemented by ``app.audit``.

Who runs a job publishes its rows under a run's id. They are seen once the run is complete, all at once. Of a job's
complete runs the one with the latest ``as_of`` is **current**, whichever ended last.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID


KEEP_RUNS: Final = 3
"""Complete runs of a job that are kept, the current one among them."""

KEEP_S: Final = 3_600
"""Seconds since its end for which every run is kept, so that whoever pages through one comes to its end."""


class RunState(StrEnum):
    """How far a run is."""

    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    LOST = "lost"
    """Its process is gone, and nobody has cleaned up behind it yet; the next run of the job does. Never stored."""


@dataclass(frozen=True, slots=True)
class RollupRun:
    """One run of one job."""

    id: UUID
    cluster: str
    job: str
    state: RunState
    as_of: datetime
    """The moment that its rows tell of."""
    position: Mapping[str, Any]
    """What was read, as JSON: ``floor``, ``horizon`` and ``watermark`` are revisions (app/rollups/job.py); the rest is
    for the next run, which goes on from there."""
    previous: UUID | None
    """The run that it was built on; None where it began at the beginning."""
    principal: str
    started_at: datetime
    """By Postgres's clock, as ``finished_at``."""
    finished_at: datetime | None
    rows: int | None
    error: str | None
    """Of a failed one: why."""


@dataclass(frozen=True, slots=True)
class JobRuns:
    """The runs of a job that its readers want to know of."""

    current: RollupRun | None
    latest: RollupRun | None
    """The last attempt, however it ended."""


Place = tuple[int, int]
"""Of a row in its run: the part, and its number in that. The order of places is that of the job's key."""


@dataclass(frozen=True, slots=True)
class RowQuery:
    """Which rows of a run are asked for.

    Attributes:
        run_id: The run.
        entity_id: Only the rows of this entity: by an index.
        members: Only rows with these members, equal as JSON. Found by looking through the rows.
        page_size: Most rows.
        after: The place behind which to go on; None for the beginning.
    """

    run_id: UUID
    page_size: int
    entity_id: str | None = None
    members: Mapping[str, Any] | None = None
    after: Place | None = None


class RollupResults(Protocol):
    """Reads what was published."""

    async def runs(self, cluster: str) -> dict[str, JobRuns]:
        """Return the runs of each job that was ever run on a cluster, by the job's name.

        Raises:
            UnavailableError: Postgres is away.
        """
        ...

    async def run(self, cluster: str, job: str, run_id: UUID | None = None) -> RollupRun | None:
        """Return a complete run of a job, the current one unless another is named; None where there is none.

        Raises:
            UnavailableError: Postgres is away.
        """
        ...

    async def rows(self, query: RowQuery) -> tuple[list[dict[str, Any]], Place | None] | None:
        """Return a page of a run's rows, and the place to go on from, or None at the end.

        A page may be short, and even empty, and yet not the last: a search looks through so many rows at a time.
        None in place of all where the run is not there any more.

        Raises:
            UnavailableError: Postgres is away.
        """
        ...
