"""Commits: changes whose intents are durable on their way through a transaction of ZooKeeper to their outcomes.

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
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic

from confplane.domain.errors import BodyTooLargeError, ConfplaneError, UnavailableError, WriteOutcome
from confplane.services.changes.edits import D
from confplane.services.metrics import span
from confplane.services.ports.trail import FEW, Outcome
from confplane.services.ports.transactions import (
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
    from confplane.services.changes.edits import ChangeJob, Draft, NoChange
    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import AuditLog, Intent
    from confplane.services.ports.transactions import CommitResult, Write

AT_ONCE: Final = 2
"""The greatest number of transactions of a queue that wait for their replies."""
_REFUSED_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Unwritten:
    """The attempt ended without a write: it was only validated, or decided to write nothing."""

    revision: int | None = None
    """The revision at which ZooKeeper confirmed the decision to write nothing."""


AttemptResult = Committed | Conflict | SessionEnded | TransactionUnknown | Unwritten | Exception
"""The result of one attempt. After an exception nothing is applied."""


@dataclass(slots=True, eq=False)
class ChangeRun(Generic[D]):
    """A change from its begin to its end, with its last attempt.

    At its end :attr:`result` is Committed or Unwritten. A change that is refused or fails ends with an exception.
    """

    id: UUID
    """The change's id, above the ids of all earlier changes of this process."""
    job: ChangeJob[D]
    caller: Caller
    store: ClusterStore
    began: float = field(default_factory=time.monotonic)
    number: int = 0
    """The number of the attempt; 0 before the first."""
    writer: str = ""
    """The writer node of the session of all attempts."""
    draft: Draft[D] = field(init=False)
    """The draft of the attempt; set by :meth:`begin`."""
    intent: Intent = field(init=False)
    """The intent of the last attempt for which one is durable; set together with :attr:`intended`."""
    intended: int = 0
    """The number of that attempt."""
    result: AttemptResult | None = None
    """The result of the attempt; None until it was made."""
    unchanged: NoChange[D] | None = None
    """The last decision, if it is to write nothing. ZooKeeper has to confirm it."""
    settled: bool = False
    """True once the outcome was decided by the marker."""
    replied: asyncio.Event | None = None
    """Set once the result is known and a commit has its outcome, for a caller who waits for another's transaction."""
    shared: bool = False
    """True for a single change, whose first attempt may share a transaction with changes of other callers."""
    share: float = 0.0
    """The part of a shared transaction's greatest size that the change takes, if it was admitted alone."""
    context: Context | None = None
    """The caller's context, with its ids and its span, if the change waits for a shared transaction."""

    def begin(self, writer: str, draft: Draft[D]) -> None:
        """Begin the next attempt.

        Raises:
            UnavailableError: The session is not that of the first attempt.
        """
        if self.number and writer != self.writer:
            raise UnavailableError(
                "The ZooKeeper session was replaced between two attempts; nothing was applied, try again",
                retry_after_s=1,
            )
        self.number, self.writer, self.draft = self.intended + 1, writer, draft
        self.unchanged = self.result = self.replied = None

    def reply(self, result: AttemptResult) -> None:
        """Set the result of the attempt, unless the change was settled before this reply came."""
        if not self.settled:
            self.result = result
        if self.replied is not None:
            self.replied.set()

    def end_unwritten(self, decision: NoChange[D], revision: int | None = None) -> None:
        """Set the result of a decision to write nothing that ZooKeeper confirmed at a revision."""
        if decision.error is not None:
            decision.error.outcome = decision.error.outcome or WriteOutcome.NOT_APPLIED
            decision.error.revision = revision
        self.unchanged, self.result = decision, Unwritten(revision)

    # -- the end

    @property
    def decided(self) -> D:
        """The decision that was carried out."""
        return self.draft.decided if self.unchanged is None else self.unchanged.decided

    @property
    def committed(self) -> Committed | None:
        """The commit; None if nothing was written."""
        return self.result if isinstance(self.result, Committed) else None

    @property
    def change_id(self) -> UUID | None:
        """The id of the change; None if nothing was written."""
        return None if self.committed is None else self.id

    @property
    def error(self) -> ConfplaneError | None:
        """The reason to write nothing; see :class:`NoChange`."""
        return None if self.unchanged is None else self.unchanged.error

    @property
    def revision(self) -> int | None:
        """The revision of the transaction, or the one at which ZooKeeper confirmed a decision to write nothing."""
        return self.result.revision if isinstance(self.result, (Committed, Unwritten)) else None


