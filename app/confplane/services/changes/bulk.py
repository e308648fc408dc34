"""Bulks: the edits of one request, each as its own change, sent in loads that share transactions.

Levels of the same configs go one after another, all other edits at once (:func:`chains`). A load takes edits that may
be sent now, from any chains. Two loads are under way at once: while ZooKeeper works on one, Postgres works on another.
So few and small loads cost a bulk little, and a single concurrent change waits only briefly. An edit that continues by
itself, apart from its load, delays only its own chain.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import ChainMap, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.services.ports.trail import FEW

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from confplane.domain.facets import Rank

Planned = Mapping[str, Mapping[str, str]]
"""Entity id -> resulting map, of the entities that the same request changes before."""

MOST: Final = 100
"""The greatest number of edits in a load."""
AT_ONCE: Final = 2
"""The greatest number of loads under way at once: of one request, and of all requests to a cluster together."""


class Stage(NamedTuple):
    """Edits that run at once, of entities of one rank."""

    rank: str
    positions: list[int]


def chains(ranks: Iterable[Rank | None]) -> list[list[Stage]]:
    """Return chains that run at once, each of stages that run one after another.

    The check of an edit then sees every edit before it whose entity it reads, and no edit after it.

    Args:
        ranks: The ranks of the edits' entities in the order of the request; None for an entity that is checked apart.
    """
    alone: list[list[Stage]] = []
    scopes: dict[str, list[Stage]] = {}
    for position, rank in enumerate(ranks):
        if rank is None:
            alone.append([Stage("", [position])])
            continue
        chain = scopes.setdefault(rank.scope, [])
        if not chain or chain[-1].rank != rank.name:
            chain.append(Stage(rank.name, []))
        chain[-1].positions.append(position)
    return [*alone, *scopes.values()]


class ReadyEdit(NamedTuple):
    """An edit that may be sent now."""

    position: int
    planned: Planned


class LoadSemaphores:
    """One semaphore per cluster, which limits the concurrent large loads of all requests."""

    def __init__(self) -> None:
        self._semaphores: dict[str, asyncio.Semaphore] = {}

    @contextlib.asynccontextmanager
    async def slot(self, cluster: str, edits: int, deadline: float) -> AsyncIterator[None]:
        """Return a context that holds a slot for a load. Large loads get their slots in the order of arrival.

        A few large loads run at a time. A load of few edits does not wait.

        Args:
            cluster: The cluster's name.
            edits: The number of edits in the load.
            deadline: The end of the wait, on the clock of ``time.monotonic()``. The context is entered in any case:
                the caller must not begin anything after the deadline.
        """
        if edits <= FEW:
            yield
            return
        semaphore = self._semaphores.setdefault(cluster, asyncio.Semaphore(AT_ONCE))
        entered = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline - time.monotonic()):
                entered = await semaphore.acquire()
        try:
            yield
        finally:
            if entered:
                semaphore.release()


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
        self._left = iter(chains)
        self._ready: deque[ReadyEdit] = deque()
        self._chains: dict[int, _Chain] = {}
        self._changed = asyncio.Event()
        self._error: Exception | None = None

    async def run(self, send: Callable[[Sequence[ReadyEdit]], Awaitable[None]]) -> None:
        """Send all edits, and return once each has ended.

        Args:
            send: Sends a load. It calls :meth:`ended` for each edit of the load, before it returns or later. It is not
                kept: a cycle of references would keep thousands of edits for the garbage collector.

        Raises:
            Exception: The error given to :meth:`failed`, or raised by ``send``; every load under way has ended.
        """
        await asyncio.gather(*(self._work(send) for _ in range(AT_ONCE)))
        if self._error is not None:
            raise self._error

    def ended(self, position: int, made: tuple[str, Mapping[str, str]] | None) -> None:
        """Take note of an edit's end.

        Args:
            position: The position of the edit.
            made: The entity's id and its resulting map; None if the edit failed, or no check reads its result.
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
        planned = ChainMap(*(made for rank, made in chain.made.items() if rank != stage.rank)) if chain.made else {}
        chain.rank, chain.left = stage.rank, len(stage.positions)
        chain.made.setdefault(stage.rank, {})
        for position in stage.positions:
            self._chains[position] = chain
            self._ready.append(ReadyEdit(position, planned))

    async def _work(self, send: Callable[[Sequence[ReadyEdit]], Awaitable[None]]) -> None:
        while self._error is None:
            # Load by load: the chains of a large request would take the loop for long.
            while len(self._ready) < MOST and (stages := next(self._left, None)) is not None:
                self._go_on(_Chain(stages))
            if self._ready:
                try:
                    await send([self._ready.popleft() for _ in range(min(MOST, len(self._ready)))])
                except Exception as error:  # noqa: BLE001 - raised by run, once the other loads have ended
                    self.failed(error)
            elif self._chains:
                self._changed.clear()
                await self._changed.wait()
            else:
                break
