"""The scheduler of change requests, in the leader of a cluster.

Scheduled requests are applied at their times, and those whose time has passed expire; neither happens in a restored
Postgres whose state nobody has confirmed. An application whose process is gone is completed or given back; a change
that it commits after that is looked for once a minute, and so is the end of a revert that the reverted request does not
have, and a change past the rules whose process ended before it wrote anything. A delayed application is attempted
again, at growing intervals up to a minute, until the request expires.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from confplane.domain.change_requests import RequestAction, RequestKind, RequestState
from confplane.domain.errors import ConcurrentChangeError
from confplane.services.background import BackgroundService, BackgroundTask, ErrorLog, RetriedItems
from confplane.services.changes.callers import Caller
from confplane.services.metrics import Sample, of_cluster
from confplane.services.ports.change_requests import RequestStatus
from confplane.services.ticks import Ticks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from uuid import UUID

    from confplane.services.clusters import Cluster
    from confplane.services.ports.change_requests import ChangeRequest, ChangeRequestStore
    from confplane.services.requests.applier import RequestApplier
    from confplane.services.requests.transitions import RequestTransitions

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0
_SOURCE: Final = "change-request"
_MOST: Final = 100
"""Requests of one round."""
_APPLY_S: Final = 20.0
_LATE: Final = "The change was committed after the request was cancelled"
_UNWRITTEN: Final = "The process ended before it wrote anything past the rules"
_LATE_EVERY: Final = timedelta(minutes=1)


class RequestScheduler(BackgroundService):
    """Attends to the due requests of one cluster.

    Args:
        cluster: The cluster.
        store: The requests.
        transitions: Writes requests.
        applier: Applies requests.
        check_confirmed: Refuses to go on in a Postgres that was restored, until its tokens are confirmed.
        now: The clock.
        ticks: The times of the rounds, which the schedulers of a process share.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: ChangeRequestStore,
        transitions: RequestTransitions,
        applier: RequestApplier,
        check_confirmed: Callable[[], Awaitable[None]],
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        ticks: Ticks | None = None,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._transitions = transitions
        self._applier = applier
        self._check_confirmed = check_confirmed
        self._now = now
        self._ticks = ticks or Ticks()
        self._background = BackgroundTask(self._run, name=f"request-scheduler-{cluster.name}")
        self._errors = ErrorLog(
            logger, cluster.name, waits="change requests wait", fails="attending to change requests failed"
        )
        self._applied = 0
        self._end_term()

    def _end_term(self) -> None:
        self._leading = False
        self._retries = RetriedItems(logger, self._now, "Change request %s failed and is attempted again")
        self._late_at = datetime.min.replace(tzinfo=UTC)
        self._status = RequestStatus()

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics; only the leader counts open requests."""
        return of_cluster(self._cluster.name, self._metrics())

    def _metrics(self) -> Iterator[Sample]:
        yield Sample("change_requests_applied", self._applied)
        yield Sample("change_requests_unknown", self._store.unknown[self._cluster.name])
        if self._leading:
            for state in (RequestState.OPEN, RequestState.APPROVED, RequestState.SCHEDULED, RequestState.APPLYING):
                yield Sample("change_requests", self._status.states.get(state, 0), (state.value,))
            now = self._now()
            for kind in RequestKind:
                age = now - self._status.oldest.get(kind, now)
                yield Sample("change_requests_oldest_open_seconds", max(0.0, age.total_seconds()), (kind.value,))

    async def _run(self) -> None:
        while True:
            await self._ticks.wait(INTERVAL_S)
            with self._errors.of_round():
                await self.round()

    async def round(self) -> None:
        """Attend to the due requests, if this process leads.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        if not self._cluster.store.leadership.held:
            self._end_term()
            return
        self._leading = True
        now = self._now()
        self._status = await self._store.status(self._cluster.name, now, _MOST + len(self._retries.failed))
        for request_id in self._retries.ready(self._status.due):
            if self._cluster.store.leadership.held:
                await self._attend(request_id)
        if self._late_at <= now:
            await self._finish_late()
            await self._cancel_unwritten(now)
            self._late_at = now + _LATE_EVERY

    async def _finish_late(self) -> None:
        for request_id in await self._store.late(self._cluster.name, _MOST):
            request = await self._store.find(self._cluster.name, request_id)
            if request is not None:
                if request.kind is RequestKind.BREAK_GLASS:
                    await self._transitions.move(request, RequestAction.REOPEN, RequestState.OPEN, text=_LATE)
                else:
                    await self._applier.finish_late(request)
                logger.warning("Cluster %s: the change request %s was applied late", self._cluster.name, request_id)
        for request_id, reverted_id in await self._store.ended_reverts(self._cluster.name, _MOST):
            request = await self._store.find(self._cluster.name, request_id)
            if request is not None:
                with suppress(ConcurrentChangeError):
                    await self._transitions.end_revert(request, reverted_id)

    async def _cancel_unwritten(self, now: datetime) -> None:
        """Cancel the requests of changes past the rules whose process ended before it wrote anything."""
        if not await self._store.unwritten(self._cluster.name, now, _MOST):
            return
        writers = await self._cluster.store.markers.writers(time.monotonic() + _APPLY_S)
        # Read again: without its writer node, a process can't commit what it had begun since.
        for request_id in await self._store.unwritten(self._cluster.name, now, _MOST):
            request = await self._store.find(self._cluster.name, request_id)
            if request is None or request.application is None or request.application.writer in writers:
                continue
            with suppress(ConcurrentChangeError):
                await self._transitions.move(request, RequestAction.CANCEL, RequestState.CANCELLED, text=_UNWRITTEN)

    async def _attend(self, request_id: UUID) -> None:
        with self._retries.attempt(request_id):
            request = await self._store.find(self._cluster.name, request_id)
            if request is not None:
                await self._advance(request)

    async def _advance(self, request: ChangeRequest) -> None:
        principal = request.authors[-1].identity.principal
        deadline = time.monotonic() + _APPLY_S
        caller = Caller.operator(principal, _SOURCE, f"request-{request.id}", deadline)
        if request.state is RequestState.APPLYING:
            await self._applier.recover(self._cluster, request, caller)
        elif request.expires_at is not None and request.expires_at <= self._now():
            await self._check_confirmed()
            await self._transitions.move(request, RequestAction.EXPIRE, RequestState.EXPIRED)
        elif request.state is RequestState.SCHEDULED:
            await self._applier.apply(self._cluster, request, caller, None, {})
            self._applied += 1
            logger.info("Cluster %s: applied the change request %s", self._cluster.name, request.id)
