"""Bulks: the edits of one request, each a change of its own, sent in loads that share transactions.

A load takes edits that may be sent now, from any chains (app/services/changes/order.py). A few loads are under way at
once: while ZooKeeper works on one, Postgres works on another. An edit that continues by itself, apart from its load,
delays its own chain alone.
"""

from __future__ import annotations

import asyncio
from collections import ChainMap, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from app.services.changes.order import Stage

Planned = Mapping[str, Mapping[str, str]]
"""Entity id -> resulting map, of the entities that the same request changes before."""

MOST: Final = 200
"""The greatest number of edits in a load."""
AT_ONCE: Final = 3
"""The greatest number of loads of one request under way at once."""


class Waiting(NamedTuple):
    """An edit that may be sent now."""

    position: int
    planned: Planned


class _Chain:
    """Stages that run one after another.

    Attributes:
        stages: The stages to come.
        rank: The rank of the stage under way.
        left: The number of edits of that stage that have not ended.
        made: Rank -> entity id -> the map that an edit made.
    """

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = iter(stages)
        self.rank = ""
        self.left = 0
        self.made: dict[str, dict[str, Mapping[str, str]]] = {}


class Bulk:
    """Sends the edits of one request.

    Args:
        chains: Positions of the edits, in the order that they have to keep.
    """

    def __init__(self, chains: Sequence[Sequence[Stage]]) -> None:
        self._ready: deque[Waiting] = deque()
        self._chains: dict[int, _Chain] = {}
        self._changed = asyncio.Event()
        self._error: Exception | None = None
        for stages in chains:
            self._go_on(_Chain(stages))

    async def run(self, send: Callable[[Sequence[Waiting]], Awaitable[None]]) -> None:
        """Send all edits, and return once each has ended.

        Args:
            send: Sends a load. It calls :meth:`ended` for each edit of the load, before it returns or later. It is not
                kept: a cycle of references would keep thousands of edits for the garbage collector.

        Raises:
            Exception: The error given to :meth:`failed`, or raised by ``send``.
        """
        await asyncio.gather(*(self._work(send) for _ in range(AT_ONCE)))

    def ended(self, position: int, made: tuple[str, Mapping[str, str]] | None) -> None:
        """Take note of an edit's end.

        Args:
            position: The position of the edit.
            made: The entity's id and its resulting map; None if the edit failed.
        """
        chain = self._chains.pop(position)
        chain.left -= 1
        if made is not None:
            entity_id, after = made
            chain.made[chain.rank][entity_id] = after
        if not chain.left:
            self._go_on(chain)
        self._changed.set()

    def failed(self, error: Exception) -> None:
        """Send no more loads, and make :meth:`run` raise the error."""
        self._error = error
        self._changed.set()

    def _go_on(self, chain: _Chain) -> None:
        """Start the next stage of a chain, if any is left."""
        stage = next(chain.stages, None)
        if stage is None:
            return
        # Results of edits of other ranks. Under ``validateOnly`` the mirror does not have them.
        planned = ChainMap(*(made for rank, made in chain.made.items() if rank != stage.rank))
        chain.rank, chain.left = stage.rank, len(stage.positions)
        chain.made.setdefault(stage.rank, {})
        for position in stage.positions:
            self._chains[position] = chain
            self._ready.append(Waiting(position, planned))

    async def _work(self, send: Callable[[Sequence[Waiting]], Awaitable[None]]) -> None:
        while self._error is None and (self._ready or self._chains):
            if self._ready:
                await send([self._ready.popleft() for _ in range(min(MOST, len(self._ready)))])
            else:
                self._changed.clear()
                await self._changed.wait()
        if self._error is not None:
            raise self._error
