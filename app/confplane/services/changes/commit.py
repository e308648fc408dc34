"""Commits: attempts whose intents are durable on their way through a transaction of ZooKeeper to their outcomes.

- ZooKeeper applies a transaction whole or not at all, and its refusal blames one change
  (store/write/transactions.py). The other changes are submitted again under the same attempt and intent: their
  writes are the same and do not depend on the refused one, since no two of them read each other's entity
  (services/changes/bulk.py). After a second refusal each is submitted alone.
- After a lost reply nothing is submitted again: each change is settled by its own marker.

Concurrent single changes of different callers are committed together. A change goes at once while fewer than two
transactions of its queue are under way, together with whatever waits; otherwise it waits for the next reply of
ZooKeeper. So a lone caller never waits, and many callers share the cost of a transaction. Each change keeps its caller:
its intent, marker, outcome, errors and deadline. These go alone: a further attempt; a change of a path that ZooKeeper
refused within the last second, since an entity that is written in a loop must not delay other callers; and a change of
the cluster's own states.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic

from confplane.domain.errors import BodyTooLargeError, ConfplaneError, UnavailableError
from confplane.services.changes.draft import D
from confplane.services.metrics import span
from confplane.services.ports.trail import FEW, Outcome
from confplane.services.ports.transactions import (
    ChangeWrites,
    Committed,
    Conflict,
    EntityWrite,
    Guarded,
    SessionEnded,
    Transaction,
    TransactionUnknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from uuid import UUID

    from confplane.services.changes.callers import Caller
    from confplane.services.changes.draft import Draft
    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import AuditLog
    from confplane.services.ports.transactions import CommitResult

AT_ONCE: Final = 2
"""The greatest number of transactions of a queue that wait for their replies."""
_REFUSED_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Validated:
    """The attempt was admitted, and ends there."""


AttemptResult = Committed | Conflict | SessionEnded | TransactionUnknown | Validated | Exception
"""The result of one attempt. After an exception nothing is applied."""


@dataclass(slots=True, eq=False)
class Attempt(Generic[D]):
    """An attempt at one change, and its result."""

    change_id: UUID
    number: int
    caller: Caller
    writer: str
    """The writer node of the attempt's session."""
    store: ClusterStore
    draft: Draft[D]
    intended: bool = False
    """True once the intent is durable."""
    result: AttemptResult | None = None
    """None until the attempt was made."""
    ended: asyncio.Event | None = None
    """Set once the result is known and a commit has its outcome, for a caller who waits for another's transaction."""
    share: float = 0.0
    """The part of a shared transaction's size that the attempt takes, if it waits for one."""
    context: Context | None = None
    """The caller's context, with its ids and its span, if the attempt waits for a shared transaction."""

    def end(self, result: AttemptResult) -> None:
        """Set the result."""
        self.result = result
        if self.ended is not None:
            self.ended.set()


class _Queue:
    """The changes of one cluster that may share a transaction: of one writer node and one layout check.

    As long as fewer than :data:`AT_ONCE` transactions are under way, no change waits.
    """

    def __init__(self) -> None:
        self.waiting: deque[Attempt[Any]] = deque()
        self.in_flight = 0

    def next_load(self) -> list[Attempt[Any]]:
        """Take the changes of the next transaction, in the order of their ids. No two of them write one znode."""
        load: list[Attempt[Any]] = []
        paths: set[str] = set()
        share = 0.0
        while self.waiting and len(load) < FEW:
            first = self.waiting[0]
            own = {write.path for write in first.draft.writes}
            share += first.share
            if load and (share > 1 or not paths.isdisjoint(own)):
                break
            paths |= own
            load.append(self.waiting.popleft())
        return sorted(load, key=lambda each: each.change_id)


