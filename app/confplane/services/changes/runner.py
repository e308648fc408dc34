"""The runner: from a decision to a committed transaction with its trail, the same for every kind of change.

The order is what makes config and trail agree (docs/architecture.md, "One write")::

    decide ── admission ── intent (Postgres) ── transaction (ZooKeeper) ── outcome (Postgres) ── answer
       ▲                                              │
       └───────────── conflict: decide again ─────────┘

ZooKeeper's transaction is the commit point. No intent, no transaction; no answer "applied" without the transaction; a
lost reply is never followed by another attempt, because the first may still be applied: the change is settled.

All attempts of a change are made under one ZooKeeper session, that of the first. So once its writer node is gone the
change can't commit any more, and a settler need not know whether another attempt is under way.

Several changes of one caller make their first attempts together, and single changes of different callers share the
transactions of theirs (services/changes/commit.py). A change that such an attempt does not end continues by itself
(services/changes/change.py).
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from confplane.domain.errors import ConcurrentChangeError, ConfplaneError, WriteOutcome
from confplane.services.changes.bulk import Bulk, LoadSemaphores, chains
from confplane.services.changes.change import Submission
from confplane.services.changes.commit import Committer
from confplane.services.changes.draft import CONTENDED, ChangeJob
from confplane.services.metrics import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
    from contextvars import Context

    from confplane.services.changes.bulk import ReadyEdit
    from confplane.services.changes.callers import Caller
    from confplane.services.changes.commit import ChangeResult, RunningChange
    from confplane.services.changes.draft import D, Decide
    from confplane.services.changes.entities_change import Drafts, EntitiesChange
    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import AuditLog

T = TypeVar("T")


class ChangeRunner:
    """Runs changes. One instance serves all clusters of a process.

    Args:
        audit: The trail.
        now: The clock of refused paths, in seconds.
        most_refused: As of :class:`~confplane.services.changes.commit.Committer`.
    """

    def __init__(
        self, audit: AuditLog, *, now: Callable[[], float] = time.monotonic, most_refused: int = 10_000
    ) -> None:
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._in_flight = 0
        self._committer = Committer(audit, self._begin, now=now, most_refused=most_refused)
        self._semaphores = LoadSemaphores()

    async def run_entries(
        self, store: ClusterStore, changes: Sequence[EntitiesChange], caller: Caller
    ) -> list[ChangeResult[Drafts] | ConfplaneError]:
        """Run the changes of one request, and return the end or error of each, in order.

        One change alone shares a transaction with changes of other callers. Several are sent in loads that share
        transactions with each other (services/changes/bulk.py).

        Args:
            store: The cluster.
            changes: The changes, of different entities.
            caller: The caller, with the deadline.

        Raises:
            Exception: A fault of a change, once all changes under way have ended.
        """
        if len(changes) == 1:
            [change] = changes
            try:
                caller.check_in_time()
                return [await self.run(store, change.decide, caller, paths=change.paths)]
            except ConfplaneError as error:
                return [error]
        return await self._run_bulk(store, changes, caller)

    async def _run_bulk(
        self, store: ClusterStore, changes: Sequence[EntitiesChange], caller: Caller
    ) -> list[ChangeResult[Drafts] | ConfplaneError]:
        ends: dict[int, ChangeResult[Drafts] | ConfplaneError] = {}
        bulk = Bulk(chains(change.rank for change in changes))

        def record(position: int, end: asyncio.Future[ChangeResult[Drafts] | Exception]) -> None:
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
                    found = await self.run_together(store, jobs, caller)
            except ConfplaneError as error:
                found = [_ended(error) for _ in load]
            for (position, _), end in zip(load, found, strict=True):
                if end.done():
                    record(position, end)
                else:
                    end.add_done_callback(partial(record, position))

        await bulk.run(send)
        return [ends[position] for position in range(len(changes))]

    async def run(
        self,
        store: ClusterStore,
        decide: Decide[D],
        caller: Caller,
        *,
        paths: Sequence[str] = (),
        contended: str = CONTENDED,
    ) -> ChangeResult[D]:
        """Run one change to its end. Cancelling the call does not cancel the change.

        Args:
            store: The cluster.
            decide: Decides each attempt.
            caller: The caller, with the deadline.
            paths: Full paths of the znodes that changes of this process write in turn.
            contended: The error's text when conflicts last until the deadline.

        Raises:
            ConcurrentChangeError: Other writers kept changing the entities until the deadline; nothing was applied.
            UnavailableError: ZooKeeper or Postgres is unavailable; nothing was applied.
            OutcomeUnknownError: The reply was lost and the change could not be settled in time.
            ConfplaneError: The errors of ``decide`` and of the store's admission; nothing was applied.
        """
        store.writer()  # without a session no change queues
        submission = Submission(store, caller, self._committer, shared=True)
        change = submission.change(ChangeJob(decide, paths, contended=contended))
        ended = await asyncio.shield(self._begin(self._alone(submission, change)))
        if isinstance(ended, Exception):
            raise ended
        return ended

    async def run_together(
        self, store: ClusterStore, jobs: Iterable[ChangeJob[D]], caller: Caller
    ) -> list[asyncio.Future[ChangeResult[D] | Exception]]:
        """Run several changes in shared transactions; return once the changes of shared attempts have ended.

        A change runs by itself, and may end later, if another change has its turn at the znode, if ZooKeeper refuses
        it, or if its reply is lost. Cancelling the call cancels no change.

        Args:
            store: The cluster.
            jobs: The changes. None of them reads or writes an entity of another.
            caller: The caller, with the deadline.

        Returns:
            The end of each job, in order: the result that :meth:`run` returns, or the error that it raises.

        Raises:
            UnavailableError: There is no session; nothing was begun.
        """
        writer = store.writer()
        submission = Submission(store, caller, self._committer)
        changes = [submission.change(job) for job in jobs]
        return await asyncio.shield(self._begin(self._together(submission, writer, changes)))

    def _begin(self, work: Coroutine[Any, Any, T], context: Context | None = None) -> asyncio.Task[T]:
        task = asyncio.create_task(work, context=context)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def _turn(self, change: RunningChange[Any]) -> Turn:
        name = change.store.name
        return Turn(self._turns, [f"{name}{path}" for path in change.job.paths], change.caller.deadline)

    async def _alone(self, submission: Submission, change: RunningChange[D]) -> ChangeResult[D] | Exception:
        """Wait for a change's turn, and run the change to its end."""
        self._in_flight += 1
        try:
            async with self._turn(change):
                return await submission.run(change)
        except Exception as error:  # noqa: BLE001 - raised to the caller of the change
            return error
        finally:
            self._in_flight -= 1

    async def _together(
        self, submission: Submission, writer: str, changes: Sequence[RunningChange[D]]
    ) -> list[asyncio.Future[ChangeResult[D] | Exception]]:
        turns: dict[RunningChange[D], Turn] = {}
        ends: dict[RunningChange[D], asyncio.Future[ChangeResult[D] | Exception]] = {}
        try:
            for change in changes:
                turn = self._turn(change)
                if await turn.enter_if_free():
                    self._in_flight += 1
                    turns[change] = turn
                else:
                    ends[change] = self._begin(self._alone(submission, change))
            await submission.make_first(writer, list(turns))
            for change in list(turns):
                turn = turns.pop(change)
                if change.end is None:
                    ends[change] = self._begin(self._by_itself(submission, change, turn))
                else:
                    self._leave(turn)
                    ends[change] = _ended(change.end)
        finally:
            for turn in turns.values():
                self._leave(turn)
        return [ends[change] for change in changes]

    async def _by_itself(
        self, submission: Submission, change: RunningChange[D], turn: Turn
    ) -> ChangeResult[D] | Exception:
        """Run a change to its end within its turn."""
        try:
            return await submission.run(change)
        except Exception as error:  # noqa: BLE001 - raised to the caller of the change
            return error
        finally:
            self._leave(turn)

    def _leave(self, turn: Turn) -> None:
        turn.leave()
        self._in_flight -= 1

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield Sample("changes_in_flight", self._in_flight)
        yield Sample("changes_waiting", self._committer.waiting)

    async def drain(self, timeout_s: float) -> None:
        """Wait for changes under way, so that a stop leaves no intent without its outcome."""
        deadline = time.monotonic() + timeout_s
        # The end of a shared attempt may start tasks of single changes.
        while self._running and (left := deadline - time.monotonic()) > 0:
            await asyncio.wait(self._running, timeout=left)


def _ended(end: T) -> asyncio.Future[T]:
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(end)
    return future


# ---------------------------------------------------------------- turns


class Turn:
    """One change's turn at some keys: a context in which no other change of this process has any of them.

    Entering it raises ConcurrentChangeError when the turn was not reached by the deadline.

    Args:
        waiting: The locks of all keys that a change holds or waits for, with the number of these changes.
        keys: The keys.
        deadline: The deadline.
    """

    def __init__(self, waiting: dict[str, tuple[asyncio.Lock, int]], keys: Sequence[str], deadline: float) -> None:
        self._waiting = waiting
        # In one order, so that batches can't wait for each other in a ring.
        self._keys = sorted(keys)
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
