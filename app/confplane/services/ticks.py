"""Ticks: the times at which a process polls for all of its clusters, so that their statements can be sent as one."""

from __future__ import annotations

import asyncio
import random


class Ticks:
    """Wakes the loops of one kind, of which each cluster has one, in the same iteration of the event loop.

    A loop whose round takes longer than the interval misses ticks, and delays no other loop.
    """

    def __init__(self) -> None:
        self._next: asyncio.Event | None = None

    async def wait(self, interval_s: float) -> None:
        """Wait for the next tick: at most an interval after a loop has begun to wait for it, and a fifth of one."""
        if self._next is None:
            self._next = asyncio.Event()
            # Replicas that were started together should not all query at once.
            asyncio.get_running_loop().call_later(interval_s * random.uniform(0.8, 1.2), self._tick, self._next)  # noqa: S311 - no secret
        await self._next.wait()

    def _tick(self, tick: asyncio.Event) -> None:
        self._next = None
        tick.set()
