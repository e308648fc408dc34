"""Results of rollups, and the runs that made them. Implemented by ``confplane.audit``.

The runner of a job publishes rows under a run's id. All rows of a run appear at once, when the run is complete. Of a
job's complete runs the run with the latest ``as_of`` is **current**, whichever ended last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from confplane.domain.enums import StrEnum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from confplane.domain.access.ranges import NameRanges


KEEP_RUNS: Final = 3
"""The number of complete runs of a job that are kept, the current run among them."""

KEEP_S: Final = 3_600
"""Seconds after its end for which every run is kept, so that a reader can page to its end."""


class RunState(StrEnum):
    """The state of a run."""

    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    LOST = "lost"
    """The run's process is gone, and its rows are not cleaned up yet; the job's next run does that. Never stored."""


@dataclass(frozen=True, slots=True)
class RollupRun:
    """One run of one job."""

    id: UUID
    cluster: str
    job: str
    state: RunState
    as_of: datetime
    """The moment that the rows describe."""
    position: Mapping[str, Any]
    """The run's position as JSON: ``floor``, ``horizon`` and ``watermark`` are revisions (rollups/job.py); the rest
    is for the next run, which continues from there."""
    previous: UUID | None
    """The run that this run continues; None for a run from the beginning."""
    principal: str
    started_at: datetime
    """The time of the start by Postgres's clock, as is ``finished_at``."""
    finished_at: datetime | None
    rows: int | None
    error: str | None
    """The reason of a failed run."""

    @property
    def folded(self) -> str | None:
        """The revision up to which the run took the fold of the run before; None if it read all that it needed."""
        return self.position.get("folded")


@dataclass(frozen=True, slots=True)
class JobRuns:
    """The runs of a job that readers are interested in."""

    current: RollupRun | None
    latest: RollupRun | None
    """The last attempt, of any end."""


Place = tuple[int, int]
"""The place of a row in its run: the part, and the number in the part. Places are in the order of the job's key. In
another order, the place is 0 and the number of rows before the row."""


@dataclass(frozen=True, slots=True)
class RowCondition:
    """A condition on a member of a row, other than equality.

    Attributes:
        member: The member. Members that are numbers are compared as such, all others as texts.
        operator: ``<``, ``<=``, ``>``, ``>=``, ``IS NULL`` or ``IS NOT NULL``. A comparison with null is false.
        value: The value; None if the operator takes none.
    """

    member: str
    operator: str
    value: str | float | None = None


@dataclass(frozen=True, slots=True)
class RowOrder:
    """A member by which rows are ordered, those without a value last."""

    member: str
    is_number: bool
    descending: bool


@dataclass(frozen=True, slots=True)
class RowQuery:
    """A query for rows of a run.

    Attributes:
        run_id: The run.
        entity_id: Only the rows of this entity; uses an index.
        members: Only rows with these members, equal as JSON; scans the rows.
        page_size: Most rows.
        after: The place after which the page begins; None for the beginning.
        within: Only the rows of entities in these ranges; scans the rows. None for all rows.
        conditions: Only rows that meet all of these; scans the rows.
        order: The order, in which rows that are equal are in that of their places; sorts all matching rows for each
            page. Empty for the order of places.
    """

    run_id: UUID
    page_size: int
    entity_id: str | None = None
    members: Mapping[str, Any] | None = None
    after: Place | None = None
    within: NameRanges | None = None
    conditions: Sequence[RowCondition] = ()
    order: Sequence[RowOrder] = ()


class RollupResults(Protocol):
    """Reads published results. Every call raises ``UnavailableError`` if Postgres is unavailable."""

    async def runs(self, cluster: str) -> dict[str, JobRuns]:
        """Return the runs of each job that ever ran on a cluster, by the job's name."""

    async def run(self, cluster: str, job: str, run_id: UUID | None = None) -> RollupRun | None:
        """Return a complete run of a job, by default the current one; None if there is none."""

    async def count(self, run_id: UUID, members: Mapping[str, Any]) -> int:
        """Return the number of a run's rows that have these members, equal as JSON; scans the rows."""

    async def rows(self, query: RowQuery) -> tuple[list[dict[str, Any]], Place | None] | None:
        """Return a page of a run's rows, and the place of the next page, or None at the end.

        A page may be short, and even empty, without being the last: a search scans a limited number of rows at a time.
        The whole result is None if the run no longer exists. The members of a row are in no order.
        """
