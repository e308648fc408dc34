"""Shared transactions: concurrent single changes of different callers, committed together.

A change whose intent is durable goes at once while fewer than two transactions of its queue are under way, together
with whatever waits; otherwise it waits for the next reply of ZooKeeper. So a lone caller never waits, and many callers
share the cost of a transaction. Each change keeps its caller: its intent, marker, outcome, errors and deadline.

These go alone: a further attempt; a change of a path that ZooKeeper refused within the last second, since an entity
that others write in a loop must not delay other callers; and a change of the cluster's own states.

The rest is the same as for the changes of one request (services/changes/committer.py): a refused change is decided
again, and after a lost reply each change is settled by its own marker.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.errors import ConfplaneError, UnavailableError
from confplane.services.ports.trail import FEW
from confplane.services.ports.transactions import Conflict, EntityWrite, Guarded, TransactionUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from confplane.services.changes.commit import Attempt, Committer

AT_ONCE: Final = 2
"""The greatest number of transactions of a queue that wait for their replies."""
_REFUSED_S: Final = 1.0


@dataclass(slots=True, eq=False)
class _Waiting:
    """A change that waits for a transaction, and the share of a transaction's size that it takes."""

    committer: Committer
    attempt: Attempt[Any]
    share: float


class _Queue:
    """The changes of one cluster that may share a transaction: of one writer node and one layout check.

    As long as fewer than :data:`AT_ONCE` transactions are under way, no change waits.
    """

    def __init__(self) -> None:
        self.waiting: deque[_Waiting] = deque()
        self.in_flight = 0

    def next_load(self) -> list[_Waiting]:
        """Take the changes of the next transaction, in the order of their ids. No two of them write one znode."""
        load: list[_Waiting] = []
        paths: set[str] = set()
        share = 0.0
        while self.waiting and len(load) < FEW:
            first = self.waiting[0]
            own = {write.path for write in first.attempt.draft.writes}
            share += first.share
            if load and (share > 1 or not paths.isdisjoint(own)):
                break
            paths |= own
            load.append(self.waiting.popleft())
        return sorted(load, key=lambda each: each.attempt.change_id)


class SharedTransactions:
    """The queues of all clusters of a process.

    Args:
        begin: Begins a task that a stop waits for.
        now: The clock of refused paths, in seconds.
        most_refused: The greatest number of refused paths that are kept; more of them drop the oldest.
    """

    def __init__(
        self,
        begin: Callable[[Coroutine[Any, Any, None]], object],
        *,
        now: Callable[[], float] = time.monotonic,
        most_refused: int = 10_000,
    ) -> None:
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

    async def commit(self, committer: Committer, attempt: Attempt[Any]) -> None:
        """Commit an attempt whose intent is durable, alone or together with those of other callers.

        It then has its result. If it is not reached by the deadline of its caller, it ends with UnavailableError before
        it was submitted, and with TransactionUnknown after that: then the change has to be settled.
        """
        share = self._share(committer, attempt)
        if share is None:
            await committer.commit([attempt], attempt.caller.deadline)
        else:
            key = committer.store.name, attempt.writer, attempt.draft.layout
            queue = self._queues.setdefault(key, _Queue())
            if queue.in_flight < AT_ONCE:
                queue.in_flight += 1
                await self._send(key, queue, committer, [attempt])
            else:
                await _wait(queue, _Waiting(committer, attempt, share))
        if isinstance(attempt.result, Conflict):
            self._note_refusal(committer, attempt)

    def _share(self, committer: Committer, attempt: Attempt[Any]) -> float | None:
        """Return the part of a shared transaction's size that an attempt takes; None if it goes alone."""
        draft = attempt.draft
        if attempt.number > 1 or draft.guarded is not Guarded.CALLER:
            return None
        if not all(isinstance(write, EntityWrite) for write in draft.writes):
            return None
        if self._refused and any(self._was_refused(path) for path in _paths(committer, attempt)):
            return None
        share = committer.store.packet_share(draft.writes)
        return share if share <= 1 else None

    def _was_refused(self, path: str) -> bool:
        at = self._refused.get(path)
        return at is not None and self._now() - at < _REFUSED_S

    def _note_refusal(self, committer: Committer, attempt: Attempt[Any]) -> None:
        for path in _paths(committer, attempt):
            self._refused.pop(path, None)
            self._refused[path] = self._now()
        while len(self._refused) > self._most_refused:
            del self._refused[next(iter(self._refused))]

    async def _send(self, key: Any, queue: _Queue, committer: Committer, attempts: list[Attempt[Any]]) -> None:
        """Send a transaction that counts as under way; return once its attempts have their results."""
        is_counted = True

        def replied() -> None:
            nonlocal is_counted
            if is_counted:
                is_counted = False
                queue.in_flight -= 1
                self._send_waiting(key, queue)

        try:
            await committer.commit(attempts, max(each.caller.deadline for each in attempts), replied)
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
            self._begin(self._send(key, queue, load[0].committer, [each.attempt for each in load]))
        if not queue.in_flight:
            self._queues.pop(key, None)


async def _wait(queue: _Queue, waiting: _Waiting) -> None:
    """Wait until an attempt has its result, until the deadline of its caller."""
    attempt = waiting.attempt
    ended = attempt.ended = asyncio.Event()
    queue.waiting.append(waiting)
    try:
        async with asyncio.timeout(attempt.caller.deadline - time.monotonic()):
            await ended.wait()
    except TimeoutError:
        if waiting in queue.waiting:
            queue.waiting.remove(waiting)
            attempt.result = _late()
        elif attempt.result is None:
            attempt.result = TransactionUnknown()
        else:
            await ended.wait()  # its outcome is being written


def _late() -> ConfplaneError:
    return UnavailableError(
        "The deadline passed before anything was submitted; nothing was applied, try again", retry_after_s=1
    )


def _paths(committer: Committer, attempt: Attempt[Any]) -> list[str]:
    return [f"{committer.store.name}{write.path}" for write in attempt.draft.writes]
