"""Long work in slices: the event loop serves other tasks between two slices."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
R = TypeVar("R")

SLICE_S: Final = 0.005
"""Seconds of work between two pauses."""


class Pace:
    """Timer of a slice of work."""

    def __init__(self) -> None:
        self._until = time.monotonic() + SLICE_S

    @property
    def due(self) -> bool:
        """True once the slice has used its time."""
        return time.monotonic() >= self._until

    async def rest(self) -> None:
        """Let other tasks run, and begin the next slice."""
        await asyncio.sleep(0)
        self._until = time.monotonic() + SLICE_S


async def in_slices(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return the results of ``work`` for all items, in order. ``work`` must rest on nothing that other tasks change."""
    done: list[R] = []
    pace = Pace()
    for item in items:
        done.append(work(item))
        if pace.due:
            await pace.rest()
    return done
