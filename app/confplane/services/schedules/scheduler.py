"""The scheduler: ends due temporary changes, in the leader of a cluster.

A due end is never dropped. A freeze, a refusal by today's rules, an unreachable store, or a restored Postgres whose
state nobody has confirmed delays it, and it is attempted again, at growing intervals up to a minute.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import RequestStateError
from confplane.services.background import BackgroundService, BackgroundTask, ErrorLog, RetriedItems
from confplane.services.changes.callers import Caller
from confplane.services.metrics import Sample, of_cluster
from confplane.services.operator_warnings import OperatorWarning
from confplane.services.ports.schedules import ScheduleStatus
from confplane.services.ticks import Ticks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from uuid import UUID

    from confplane.services.clusters import Cluster
    from confplane.services.ports.schedules import ScheduleStore
    from confplane.services.schedules.ends import ScheduleEnder

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0
OVERDUE: Final = timedelta(seconds=60)
"""The delay of an end from which it counts as overdue."""
_SOURCE: Final = "schedule"
_MOST: Final = 100
"""Ends of one round."""
_END_S: Final = 20.0


class Scheduler(BackgroundService):
    """Ends the due temporary changes of one cluster.

    Args:
        cluster: The cluster.
        schedules: The schedules.
        ender: Ends one change.
        check_confirmed: Refuses to go on in a Postgres that was restored, until its tokens are confirmed.
        now: The clock.
        ticks: The times of the rounds, which the schedulers of a process share.
    """

    def __init__(
        self,
        cluster: Cluster,
        schedules: ScheduleStore,
        ender: ScheduleEnder,
        check_confirmed: Callable[[], Awaitable[None]],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        ticks: Ticks | None = None,
    ) -> None:
        self._ticks = ticks or Ticks()
        self._cluster = cluster
        self._schedules = schedules
        self._ender = ender
        self._check_confirmed = check_confirmed
        self._now = now
        self._background = BackgroundTask(self._run, name=f"scheduler-{cluster.name}")
        self._errors = ErrorLog(
            logger, cluster.name, waits="temporary changes wait", fails="ending temporary changes failed"
        )
        self._ended = 0
        self._end_term()

    def _end_term(self) -> None:
        self._leading = False
        self._retries = RetriedItems(logger, self._now, "Change %s could not be ended and is attempted again")
        self._status = ScheduleStatus()

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics; only the leader counts schedules."""
        return of_cluster(self._cluster.name, self._metrics())

    def _metrics(self) -> Iterator[Sample]:
        yield Sample("schedules_ended", self._ended)
        if self._leading:
            yield Sample("schedules_active", self._status.active)
            yield Sample("schedules_overdue", self._status.overdue)
            yield Sample("schedules_paused", self._status.pause is not None)

    def warnings(self) -> list[OperatorWarning]:
        """Return warnings for operators; only the leader has any."""
        if not self._leading or not self._status.overdue:
            return []
        number, pause = self._status.overdue, self._status.pause
        text = f"{number} temporary change{' is' if number == 1 else 's are'} overdue: not ended at the set time"
        if pause is not None:
            why = "the ends are paused; confplane schedules resume continues them"
            return [
                OperatorWarning(
                    f"{text}, because {why}", f"{text}, because {why}. {pause.principal}: {pause.reason}"
                ).about(self._cluster.name)
            ]
        first = next(iter(self._retries.failed.items()), None)
        detailed = None if first is None else f"{text}. Change {first[0]}: {first[1].error}"
        return [OperatorWarning(text, detailed).about(self._cluster.name)]

    async def _run(self) -> None:
        while True:
            await self._ticks.wait(INTERVAL_S)
            with self._errors.of_round():
                await self.round()

    async def round(self) -> None:
        """End the due changes, if this process leads.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        if not self._cluster.store.leadership.held:
            self._end_term()
            return
        now = self._now()
        await self._schedules.register(self._cluster.name, everything=not self._leading)
        self._leading = True
        self._status = await self._read(now)
        due = () if self._status.pause else self._status.due
        for change_id in self._retries.ready(due):
            # A round may take minutes, and a pause begins at once.
            if await self._schedules.paused(self._cluster.name) is not None:
                break
            if self._cluster.store.leadership.held:
                await self._end(change_id)
        if due:
            self._status = await self._read(self._now())

    async def _read(self, now: datetime) -> ScheduleStatus:
        return await self._schedules.status(self._cluster.name, now, now - OVERDUE, _MOST + len(self._retries.failed))

    async def _end(self, change_id: UUID) -> None:
        schedule = await self._schedules.find(self._cluster.name, change_id)
        if schedule is None:
            return
        caller = Caller.operator(
            schedule.principal,
            _SOURCE,
            f"end-{change_id}",
            time.monotonic() + _END_S,
            reason=f"End of the temporary change {change_id}",
        )
        with self._retries.attempt(change_id):
            try:
                await self._check_confirmed()
            except RequestStateError as error:
                await self._schedules.delay(change_id, error.detail)
                raise
            ended = await self._ender.end(self._cluster, change_id, caller)
            self._ended += 1
            kept = f"; {len(ended.kept)} keys were changed in the meantime and kept" if ended.kept else ""
            logger.info("Cluster %s: ended the temporary change %s%s", self._cluster.name, change_id, kept)
