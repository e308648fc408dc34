"""Events of change requests in the feed of a cluster.

Requests are in Postgres, and so have no revision. Postgres numbers their events, and shows them in the order of the
numbers. The feed puts each event behind the changes that it has at that time, and that of an applied request behind its
change. A position has the number of the last event besides the place of the last change: no process that continues from
it leaves an event out or sends one again, although the processes may have put it behind different changes.
"""

from __future__ import annotations

import logging
import time
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import UnavailableError
from confplane.services.background import BackgroundService, BackgroundTask
from confplane.services.ports.feed import LAST_NUMBER
from confplane.services.ports.trail import END_OF_HISTORY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confplane.services.clusters import Cluster
    from confplane.services.ports.feed import FeedChange, FeedTrail
    from confplane.services.ports.trail import HistoryPlace
    from confplane.services.ticks import Ticks

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 1.0
_PAGE: Final = 100
MOST_POLLS: Final = 60
"""Polls after which an event does not wait any longer for the outcome of its change, which Postgres may have lost.
Those without ZooKeeper do not count: only with it the outcome is settled."""
_CALL_S: Final = 5.0


class FeedRequests(BackgroundService):
    """The events of the requests of one cluster.

    Args:
        cluster: The cluster.
        trail: The trail.
        last: Returns the place up to which the feed has all changes.
        publish: Called with events, in order.
        ticks: The times of the polls, which the feeds of a process share.

    Attributes:
        number: The number of the last published event.
        unknown: The number of events of a newer release, which nobody gets.
        incarnation: The incarnation of the store whose events are polled; 0 before :meth:`begin`.
    """

    def __init__(
        self,
        cluster: Cluster,
        trail: FeedTrail,
        last: Callable[[], HistoryPlace],
        publish: Callable[[Sequence[FeedChange]], None],
        ticks: Ticks,
    ) -> None:
        self._cluster = cluster
        self._trail = trail
        self._last = last
        self._publish = publish
        self._ticks = ticks
        self._polls = 0
        self.number = 0
        self.unknown = 0
        self.incarnation = 0
        self._background = BackgroundTask(self._run, name=f"feed-requests-{cluster.name}")

    async def begin(self, incarnation: int) -> None:
        """Continue after the newest event, of which Postgres has all before it, or after the last published one.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        newest = await self.newest()
        # Postgres may have been restored together with ZooKeeper.
        self.number = min(self.number, newest) if self.incarnation else newest
        self.incarnation = incarnation

    async def newest(self) -> int:
        """Return the number of the newest event.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        return await self._trail.newest_request(self._cluster.name)

    async def _run(self) -> None:
        while True:
            await self._ticks.wait(INTERVAL_S)
            try:
                if await self.poll():
                    self._polls += 1
            except UnavailableError as error:
                logger.debug("Cluster %s: events of requests have to wait: %s", self._cluster.name, error.detail)
            except Exception:
                logger.exception("Cluster %s: events of requests failed", self._cluster.name)

    async def poll(self) -> bool:
        """Publish what is new, and return True if an event waits for its change.

        Raises:
            UnavailableError: A store is unavailable.
        """
        if not self.incarnation:
            return False
        found = await self._trail.requests(self._cluster.name, self.number, LAST_NUMBER, _PAGE)
        found = [change for change in found if number_of(change) > self.number]
        ready = list(takewhile(self._is_ready, found))
        if ready:
            self._polls = 0
            # Consumers leave events out that they were given before a failure.
            self._publish(ready)
            self.number = number_of(ready[-1])
            self._count_unknown(ready)
        waits = len(ready) < len(found)
        if waits:
            # An idle mirror may be behind the change of an applied request.
            await self._cluster.store.catch_up(time.monotonic() + _CALL_S)
        return waits

    def _count_unknown(self, events: Sequence[FeedChange]) -> None:
        unknown = [each for each in events if each.request is not None and each.request.type is None]
        self.unknown += len(unknown)
        for each in unknown:
            logger.warning(
                "Cluster %s: the event %s of a change request is left out of the feed: a newer release wrote it",
                *(self._cluster.name, each.place.change_id),
            )

    def _is_ready(self, change: FeedChange) -> bool:
        """Return True unless the feed does not have the change of an applied request yet."""
        applied = None if change.request is None else change.request.applied
        lost = applied == END_OF_HISTORY and self._polls >= MOST_POLLS
        return applied is None or applied <= self._last() or lost


def number_of(change: FeedChange) -> int:
    """Return the number of the event of a request; 0 for a change."""
    return 0 if change.request is None else change.request.number
