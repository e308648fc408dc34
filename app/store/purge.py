"""What is cleaned up: old notifications, and the markers of changes whose outcome is durable.

Notifications older than 15 minutes by ZooKeeper's clock are deleted, oldest first, as brokers do. While no broker is
registered the oldest above the cap go as well: only replicas of this service read them then, and a replica that was
behind finds the gap and loads again. With brokers registered nothing younger goes, since a broker that was away for
less is owed all of them.

Source: core/src/main/scala/kafka/common/ZkNodeChangeNotificationListener.scala.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import ZookeeperError

from app.domain.errors import UnavailableError
from app.store import loader, znodes

if TYPE_CHECKING:
    from uuid import UUID

    from app.store.follower import Follower
    from app.store.guard import Guard
    from app.store.session import Keeper, Session

logger = logging.getLogger(__name__)

EXPIRATION_MS: Final = 15 * 60 * 1000
MARKER_SECONDS: Final = 60.0
PERIOD_SECONDS: Final = 60.0
_MARKER_PERIOD_SECONDS: Final = 10.0
_BATCH: Final = 200
_SLACK: Final = 0.1
"""How far above the cap, as a part of it, the purge is called before its time."""


class Purger:
    """Runs the two clean-ups of one cluster in the background."""

    def __init__(self, name: str, keeper: Keeper, follower: Follower, guard: Guard, notifications_max: int) -> None:
        self._name = name
        self._keeper = keeper
        self._follower = follower
        self._guard = guard
        self._max = notifications_max
        self._wake = asyncio.Event()
        self._markers: deque[tuple[float, UUID]] = deque()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin, in the background."""
        self._tasks = [
            asyncio.create_task(self._purge_forever(), name=f"zookeeper-purge-{self._name}"),
            asyncio.create_task(self._markers_forever(), name=f"zookeeper-markers-{self._name}"),
        ]

    async def stop(self) -> None:
        """Stop; markers not yet dropped stay."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks = []

    def noticed(self) -> None:
        """Purge before the time when the notifications are well above the cap."""
        if not self._guard.brokers and self._follower.notifications > self._max * (1 + _SLACK):
            self._wake.set()

    def release(self, change_id: UUID) -> None:
        """Let a marker go, a while from now."""
        self._markers.append((time.monotonic() + MARKER_SECONDS, change_id))

    # -- notifications

    async def _purge_forever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                # Replicas that were started together should not all list at once.
                async with asyncio.timeout(PERIOD_SECONDS * random.uniform(0.8, 1.2)):  # noqa: S311 - no secret
                    await self._wake.wait()
            self._wake.clear()
            with contextlib.suppress(ZookeeperError, UnavailableError):
                await self.purge(self._keeper.current)

    async def purge(self, session: Session) -> int:
        """Delete what may go, once; return how many."""
        now = (await session.touch()).mtime
        names, _ = await session.children(znodes.CHANGES)
        self._follower.seen(names)
        # A notification that this replica has not applied is none of its business.
        numbers = sorted(
            number for number in map(znodes.sequence_of, names) if number is not None and number < self._follower.next
        )
        surplus = 0 if self._guard.brokers or not self._guard.known else max(0, len(names) - self._max)
        going = numbers[: max(surplus, await self._expired(session, numbers, now))]
        for start in range(0, len(going), _BATCH):
            await _delete(session, [znodes.change_path(number) for number in going[start : start + _BATCH]])
            self._follower.notifications -= len(going[start : start + _BATCH])
        if going:
            logger.info("Cluster %s: purged %d notifications", self._name, len(going))
        return len(going)

    async def _expired(self, session: Session, numbers: list[int], now: int) -> int:
        """Return how many of the oldest are too old; their times rise with their numbers, so a few reads tell."""
        low, high = 0, len(numbers)
        while low < high:
            middle = (low + high) // 2
            stat = await session.exists(znodes.change_path(numbers[middle]))
            # One that another replica or a broker just purged was too old, and so is all before it.
            if stat is None or now - stat.ctime > EXPIRATION_MS:
                low = middle + 1
            else:
                high = middle
        return low

    # -- markers

    async def _markers_forever(self) -> None:
        while True:
            await asyncio.sleep(_MARKER_PERIOD_SECONDS)
            with contextlib.suppress(ZookeeperError, UnavailableError):
                await self.drop_markers(self._keeper.current, time.monotonic())

    async def drop_markers(self, session: Session, now: float) -> int:
        """Delete the markers whose time has come; return how many."""
        dropped = 0
        while self._markers and self._markers[0][0] <= now:
            batch = [self._markers.popleft() for _ in range(min(_BATCH, self._due(now)))]
            try:
                await _delete(session, [znodes.marker_path(change_id) for _, change_id in batch])
            except BaseException:
                # Deleting one again that is gone already does no harm.
                self._markers.extendleft(reversed(batch))
                raise
            dropped += len(batch)
        return dropped

    def _due(self, now: float) -> int:
        due = 0
        for when, _ in self._markers:
            if when > now or due == _BATCH:
                break
            due += 1
        return due


async def _delete(session: Session, paths: list[str]) -> None:
    """Delete nodes that others may be deleting as well: in one transaction, or one by one when some are gone."""
    results = await session.multi([("delete", path) for path in paths])
    if any(isinstance(result, Exception) for result in results):
        window = loader.Window()
        for path in paths:
            window.add(session.delete(path), _ignore)
        await window.done()


def _ignore(_value: Any) -> None:
    """Take a reply that tells nothing."""
