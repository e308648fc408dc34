"""Bulks: the edits of one request, each as its own change, sent in loads that share transactions.

Levels of the same configs go one after another, all other edits at once (:func:`chains`). A load takes edits that may
be sent now, from any chains. Two loads are under way at once: while ZooKeeper works on one, Postgres works on another.
So few and small loads cost a bulk little, and a single concurrent change waits only briefly. An edit that continues by
itself, apart from its load, delays only its own chain.

The changes of a load make their first attempts together. A change that is refused, or whose reply is lost, continues by
itself (services/changes/runner.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import ChainMap, deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from confplane.domain.errors import ConfplaneError, WriteOutcome
from confplane.services.changes.commit import ChangeRun, Unwritten
from confplane.services.changes.edits import NoChange
from confplane.services.cooperative_yielding import TimeSlice
from confplane.services.metrics import span
from confplane.services.ports.trail import FEW
from confplane.services.ports.transactions import Committed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from confplane.domain.facets import Rank
    from confplane.services.changes.callers import Caller
    from confplane.services.changes.edits import ChangeJob, D
    from confplane.services.changes.entities_change import Drafts, EntitiesChange
    from confplane.services.changes.entity_drafts import Planned
    from confplane.services.changes.runner import ChangeRunner, Turn
    from confplane.services.ports.store import ClusterStore

T = TypeVar("T")

MOST: Final = 100
"""The greatest number of edits in a load."""
AT_ONCE: Final = 2
"""The greatest number of loads under way at once: of one request, and of all requests to a cluster together."""
_DECIDED: Final = 50
"""Changes decided at once, of those whose decisions wait."""
_PATHS: Final = 65_536
"""Characters of paths in one confirmation, at most: far below ZooKeeper's limit of a request."""


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


class BulkRunner:
    """Runs the changes of requests with several, in loads that share transactions.

    Args:
        runner: The runner.
    """

    def __init__(self, runner: ChangeRunner) -> None:
        self._runner = runner
        self._semaphores = LoadSemaphores()

    async def run(
        self, store: ClusterStore, changes: Sequence[EntitiesChange], caller: Caller
    ) -> list[ChangeRun[Drafts] | ConfplaneError]:
        """Run the changes of one request, and return the end or error of each, in order.

        Args:
            store: The cluster.
            changes: The changes, of different entities.
            caller: The caller, with the deadline.

        Raises:
            Exception: A fault of a change, once all changes under way have ended.
        """
        ends: dict[int, ChangeRun[Drafts] | ConfplaneError] = {}
        bulk = Bulk(chains(change.rank for change in changes))

        def record(position: int, end: asyncio.Future[ChangeRun[Drafts] | Exception]) -> None:
            if end.cancelled():
                return  # the process ends
            ended = end.result()
            if isinstance(ended, Exception) and not isinstance(ended, ConfplaneError):
                bulk.failed(ended)
                return
            ends[position] = ended
            if isinstance(ended, ConfplaneError) or ended.error is not None:
                bulk.ended(position, None)
            else:
                bulk.ended(position, changes[position].made(ended.decided))

        async def send(load: Sequence[ReadyEdit]) -> None:
            try:
                async with self._semaphores.slot(store.name, len(load), caller.deadline):
                    caller.check_in_time()
                    jobs = [changes[position].job(planned) for position, planned in load]
                    found = await run_together(self._runner, store, jobs, caller)
            except ConfplaneError as error:
                found = [_ended(error) for _ in load]
            for (position, _), end in zip(load, found, strict=True):
                if end.done():
                    record(position, end)
                else:
                    end.add_done_callback(partial(record, position))

        await bulk.run(send)
        return [ends[position] for position in range(len(changes))]


# ---------------------------------------------------------------- changes that are attempted together


async def run_together(
    runner: ChangeRunner, store: ClusterStore, jobs: Iterable[ChangeJob[D]], caller: Caller
) -> list[asyncio.Future[ChangeRun[D] | Exception]]:
    """Run several changes in shared transactions; return once the changes of shared attempts have ended.

    A change runs by itself, and may end later, if another change has its turn at the znode, if ZooKeeper refuses
    it, or if its reply is lost. Cancelling the call cancels no change.

    Args:
        runner: The runner.
        store: The cluster.
        jobs: The changes. None of them reads or writes an entity of another.
        caller: The caller, with the deadline.

    Returns:
        The end of each job, in order: the result that :meth:`ChangeRunner.run` returns, or the error that it raises.

    Raises:
        UnavailableError: There is no session; nothing was begun.
    """
    writer = store.writer()
    changes = [ChangeRun(store.new_change_id(), job, caller, store) for job in jobs]
    return await asyncio.shield(runner.begin(_together(runner, writer, changes)))


