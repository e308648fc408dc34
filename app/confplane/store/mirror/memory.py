"""Creating and freeing large copies without blocking the event loop.

Nodes are tuples, which Python's garbage collector tracks: a collection that walks 100,000 of them takes a tenth of a
second. Copies are in no cycle of references, so they need no collections. Their last reference frees all nodes at once,
which blocks the loop as well when there are a million of them.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from confplane.services.cooperative_yielding import free_in_slices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confplane.store.mirror.nodes import Mirror


class Collector:
    """Python's collector, which all loads of the process share.

    Args:
        most: The greatest number of loaded nodes that collections walk, in some milliseconds.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._loads = 0
        self._enabled = True
        self._nodes = 0

    def begin(self) -> None:
        """Count a load: no collection runs until all loads have ended."""
        if not self._loads:
            self._enabled = gc.isenabled()
            gc.disable()
        self._loads += 1

    def end(self, nodes: int) -> None:
        """Count the end of a load and the nodes that it created."""
        self._loads -= 1
        self._nodes += nodes
        if self._nodes > self._most:
            gc.freeze()
            self._nodes = 0
        if not self._loads and self._enabled:
            gc.enable()


collector: Final = Collector()


@contextmanager
def gc_paused(mirror: Mirror) -> Iterator[None]:
    """Pause garbage collection while a copy is loaded, and exempt its nodes from later collections unless they are few.

    The exemption is of all objects of that moment. Their last reference frees them as usual; cycles of references among
    them stay, of which requests leave next to none.
    """
    collector.begin()
    try:
        yield
    finally:
        collector.end(mirror.entities())


async def free(mirror: Mirror) -> None:
    """Free a copy in slices; the caller must drop its own reference.

    The copy is not changed: another reader may use it to the end, and frees it then.
    """
    parts = [part for tree in mirror.trees.values() for part in tree.parts()]
    await asyncio.sleep(0)
    del mirror
    for part in parts:
        await free_in_slices(part)
