"""The reconciler: settles changes that no other process settles, and sweeps markers that no other process drops.

Each process runs one per cluster, and the leader's works. Every few seconds it queries Postgres for changes without an
outcome, and settles those whose writer is gone or that are older than a request can be. Markers are swept after their
writers have gone, once the outcome is durable and a minute old. An abort marker stays while its change's writer is
there, because it blocks a transaction that may still arrive.

Each round also reads the run of Postgres. After a crash, a restore or a promotion Postgres may lack outcomes that the
run before it showed. Then all markers are compared with the trail, and all changes are searched again: each change with
an intent and no outcome is settled by its marker.

No step needs a single process: markers are created once, and the first outcome is final.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import CorruptZnodeError, UnavailableError
from confplane.domain.texts import first_of
from confplane.services.background import BackgroundService, BackgroundTask, ErrorLog
from confplane.services.changes.settle import settle
from confplane.services.metrics import Sample, of_cluster
from confplane.services.operator_warnings import OperatorWarning
from confplane.services.ticks import Ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from uuid import UUID

    from confplane.services.ports.open_changes import MarkedChange, OpenChange, OpenChanges, ServerTimestamp
    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import AuditLog, Outcome

logger = logging.getLogger(__name__)

INTERVAL_S = 2.0
SWEEP_AGE_S = 60.0
"""The least age of an outcome in seconds when its marker is dropped."""
SWEEP_INTERVAL_S = 600.0
"""Seconds between two regular sweeps."""
STRAYS_INTERVAL_S = 10.0
"""Seconds between two checks of the stray markers: the recorder recovers changes that Postgres lost."""
_SLACK_S: Final = 15.0
"""Seconds after the end of a writer: its own process may have dropped its markers until then, a minute late at most."""
_CALL_S: Final = 10.0
_CONCURRENCY: Final = 64
PIECE: Final = 2_000
"""Markers of one query of the trail."""


class Reconciler(BackgroundService):
    """Reconciles one cluster.

    Args:
        store: The cluster, started.
        audit: The trail, which takes the outcomes.
        changes: The trail, queried for open changes.
        deadline_ms: The deadline of a request, in milliseconds. A change open for twice as long belongs to no request
            any more.
        clock: A monotonic clock, for the times of sweeps.
        ticks: The times of the rounds, which the reconcilers of a process share.
    """

    def __init__(
        self,
        store: ClusterStore,
        audit: AuditLog,
        changes: OpenChanges,
        *,
        deadline_ms: int,
        clock: Callable[[], float] = time.monotonic,
        ticks: Ticks | None = None,
    ) -> None:
        self.clock = clock
        self._ticks = ticks or Ticks()
        self._store = store
        self._audit = audit
        self._changes = changes
        self._old_s = 2 * deadline_ms / 1000
        self._background = BackgroundTask(self._run, name=f"reconciler-{self._store.name}")
        self._errors = ErrorLog(logger, store.name, waits="reconciling has to wait", fails="reconciling failed")
        self._warned: set[UUID] = set()
        self._begin_term()

    def _begin_term(self) -> None:
        self._leading = False
        self._found_at = time.monotonic()
        self._since: ServerTimestamp | None = None
        self._open: dict[UUID, OpenChange] = {}
        self._decided: set[UUID] = set()
        self._writers: frozenset[str] = frozenset()
        self._search_all()
        self._strays: tuple[str, ...] = ()
        self._strays_at = 0.0

    def _search_all(self) -> None:
        """Start a scan of all changes, and a comparison of all markers with the trail."""
        self._walked = False
        self._walk_from: UUID | None = None
        self._sweep_at = 0.0

    def warnings(self) -> list[OperatorWarning]:
        """Return warnings for operators; only the leader has any."""
        found = []
        name = self._store.name
        overdue = [change for change in self._open.values() if change.age_s > 2 * self._old_s + _CALL_S]
        if overdue:
            waiting = (
                f"{len(overdue)} changes have had no outcome for up to {max(c.age_s for c in overdue):.0f} s and could"
                f" not be settled yet: {first_of(str(change.change_id) for change in overdue)}"
            )
            found.append(OperatorWarning(waiting).about(name))
        if self._strays:
            left = "markers of no change that the audit trail knows are left where they are"
            why = "Was Postgres restored from a backup?"
            found.append(
                OperatorWarning(
                    f"{left}: {len(self._strays)} of them. {why}", f"{left}: {first_of(self._strays)}. {why}"
                ).about(name)
            )
        return found

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics; only the leader has any."""
        return of_cluster(self._store.name, self._metrics())

    def _metrics(self) -> Iterator[Sample]:
        if self._leading:
            waited = time.monotonic() - self._found_at
            oldest = max((change.age_s + waited for change in self._open.values()), default=0.0)
            yield Sample("open_changes", len(self._open))
            yield Sample("oldest_open_change_seconds", oldest)
            yield Sample("stray_markers", len(self._strays))

    async def _run(self) -> None:
        while True:
            await self._ticks.wait(INTERVAL_S)
            with self._errors.of_round():
                await self.round()

    async def round(self) -> bool:
        """Lead if possible, and then settle and sweep due changes and markers; return whether this process leads.

        Raises:
            UnavailableError: A store is unavailable. The open changes found stay known.
        """
        # Before ZooKeeper is asked, whose answers come at different times: so all clusters are in one statement.
        asked = self._leading and self._store.leadership.held
        if asked:
            try:
                await self._find()
            except Exception:
                await self._seek()  # the term continues without Postgres
                raise
        if not await self._seek():
            return False
        if not asked:
            await self._find()
        # Listed after the intents were read: a writer named in them that does not exist will never commit again.
        writers = await self._store.markers.writers(_soon())
        gone, self._writers = self._writers - writers, writers
        if gone:
            self._sweep_soon(SWEEP_AGE_S + _SLACK_S)
        await self._settle(writers)
        if self.clock() >= self._sweep_at:
            await self._sweep(writers)
        elif self._strays and self.clock() >= self._strays_at:
            await self._check_strays()
        return True

    async def _seek(self) -> bool:
        """Lead if possible, and return whether this process leads.

        Raises:
            UnavailableError: ZooKeeper is unavailable.
        """
        leads = await self._store.leadership.seek(_soon())
        if leads != self._leading:
            self._begin_term()
            self._leading = leads
            logger.info("Cluster %s: %s process leads now", self._store.name, "this" if leads else "another")
        return leads

    # -- settling

    async def _find(self) -> None:
        """Update the known open changes. A settled change stays among them until Postgres has the outcome."""
        self._found_at = time.monotonic()
        last = self._since
        found, self._since = await self._changes.new(self._store.name, last, tuple(self._open.keys() | self._decided))
        if last is not None and last.server != self._since.server:
            logger.warning(
                "Cluster %s: another run of Postgres answers; changes whose outcomes it lacks are settled again",
                self._store.name,
            )
            self._search_all()
        if not self._walked:
            older, self._walk_from = await self._changes.old(self._store.name, self._walk_from)
            self._walked = self._walk_from is None
            found += older
        self._open = {change.change_id: change for change in found}
        self._warned &= self._open.keys()
        self._decided &= self._open.keys()

    async def _settle(self, writers: frozenset[str]) -> None:
        due = [
            change
            for change in self._open.values()
            if change.age_s > self._old_s or _dead(change, writers) or change.change_id in self._decided
        ]
        if not due:
            return
        slots = asyncio.Semaphore(_CONCURRENCY)

        async def one(change: OpenChange) -> Outcome | None:
            async with slots:
                return await self._settle_one(change) if self._store.leadership.held else None

        outcomes = [outcome for outcome in await asyncio.gather(*map(one, due)) if outcome is not None]
        if outcomes:
            committed = sum(outcome.committed for outcome in outcomes)
            logger.info(
                "Cluster %s: settled %d changes that had no outcome: %d committed, %d aborted",
                *(self._store.name, len(outcomes), committed, len(outcomes) - committed),
            )
            self._sweep_soon(SWEEP_AGE_S + _SLACK_S)

    async def _settle_one(self, change: OpenChange) -> Outcome | None:
        try:
            return await settle(
                self._audit, self._store, change.change_id, change.attempt, open_at=self._found_at, deadline=_soon()
            )
        except (UnavailableError, CorruptZnodeError) as error:
            if change.change_id not in self._warned:
                logger.warning("Change %s could not be settled: %s", change.change_id, error.detail)
            self._warned.add(change.change_id)
            return None

    # -- sweeping

    def _sweep_soon(self, seconds: float) -> None:
        self._sweep_at = min(self._sweep_at, self.clock() + seconds)

    async def _sweep(self, writers: frozenset[str]) -> None:
        """Drop the markers that have done their work, above all those of dead writers: living writers drop their own.

        A marker of a change that has an intent and no outcome has decided the change. The process that made the marker
        is about to write the outcome; where Postgres has none in the next round either, the outcome was lost.

        Raises:
            UnavailableError: A store is unavailable. The next round sweeps again.
        """
        change_ids, strays = await self._store.markers.found(_soon())
        dropped, pause = 0, SWEEP_INTERVAL_S
        for start in range(0, len(change_ids), PIECE):
            if not self._store.leadership.held:
                return
            marked = await self._changes.marked(change_ids[start : start + PIECE])
            strays += [str(change.change_id) for change in marked if _stray(change)]
            self._decided.update(change.change_id for change in marked if change.committed is None and change.writers)
            going = [change.change_id for change in marked if _done(change, writers)]
            if going:
                await self._store.markers.drop(going)
                dropped += len(going)
            if any(
                change.age_s is not None and _dead(change, writers) and not _done(change, writers) for change in marked
            ):
                pause = SWEEP_AGE_S
        self._sweep_at = self.clock() + pause
        self._note_strays(strays)
        if dropped:
            logger.info("Cluster %s: swept %d markers", self._store.name, dropped)

    async def _check_strays(self) -> None:
        """Forget the stray markers that the trail knows by now, and those that are gone.

        Raises:
            UnavailableError: A store is unavailable.
        """
        change_ids, others = await self._store.markers.found(_soon())
        strays = set(self._strays)
        left = [change_id for change_id in change_ids if str(change_id) in strays]
        for start in range(0, len(left), PIECE):
            marked = await self._changes.marked(left[start : start + PIECE])
            others += [str(change.change_id) for change in marked if _stray(change)]
        self._note_strays(others)

    def _note_strays(self, strays: Iterable[str]) -> None:
        self._strays = tuple(strays)
        self._strays_at = self.clock() + STRAYS_INTERVAL_S


def lasts(change: MarkedChange) -> bool:
    """Return True if the outcome is at least a minute old: no process can still take the change as open."""
    return change.age_s is not None and change.age_s >= SWEEP_AGE_S


def _stray(change: MarkedChange) -> bool:
    """Return True if the trail does not know a change."""
    return change.committed is None and not change.writers


def _done(change: MarkedChange, writers: frozenset[str]) -> bool:
    """Return True if a marker has done its work."""
    return lasts(change) and (bool(change.committed) or _dead(change, writers))


def _dead(change: OpenChange | MarkedChange, writers: frozenset[str]) -> bool:
    """Return True if a change can't commit any more: its writer is not among the existing ones."""
    return not change.writers & writers


def _soon() -> float:
    return time.monotonic() + _CALL_S
