"""The clean-up of old notifications.

Notifications older than 15 minutes by ZooKeeper's clock are deleted, oldest first, as brokers do. While no broker is
registered the oldest above the cap are deleted as well: only replicas of this service read them then, and a replica
that was behind finds the gap and loads again. With brokers registered no younger notification is deleted: a broker that
was away for less than 15 minutes is owed all of them.

Notifications that a recorder has not explained are kept for longer, within limits: a person would look there for the
cause of a change.

Source: core/src/main/scala/kafka/common/ZkNodeChangeNotificationListener.scala.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import ZookeeperError

from confplane.domain.errors import UnavailableError
from confplane.services.background import BackgroundService, BackgroundTask
from confplane.store import znodes
from confplane.store.mirror import loader

if TYPE_CHECKING:
    from collections.abc import Callable

    from confplane.store.mirror.follower import MirrorFollower
    from confplane.store.session.session import Session
    from confplane.store.session.session_manager import SessionManager
    from confplane.store.write.guard import Guard

logger = logging.getLogger(__name__)

EXPIRATION_MS: Final = 15 * 60 * 1000
PERIOD_SECONDS: Final = 60.0
_LONGEST: Final = 4
"""The factor to the age of notifications that no recorder has explained."""
_BATCH: Final = 200
_SLACK: Final = 0.5
"""The part of the cap by which it is exceeded when the purge is called early: a purge lists them all."""


class Purger(BackgroundService):
    """Runs the clean-up of one cluster in the background.

    Attributes:
        purged: Notifications deleted since the start.
        wake: Set to purge early.
        early: The number of notifications that is well above the cap. Above it, and without brokers, a purge is early.
    """

    def __init__(
        self, name: str, session_manager: SessionManager, follower: MirrorFollower, guard: Guard, notifications_max: int
    ) -> None:
        self._name = name
        self._session_manager = session_manager
        self._follower = follower
        self._guard = guard
        self._max = notifications_max
        self.wake = asyncio.Event()
        self.early = notifications_max * (1 + _SLACK)
        self._kept: tuple[int, float] | None = None
        self.purged = 0
        self._background = BackgroundTask(self._purge_forever, name=f"zookeeper-purge-{name}")

    def keep(self, above: int | None, seconds: float) -> None:
        """Keep the notifications above a revision for a while, unless they are too many or much too old."""
        self._kept = None if above is None else (above, time.monotonic() + seconds)

    async def _purge_forever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                # Replicas that were started together should not all list at once.
                async with asyncio.timeout(PERIOD_SECONDS * random.uniform(0.8, 1.2)):  # noqa: S311 - no secret
                    await self.wake.wait()
            self.wake.clear()
            with contextlib.suppress(ZookeeperError, UnavailableError):
                await self.purge(self._session_manager.current)

    async def purge(self, session: Session) -> int:
        """Delete the notifications that are due, once; return their number."""
        now = (await session.touch()).mtime
        names, stat = await session.children(znodes.CHANGES)
        self._follower.record_listing(names, stat)
        # Notifications that this replica has not applied are not its business.
        numbers = sorted(
            number for number in map(znodes.sequence_of, names) if number is not None and number < self._follower.next
        )
        surplus = 0 if self._guard.brokers or not self._guard.known else max(0, len(names) - self._max)
        going = numbers[: max(surplus, await self._due(session, numbers, now))]
        for start in range(0, len(going), _BATCH):
            await loader.delete(session, [znodes.change_path(number) for number in going[start : start + _BATCH]])
            self._follower.notifications -= len(going[start : start + _BATCH])
            self.purged += len(going[start : start + _BATCH])
        if going:
            logger.info("Cluster %s: purged %d notifications", self._name, len(going))
        return len(going)

    async def _due(self, session: Session, numbers: list[int], now: int) -> int:
        """Return the number of the oldest notifications that are too old, and explained where a recorder runs."""
        kept = self._kept
        if kept is None or kept[1] < time.monotonic():
            return await _count(session, numbers, lambda stat: now - stat.ctime > EXPIRATION_MS)
        return await _count(
            session,
            numbers,
            lambda stat: now - stat.ctime > (EXPIRATION_MS if stat.czxid <= kept[0] else _LONGEST * EXPIRATION_MS),
        )


async def _count(session: Session, numbers: list[int], goes: Callable[[Any], bool]) -> int:
    """Return the number of the oldest that are due; times and zxids rise with the numbers, so a few reads find it."""
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        stat = await session.exists(znodes.change_path(numbers[middle]))
        # A notification just purged by another replica or a broker was too old, and so are all before it.
        if stat is None or goes(stat):
            low = middle + 1
        else:
            high = middle
    return low
