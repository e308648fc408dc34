"""Queues: this process's changes to one znode run one after another, instead of conflicting."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from confplane.domain.errors import ConcurrentChangeError, WriteOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence


class Queues:
    """One queue for each key that a change holds or waits for."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[asyncio.Lock, int]] = {}

    def turn(self, keys: Sequence[str], deadline: float) -> Turn:
        """Return a context in which no other change of this process has any of these keys.

        Raises:
            ConcurrentChangeError: On entering, when the turn was not reached by the deadline.
        """
        # In one order, so that batches can't wait for each other in a ring.
        return Turn(self._waiting, sorted(keys) if len(keys) > 1 else keys, deadline)


class Turn:
    """One change's turn at the keys that it named."""

    def __init__(self, waiting: dict[str, tuple[asyncio.Lock, int]], keys: Sequence[str], deadline: float) -> None:
        self._waiting = waiting
        self._keys = keys
        self._deadline = deadline
        self._held: list[tuple[str, asyncio.Lock]] = []

    async def enter_if_free(self) -> bool:
        """Enter if all keys are free, and return whether they were; never wait."""
        if any(key in self._waiting for key in self._keys):
            return False
        await self.__aenter__()
        return True

    async def __aenter__(self) -> None:
        for key in self._keys:
            lock, users = self._waiting.get(key) or (asyncio.Lock(), 0)
            self._waiting[key] = (lock, users + 1)
            try:
                await self._acquire(lock)
            except BaseException:
                self._leave(key)
                self.leave()
                raise
            self._held.append((key, lock))

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    async def _acquire(self, lock: asyncio.Lock) -> None:
        if not lock.locked():
            await lock.acquire()
            return
        try:
            async with asyncio.timeout(self._deadline - time.monotonic()):
                await lock.acquire()
        except TimeoutError:
            raise ConcurrentChangeError(
                "Other writes to the same entity took until the deadline; nothing was applied, try again",
                outcome=WriteOutcome.NOT_APPLIED,
                retry_after_s=1,
            ) from None

    def leave(self) -> None:
        """End the turn."""
        for key, lock in self._held:
            lock.release()
            self._leave(key)

    def _leave(self, key: str) -> None:
        lock, users = self._waiting[key]
        if users == 1:
            del self._waiting[key]
        else:
            self._waiting[key] = (lock, users - 1)