async def _together(
    runner: ChangeRunner, writer: str, changes: Sequence[ChangeRun[D]]
) -> list[asyncio.Future[ChangeRun[D] | Exception]]:
    turns: dict[ChangeRun[D], Turn] = {}
    ends: dict[ChangeRun[D], asyncio.Future[ChangeRun[D] | Exception]] = {}
    try:
        for change in changes:
            turn = await runner.enter_if_free(change)
            if turn is not None:
                turns[change] = turn
            else:
                ends[change] = runner.begin(runner.run_in_turn(change))
        if turns:
            await _make_first(runner, writer, list(turns))
        for change in list(turns):
            turn = turns.pop(change)
            if (end := _first_end(change)) is None:
                ends[change] = runner.begin(runner.run_to_end(change, turn))
            else:
                runner.leave(turn)
                ends[change] = _ended(end)
    finally:
        for turn in turns.values():
            runner.leave(turn)
    return [ends[change] for change in changes]


async def _make_first(runner: ChangeRunner, writer: str, changes: Sequence[ChangeRun[Any]]) -> None:
    """Make the first attempts of changes together.

    Args:
        runner: Submits them.
        writer: The writer node of the session.
        changes: The changes, in the order of their ids. None of them reads or writes an entity of another.
    """
    time_slice = TimeSlice()
    with span("draft", cluster=changes[0].store.name, changes=len(changes)):
        for change in changes:
            if not change.job.waits:
                await _decide(change, writer)
            if time_slice.due:
                await time_slice.pause()
        waiting = iter([change for change in changes if change.job.waits])
        while some := list(islice(waiting, _DECIDED)):
            await asyncio.gather(*(_decide(change, writer) for change in some))
            if time_slice.due:
                await time_slice.pause()
    await asyncio.gather(_confirm(writer, changes), runner.submit([change for change in changes if change.number]))


def _first_end(change: ChangeRun[D]) -> ChangeRun[D] | Exception | None:
    """Return the end of a change by its first attempt; None if the change continues by itself."""
    result = change.result
    if isinstance(result, (Committed, Unwritten)):
        return change
    return result if isinstance(result, Exception) and not change.number else None


async def _confirm(writer: str, changes: Sequence[ChangeRun[Any]]) -> None:
    """Confirm decisions to write nothing with ZooKeeper, many at a time. Confirmed changes then have their results."""
    store, deadline = changes[0].store, changes[0].caller.deadline
    for decisions in _pieces(changes):
        seen = [each for _, decision in decisions for each in decision.seen or ()]
        layout = decisions[0][1].layout
        try:
            revision = await store.confirm(writer, seen, deadline, layout=layout)
        except ConfplaneError:
            continue  # each change asks by itself, and gets its own error
        if revision is not None:
            for change, decision in decisions:
                change.end_unwritten(decision, revision)


async def _decide(change: ChangeRun[Any], writer: str) -> None:
    """Decide the first attempt of a change, and begin it unless it is refused or writes nothing."""
    try:
        decision = await change.job.decide(again=False)
        if isinstance(decision, NoChange):
            change.unchanged = decision
        else:
            change.begin(writer, decision)
    except ConfplaneError as error:
        error.outcome = error.outcome or WriteOutcome.NOT_APPLIED
        change.result = error


def _pieces(changes: Sequence[ChangeRun[D]]) -> Iterator[list[tuple[ChangeRun[D], NoChange[D]]]]:
    """Cut decisions to write nothing into pieces of one confirmation each."""
    piece: list[tuple[ChangeRun[D], NoChange[D]]] = []
    size = 0
    for change in changes:
        decision = change.unchanged
        if decision is None or decision.seen is None:
            continue
        length = sum(len(entity.path) for _, entity, _ in decision.seen)
        if piece and (decision.layout != piece[0][1].layout or size + length > _PATHS):
            yield piece
            piece, size = [], 0
        piece.append((change, decision))
        size += length
    if piece:
        yield piece


def _ended(end: T) -> asyncio.Future[T]:
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(end)
    return future