class Committer:
    """Commits attempts, those of different callers together. One instance serves all clusters of a process.

    Args:
        audit: The trail.
        begin: Begins a task that a stop waits for, in a context.
        now: The clock of refused paths, in seconds.
        most_refused: The greatest number of refused paths that are kept; more of them drop the oldest.
    """

    def __init__(
        self,
        audit: AuditLog,
        begin: Callable[[Coroutine[Any, Any, None], Context | None], object],
        *,
        now: Callable[[], float] = time.monotonic,
        most_refused: int = 10_000,
    ) -> None:
        self.audit = audit
        self._begin = begin
        self._now = now
        self._most_refused = most_refused
        self._queues: dict[Any, _Queue] = {}
        self._refused: dict[str, float] = {}
        """Cluster and path -> the time of the last refusal, the oldest first."""

    @property
    def waiting(self) -> int:
        """The number of changes that wait for a transaction."""
        return sum(len(queue.waiting) for queue in self._queues.values())

    async def commit(
        self, attempts: list[Attempt[Any]], deadline: float, replied: Callable[[], None] = lambda: None
    ) -> None:
        """Commit attempts whose intents are durable. Then each has its result, and a committed attempt its outcome.

        Args:
            attempts: The attempts in one cluster, of any callers, in the order of their ids. No two write one znode.
            deadline: The latest deadline of a caller.
            replied: Called once all transactions have their results, before the last outcomes are written; not called
                if one of several that go alone had a fault.
        """
        left = attempts
        for again in (False, True):
            result = await self._transact(left, deadline, again=again)
            blamed = result.change_id if isinstance(result, (Conflict, SessionEnded)) else None
            # Callers can't share one error, and alone a change gets its own.
            alone = isinstance(result, BodyTooLargeError if _is_of_one_caller(left) else ConfplaneError)
            if len(left) > 1 and alone:
                break
            if blamed is None:
                replied()
                await self._conclude(left, result)
                return
            end_all([attempt for attempt in left if attempt.change_id == blamed], result)
            left = [attempt for attempt in left if attempt.change_id != blamed]
        under_way = len(left)

        def one_replied() -> None:
            nonlocal under_way
            under_way -= 1
            if not under_way:
                replied()

        await asyncio.gather(*(self._commit_alone(attempt, one_replied) for attempt in left))

    async def _commit_alone(self, attempt: Attempt[Any], replied: Callable[[], None]) -> None:
        try:
            result = await self._transact([attempt], attempt.caller.deadline, again=True)
            replied()
            await self._conclude([attempt], result)
        except Exception as error:  # noqa: BLE001 - a fault of one change is not the result of the others
            attempt.end(attempt.result or error)

    async def _transact(
        self, attempts: list[Attempt[Any]], deadline: float, *, again: bool
    ) -> CommitResult | ConfplaneError:
        writer, draft = attempts[0].writer, attempts[0].draft
        changes = tuple(
            ChangeWrites(each.change_id, each.number, each.draft.writes, each.caller.principal, each.caller.request_id)
            for each in attempts
        )
        transaction = Transaction(writer, changes, draft.layout, draft.guarded, again)
        with span("transaction", change_ids=[each.change_id for each in attempts]) as current:
            try:
                result: CommitResult | ConfplaneError = await attempts[0].store.commit(transaction, deadline)
            except ConfplaneError as error:
                result = error
            current.set(outcome=type(result).__name__)
        return result

    async def _conclude(self, attempts: list[Attempt[Any]], result: AttemptResult) -> None:
        """Set the results of attempts of one transaction, and write the outcomes of a commit."""
        if not isinstance(result, Committed):
            end_all(attempts, result)
            return
        store, outcomes = attempts[0].store, []
        for attempt, part in zip(attempts, result.parts([each.draft.writes for each in attempts]), strict=True):
            attempt.result = part
            outcomes.append(
                Outcome(
                    attempt.change_id,
                    attempt.number,
                    store.name,
                    committed=True,
                    revision=part.revision,
                    time_ms=part.time_ms,
                    versions=part.versions,
                    remade=part.remade,
                    incarnation=store.incarnation,
                )
            )
        with span("outcome", change_ids=[attempt.change_id for attempt in attempts]):
            durable = await self.audit.conclude(outcomes)
        if durable:
            # The markers are dropped some time later.
            for attempt in attempts:
                store.markers.release(attempt.change_id)
        for attempt in attempts:
            if attempt.ended is not None:
                attempt.ended.set()

    # -- transactions of several callers

    async def commit_shared(self, attempt: Attempt[Any]) -> None:
        """Commit an attempt whose intent is durable, alone or together with those of other callers.

        It then has its result. If it is not reached by the deadline of its caller, it ends with UnavailableError before
        it was submitted, and with TransactionUnknown after that: then the change has to be settled.
        """
        share = self._share(attempt)
        if share is None:
            await self.commit([attempt], attempt.caller.deadline)
        else:
            key = attempt.store.name, attempt.writer, attempt.draft.layout
            queue = self._queues.setdefault(key, _Queue())
            if queue.in_flight < AT_ONCE:
                queue.in_flight += 1
                await self._send(key, queue, [attempt])
            else:
                attempt.share, attempt.context = share, copy_context()
                await _wait(queue, attempt)
        if isinstance(attempt.result, Conflict):
            self._note_refusal(attempt)

    def _share(self, attempt: Attempt[Any]) -> float | None:
        """Return the part of a shared transaction's size that an attempt takes; None if it goes alone."""
        draft = attempt.draft
        if attempt.number > 1 or draft.guarded is not Guarded.CALLER:
            return None
        if not all(isinstance(write, EntityWrite) for write in draft.writes):
            return None
        if self._refused and any(self._was_refused(path) for path in _paths(attempt)):
            return None
        share = attempt.store.packet_share(draft.writes)
        return share if share <= 1 else None

    def _was_refused(self, path: str) -> bool:
        at = self._refused.get(path)
        return at is not None and self._now() - at < _REFUSED_S

    def _note_refusal(self, attempt: Attempt[Any]) -> None:
        for path in _paths(attempt):
            self._refused.pop(path, None)
            self._refused[path] = self._now()
        while len(self._refused) > self._most_refused:
            del self._refused[next(iter(self._refused))]

    async def _send(self, key: Any, queue: _Queue, attempts: list[Attempt[Any]]) -> None:
        """Send a transaction that counts as under way; return once its attempts have their results."""
        is_counted = True

        def replied() -> None:
            nonlocal is_counted
            if is_counted:
                is_counted = False
                queue.in_flight -= 1
                self._send_waiting(key, queue)

        try:
            await self.commit(attempts, max(each.caller.deadline for each in attempts), replied)
        except Exception as error:
            if attempts[0].ended is None:
                raise  # to its caller, who did not wait
            for attempt in attempts:
                fault = RuntimeError(f"The shared transaction failed: {error}")
                fault.__cause__ = error
                attempt.end(attempt.result or fault)
        finally:
            replied()

    def _send_waiting(self, key: Any, queue: _Queue) -> None:
        while queue.waiting and queue.in_flight < AT_ONCE:
            load = queue.next_load()
            queue.in_flight += 1
            self._begin(self._send(key, queue, load), load[0].context)
        if not queue.in_flight:
            self._queues.pop(key, None)


def end_all(attempts: Sequence[Attempt[Any]], result: AttemptResult) -> None:
    """Give attempts the same result."""
    for attempt in attempts:
        attempt.end(result)


def _is_of_one_caller(attempts: Sequence[Attempt[Any]]) -> bool:
    return all(attempt.caller is attempts[0].caller for attempt in attempts)


async def _wait(queue: _Queue, attempt: Attempt[Any]) -> None:
    """Wait until an attempt has its result, until the deadline of its caller."""
    ended = attempt.ended = asyncio.Event()
    queue.waiting.append(attempt)
    try:
        with span("wait"):
            async with asyncio.timeout(attempt.caller.deadline - time.monotonic()):
                await ended.wait()
    except TimeoutError:
        if attempt in queue.waiting:
            queue.waiting.remove(attempt)
            attempt.result = UnavailableError(
                "The deadline passed before anything was submitted; nothing was applied, try again", retry_after_s=1
            )
        elif attempt.result is None:
            attempt.result = TransactionUnknown()
        else:
            await ended.wait()  # its outcome is being written


def _paths(attempt: Attempt[Any]) -> list[str]:
    return [f"{attempt.store.name}{write.path}" for write in attempt.draft.writes]
