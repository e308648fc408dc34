"""Long work in slices: between two of them the event loop serves others."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
R = TypeVar("R")

SLICE_S: Final = 0.005
"""Seconds of work between two chances for others."""


class Pace:
    """Says when work in a row has taken long enough."""

    def __init__(self) -> None:
        self._until = time.monotonic() + SLICE_S

    @property
    def due(self) -> bool:
        """Whether it is time to rest."""
        return time.monotonic() >= self._until

    async def rest(self) -> None:
        """Let others go on."""
        await asyncio.sleep(0)
        self._until = time.monotonic() + SLICE_S


async def in_slices(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return what work makes of each item, in order. It must rest on nothing that others may change meanwhile."""
    done: list[R] = []
    pace = Pace()
    for item in items:
        done.append(work(item))
        if pace.due:
            await pace.rest()
    return done
