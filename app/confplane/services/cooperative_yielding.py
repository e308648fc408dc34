"""Cooperative yielding: long work runs in time slices, and the event loop serves other tasks between them.

A turn of the event loop has one slice of this module at most, however many tasks have long work. So short requests are
delayed by one slice, and not by one of each task.

Some loops take no turns, and pause with ``asyncio.sleep(0)``: those of Kafka's protocol and metadata log, after a slice
each, and those over the names of a load and of markers, after a small piece each. Their work adds to a turn's slice.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
R = TypeVar("R")

SLICE_S: Final = 0.002
"""Seconds of work between two pauses."""
_SHORT_S: Final = 0.001
"""A slice shorter than this is not worth a pause."""
PIECE: Final = 500
"""Objects freed between two checks of the time."""


class _Turns(threading.local):
    """The tasks that wait to run a slice, the longest waiting first; those of the thread's running loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._scheduled = False
        """True if the loop is about to call :meth:`_next`: a slice may run before that."""

    def is_taken(self) -> bool:
        """Return True if a slice was begun in this turn of the loop, or tasks wait for theirs. If not, one is begun."""
        return self._schedule()

    async def wait(self) -> None:
        """Wait for a later turn of the loop in which no other task has begun a slice."""
        self._schedule()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def _schedule(self) -> bool:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the tasks of a loop before ended with it
            self._loop, self._scheduled = loop, False
            self._waiting.clear()
        scheduled = self._scheduled
        if not scheduled:
            self._scheduled = True
            loop.call_soon(self._next, loop)
        return scheduled

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return
        self._scheduled = False
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._schedule()
                return


_turns: Final = _Turns()


async def take_turn() -> None:
    """Wait until long work may begin: at once, unless other tasks have some."""
    if _turns.is_taken():
        await _turns.wait()


async def next_turn() -> None:
    """Let other tasks run, and wait until long work may continue."""
    await _turns.wait()


class TimeSlice:
    """Timer of a slice of work."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    @property
    def due(self) -> bool:
        """True once the slice has used up its time."""
        return time.monotonic() >= self._since + SLICE_S

    async def pause(self) -> None:
        """Let other tasks run, and begin the next slice."""
        await next_turn()
        self._since = time.monotonic()

    async def finish(self) -> None:
        """Let other tasks run after the last slice, unless it was short: the next work may begin with a slice."""
        if time.monotonic() >= self._since + _SHORT_S:
            await self.pause()


async def in_slices(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return the results of ``work`` for all items, in order. Other tasks must not change the data that it uses."""
    done: list[R] = []
    time_slice = TimeSlice()
    for item in items:
        done.append(work(item))
        if time_slice.due:
            await time_slice.pause()
    await time_slice.finish()
    return done


async def free_in_slices(objects: list[Any]) -> None:
    """Free objects by emptying a list with their last references: a hundred thousand at once take some 50 ms."""
    time_slice = TimeSlice()
    while objects:
        del objects[-PIECE:]
        if time_slice.due:
            await time_slice.pause()
