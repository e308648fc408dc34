"""Points in time: from a revision or a time to a revision that the trail covers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import BeforeHistoryError, InvalidRequestError, UnavailableError
from confplane.domain.texts import rfc3339
from confplane.services.ports.history import Znode
from confplane.services.ports.journal import Cursor, JournalPage

if TYPE_CHECKING:
    from confplane.domain.changes import Node
    from confplane.services.ports.history import TrailCoverage, TrailHistory
    from confplane.services.ports.store import ClusterStore

PATIENCE_S: Final = 3.0
"""Seconds to wait for the recorder, which lags by a second or two."""
_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class PointInTime:
    """A point in the history of a cluster."""

    revision: int
    """The revision that was current at this point in time."""
    since: int
    """The first revision that the trail knows."""
    recorded: int
    """The revision up to which external writes are recorded."""
    time_ms: int | None = None
    """The requested time; None if a revision was requested."""

    def precedes(self, node: Node) -> bool:
        """Return True if a znode was written after this point in time."""
        return node.mzxid > self.revision or (self.time_ms is not None and node.mtime_ms > self.time_ms)


class PointInTimeResolver:
    """Resolves a revision or a time to a point in time.

    Args:
        trail: The trail.
        patience_s: Maximum number of seconds that a time waits for external writes to be recorded.
    """

    def __init__(self, trail: TrailHistory, *, patience_s: float = PATIENCE_S) -> None:
        self._trail = trail
        self._patience_s = patience_s

    async def find(self, store: ClusterStore, at: int | datetime, deadline: float, *, name: str = "at") -> PointInTime:
        """Return the point in time of a revision or of a time; the mirror has reached it.

        A time means the last revision before the first revision that is later than the time. A time of the future
        means now.

        Args:
            store: The cluster.
            at: The revision or the time.
            deadline: The deadline on the clock of ``time.monotonic()``.
            name: The name of the parameter, for errors.

        Raises:
            BeforeHistoryError: The trail does not cover the point in time; the error has the first one that it covers.
            InvalidRequestError: The revision is above the cluster's newest.
            UnavailableError: A store is away; or the moment is a time so near that external writes are not recorded
                yet.
        """
        coverage = await self._coverage(store, name)
        time_ms = None
        if isinstance(at, datetime):
            time_ms = int(at.timestamp() * 1000)
            if at < coverage.since_at:
                raise _before(store, coverage, name)
            revision, coverage = await self._of_time(store, at, coverage, deadline)
        else:
            revision = at
            if revision > _reached(store) and revision > (newest := await store.catch_up(deadline)):
                raise InvalidRequestError(
                    f"Revision {revision} does not exist yet; the newest revision of cluster {store.name} is {newest}.",
                    pointer=name,
                )
        if revision < coverage.since:
            raise _before(store, coverage, name)
        return PointInTime(revision, coverage.since, coverage.recorded, time_ms)

    async def _coverage(self, store: ClusterStore, name: str) -> TrailCoverage:
        coverage = await self._trail.coverage(store.name)
        if coverage is None:
            raise BeforeHistoryError(
                f"The trail of cluster {store.name} has no external changes yet, so no past content is known. It begins"
                " with the first complete poll of the cluster, and needs the setting record_external_changes.",
                pointer=name,
            )
        return coverage

    async def _of_time(
        self, store: ClusterStore, at: datetime, coverage: TrailCoverage, deadline: float
    ) -> tuple[int, TrailCoverage]:
        # Everything that was written up to the time is in the mirror, and so in its journal, by then.
        newest = await store.catch_up(deadline)
        patience = min(deadline, time.monotonic() + self._patience_s)
        while True:
            first = await self._trail.first_after(store.name, at)
            revision = newest if first is None else first - 1
            if revision <= coverage.recorded or unrecorded(store, coverage.recorded, revision) == set():
                return revision, coverage
            if time.monotonic() >= patience:
                raise unrecorded_error(store, coverage.recorded, "or ask for a revision")
            await asyncio.sleep(_PAUSE_S)
            coverage = await self._trail.coverage(store.name) or coverage


def unrecorded(store: ClusterStore, recorded: int, revision: int | None = None) -> set[Znode] | None:
    """Return the znodes that were written after a revision, by the mirror's journal.

    Args:
        store: The cluster.
        recorded: The revision.
        revision: Only writes up to it; None: all.

    Returns:
        The znodes; None if the journal does not go back that far.
    """
    begin = store.journal.read(None)
    if begin is None:
        return None
    page = store.journal.read(Cursor(begin.cursor.load, recorded))
    if not isinstance(page, JournalPage):
        return set() if begin.cursor.revision <= recorded else None
    return {
        Znode(entry.tree, entry.entity_id) for entry in page.entries if revision is None or entry.revision <= revision
    }


def unrecorded_error(store: ClusterStore, recorded: int, remedy: str = "") -> UnavailableError:
    """Return the error for a read that needs the external writes after a revision.

    Args:
        store: The cluster.
        recorded: The revision up to which external writes are recorded.
        remedy: What the caller may do apart from sending the request again.
    """
    return UnavailableError(
        f"External writes to cluster {store.name} are recorded up to revision {recorded} only. Send the request again"
        + (f", {remedy}" if remedy else ""),
        retry_after_s=1,
    )


def _reached(store: ClusterStore) -> int:
    freshness = store.freshness()
    return 0 if freshness is None else freshness[0]


def _before(store: ClusterStore, coverage: TrailCoverage, name: str) -> BeforeHistoryError:
    since = rfc3339(coverage.since_at)
    return BeforeHistoryError(
        f"The trail of cluster {store.name} is complete from revision {coverage.since} on ({since}); use a later time.",
        since=coverage.since,
        since_time=since,
        pointer=name,
    )
