"""Cooperative yielding: long work runs in time slices, and the event loop serves other tasks between them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
R = TypeVar("R")

SLICE_S: Final = 0.005
"""Seconds of work between two pauses."""
_SHORT_S: Final = 0.001
"""A slice shorter than this is not worth a pause."""
PIECE: Final = 500
"""Objects freed between two checks of the time."""


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
        await asyncio.sleep(0)
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