class _Queue:
    """The changes of one cluster that may share a transaction: of one writer node and one layout check.

    As long as fewer than :data:`AT_ONCE` transactions are under way, no change waits.
    """

    def __init__(self) -> None:
        self.waiting: deque[ChangeRun[Any]] = deque()
        self.in_flight = 0

    def next_load(self) -> list[ChangeRun[Any]]:
        """Take the changes of the next transaction, in the order of their ids. No two of them write one znode."""
        load: list[ChangeRun[Any]] = []
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
        return sorted(load, key=lambda each: each.id)


class Committer:
    """Commits changes, those of different callers together. One instance serves all clusters of a process.

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
        self, changes: list[ChangeRun[Any]], deadline: float, replied: Callable[[], None] = lambda: None
    ) -> None:
        """Commit changes whose intents are durable. Then each has its result, and a committed one its outcome.

        Args:
            changes: The changes in one cluster, of any callers, in the order of their ids. No two write one znode.
            deadline: The latest deadline of a caller.
            replied: Called once all transactions have their results, before the last outcomes are written; not called
                if one of several that go alone had a fault.
        """
        left = changes
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
            reply_all([change for change in left if change.id == blamed], result)
            left = [change for change in left if change.id != blamed]
        under_way = len(left)

        def one_replied() -> None:
            nonlocal under_way
            under_way -= 1
            if not under_way:
                replied()

        await asyncio.gather(*(self._commit_alone(change, one_replied) for change in left))

    async def _commit_alone(self, change: ChangeRun[Any], replied: Callable[[], None]) -> None:
        try:
            result = await self._transact([change], change.caller.deadline, again=True)
            replied()
            await self._conclude([change], result)
        except Exception as error:  # noqa: BLE001 - a fault of one change is not the result of the others
            change.reply(change.result or error)

    async def _transact(
        self, changes: list[ChangeRun[Any]], deadline: float, *, again: bool
    ) -> CommitResult | ConfplaneError:
        writer, draft = changes[0].writer, changes[0].draft
        intents, writes = tuple([each.intent for each in changes]), tuple([each.draft.writes for each in changes])
        transaction = Transaction(writer, intents, writes, draft.layout, draft.guarded, again)
        with span("transaction", change_ids=[each.id for each in changes]) as current:
            try:
                result: CommitResult | ConfplaneError = await changes[0].store.commit(transaction, deadline)
            except ConfplaneError as error:
                result = error
            current.set(outcome=type(result).__name__)
        return result

    async def _conclude(self, changes: list[ChangeRun[Any]], result: AttemptResult) -> None:
        """Set the results of changes of one transaction, and write the outcomes of a commit."""
        if not isinstance(result, Committed):
            reply_all(changes, result)
            return
        store, outcomes = changes[0].store, []
        for change, part in zip(changes, parts_of(result, [each.draft.writes for each in changes]), strict=True):
            change.result = part
            outcomes.append(
                Outcome(
                    change.id,
                    change.number,
                    store.name,
                    committed=True,
                    revision=part.revision,
                    time_ms=part.time_ms,
                    versions=part.versions,
                    remade=part.remade,
                    incarnation=store.incarnation,
                )
            )
        with span("outcome", change_ids=[change.id for change in changes]):
            durable = await self.audit.conclude(outcomes)
        if durable:
            # The markers are dropped some time later.
            for change in changes:
                store.markers.release(change.id)
        for change in changes:
            if change.replied is not None:
                change.replied.set()

    # -- transactions of several callers

    async def commit_shared(self, change: ChangeRun[Any]) -> None:
        """Commit a change whose intent is durable, alone or together with those of other callers.

        It then has its result. If it is not reached by the deadline of its caller, it ends with UnavailableError before
        it was submitted, and with TransactionUnknown after that: then the change has to be settled.
        """
        if self._goes_alone(change):
            await self.commit([change], change.caller.deadline)
        else:
            key = change.store.name, change.writer, change.draft.layout
            queue = self._queues.setdefault(key, _Queue())
            if queue.in_flight < AT_ONCE:
                queue.in_flight += 1
                await self._send(key, queue, [change])
            else:
                change.context = copy_context()
                await _wait(queue, change)
        if isinstance(change.result, Conflict):
            self._note_refusal(change)

    def _goes_alone(self, change: ChangeRun[Any]) -> bool:
        draft = change.draft
        if change.number > 1 or change.share > 1 or draft.guarded is not Guarded.CALLER:
            return True
        if not all(isinstance(write, EntityWrite) for write in draft.writes):
            return True
        return bool(self._refused) and any(self._was_refused(path) for path in _paths(change))

    def _was_refused(self, path: str) -> bool:
        at = self._refused.get(path)
        return at is not None and self._now() - at < _REFUSED_S

    def _note_refusal(self, change: ChangeRun[Any]) -> None:
        for path in _paths(change):
            self._refused.pop(path, None)
            self._refused[path] = self._now()
        while len(self._refused) > self._most_refused:
            del self._refused[next(iter(self._refused))]

    async def _send(self, key: Any, queue: _Queue, changes: list[ChangeRun[Any]]) -> None:
        """Send a transaction that counts as under way; return once its changes have their results."""
        is_counted, is_awaited = True, changes[0].replied is not None

        def replied() -> None:
            nonlocal is_counted
            if is_counted:
                is_counted = False
                queue.in_flight -= 1
                self._send_waiting(key, queue)

        try:
            await self.commit(changes, max(each.caller.deadline for each in changes), replied)
        except Exception as error:
            if not is_awaited:
                raise  # to its caller, who did not wait
            for change in changes:
                # A refused change may have begun its next attempt already, for which nobody waits.
                if change.replied is not None and not change.replied.is_set():
                    fault = RuntimeError(f"The shared transaction failed: {error}")
                    fault.__cause__ = error
                    change.reply(change.result or fault)
        finally:
            replied()

    def _send_waiting(self, key: Any, queue: _Queue) -> None:
        while queue.waiting and queue.in_flight < AT_ONCE:
            load = queue.next_load()
            queue.in_flight += 1
            self._begin(self._send(key, queue, load), load[0].context)
        if not queue.in_flight:
            self._queues.pop(key, None)


def parts_of(committed: Committed, changes: Sequence[Sequence[Write]]) -> list[Committed]:
    """Return the parts of the changes of a transaction: the same revision and time, the nodes of each.

    Args:
        committed: The result of the transaction.
        changes: The writes of each change, in the order of the transaction.
    """
    if len(changes) == 1:
        return [committed]
    nodes = iter(committed.nodes)
    found = []
    for writes in changes:
        paths = [write.path for write in writes]
        own = tuple(islice(nodes, sum(isinstance(write, EntityWrite) for write in writes)))
        versions = {path: committed.versions[path] for path in paths if path in committed.versions}
        remade = {path: committed.remade[path] for path in paths if path in committed.remade}
        found.append(Committed(committed.revision, committed.time_ms, own, versions, remade))
    return found


def reply_all(changes: Sequence[ChangeRun[Any]], result: AttemptResult) -> None:
    """Give changes the same result."""
    for change in changes:
        change.reply(result)


def _is_of_one_caller(changes: Sequence[ChangeRun[Any]]) -> bool:
    return all(change.caller is changes[0].caller for change in changes)


async def _wait(queue: _Queue, change: ChangeRun[Any]) -> None:
    """Wait until a change has its result, until the deadline of its caller."""
    replied = change.replied = asyncio.Event()
    queue.waiting.append(change)
    try:
        with span("wait"):
            async with asyncio.timeout(change.caller.deadline - time.monotonic()):
                await replied.wait()
    except TimeoutError:
        if change in queue.waiting:
            queue.waiting.remove(change)
            change.result = UnavailableError(
                "The deadline passed before anything was submitted; nothing was applied, try again", retry_after_s=1
            )
        elif change.result is None:
            change.result = TransactionUnknown()
        else:
            await replied.wait()  # its outcome is being written


def _paths(change: ChangeRun[Any]) -> list[str]:
    return [f"{change.store.name}{write.path}" for write in change.draft.writes]
