"""The runner: from a decision to a committed transaction with its trail, the same for every kind of change.

The order is what makes config and trail agree (docs/architecture.md, "One write")::

    decide ── admission ── intent (Postgres) ── transaction (ZooKeeper) ── outcome (Postgres) ── answer
       ▲                                              │
       └───────────── conflict: decide again ─────────┘

ZooKeeper's transaction is the commit point. No intent, no transaction; no answer "applied" without the transaction; a
lost reply is never followed by another attempt, because the first may still be applied: the change is settled.

All attempts of a change are made under one ZooKeeper session, that of the first. So once its writer node is gone the
change can't commit any more, and a settler need not know whether another attempt is under way.

An attempt is submitted in two steps, admission and intent, and then committed (services/changes/commit.py). Several
changes of one caller make their first attempts together (services/changes/bulk.py), with one commit in each store for
all of them. They stay separate changes: each has its own intent, marker, outcome and result. A refusal by admission
that is due to all changes together is followed by an admission of each half. Single changes of different callers share
the transactions of their first attempts. A change that such an attempt does not end continues by itself.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

from confplane.domain.entities import EntityType
from confplane.domain.errors import (
    BodyTooLargeError,
    ConcurrentChangeError,
    ConfplaneError,
    InvalidRequestError,
    ListFullError,
    OutcomeUnknownError,
    ThrottledError,
    UnavailableError,
    UnknownTopicError,
    WriteOutcome,
)
from confplane.services.changes.commit import ChangeRun, Committer, Unwritten, reply_all
from confplane.services.changes.edits import NoChange
from confplane.services.changes.settle import committed, settle_own
from confplane.services.metrics import CHANGE_ID, Sample, span
from confplane.services.ports.trail import Intent, Outcome
from confplane.services.ports.transactions import Conflict, EntityWrite, SessionEnded, TransactionUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from contextvars import Context

    from confplane.services.changes.callers import Caller
    from confplane.services.changes.edits import ChangeJob, D
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
        self._audit = audit
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._in_flight = 0
        self._committer = Committer(audit, self.begin, now=now, most_refused=most_refused)

    async def run(self, store: ClusterStore, job: ChangeJob[D], caller: Caller) -> ChangeRun[D]:
        """Run one change to its end. Cancelling the call does not cancel the change.

        Args:
            store: The cluster.
            job: The change.
            caller: The caller, with the deadline.

        Raises:
            ConcurrentChangeError: Other writers kept changing the entities until the deadline; nothing was applied.
            UnavailableError: ZooKeeper or Postgres is unavailable; nothing was applied.
            OutcomeUnknownError: The reply was lost and the change could not be settled in time.
            ConfplaneError: The errors of the decision and of the store's admission; nothing was applied.
        """
        store.writer()  # without a session no change queues
        change = ChangeRun(store.new_change_id(), job, caller, store, shared=True)
        ended = await asyncio.shield(self.begin(self.run_in_turn(change)))
        if isinstance(ended, Exception):
            raise ended
        return ended

    def begin(self, work: Coroutine[Any, Any, T], context: Context | None = None) -> asyncio.Task[T]:
        """Begin a task that a stop waits for."""
        task = asyncio.create_task(work, context=context)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

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

    # -- turns

    async def run_in_turn(self, change: ChangeRun[D]) -> ChangeRun[D] | Exception:
        """Wait for a change's turn, and run the change to its end."""
        self._in_flight += 1
        try:
            async with self._turn(change):
                return await self._attempt(change)
        except Exception as error:  # noqa: BLE001 - raised to the caller of the change
            return error
        finally:
            self._in_flight -= 1

    async def enter_if_free(self, change: ChangeRun[Any]) -> Turn | None:
        """Return a change's turn, which :meth:`leave` ends; None if it has to wait for it."""
        turn = self._turn(change)
        if not await turn.enter_if_free():
            return None
        self._in_flight += 1
        return turn

    async def run_to_end(self, change: ChangeRun[D], turn: Turn) -> ChangeRun[D] | Exception:
        """Run a change to its end within its turn, and end the turn."""
        try:
            return await self._attempt(change)
        except Exception as error:  # noqa: BLE001 - raised to the caller of the change
            return error
        finally:
            self.leave(turn)

    def leave(self, turn: Turn) -> None:
        """End the turn of a change."""
        turn.leave()
        self._in_flight -= 1

    def _turn(self, change: ChangeRun[Any]) -> Turn:
        name = change.store.name
        return Turn(self._turns, [f"{name}{path}" for path in change.job.paths], change.caller.deadline)

    # -- the attempts of one change

    async def _attempt(self, change: ChangeRun[D]) -> ChangeRun[D] | Exception:
        """Attempt a change until it is committed, refused for good, or out of time; return the end or the error.

        A first attempt that was made together with other changes counts.
        """
        CHANGE_ID.set(change.id)
        with span("change", cluster=change.store.name, change_id=change.id) as current:
            try:
                ended = await self._attempts(change)
            except ConfplaneError as error:
                ended = await self._failed(change, error)
            if current.recorded:
                current.set(**_facts_of(ended))
            return ended

    async def _attempts(self, change: ChangeRun[D]) -> ChangeRun[D] | Exception:
        if change.result is None:
            await self._make(change, again=False)
        while isinstance(change.result, Conflict):
            if time.monotonic() >= change.caller.deadline:
                raise ConcurrentChangeError(change.job.contended, retry_after_s=1)
            await self._make(change, again=True)
        if isinstance(change.result, SessionEnded):
            raise UnavailableError(
                f"ZooKeeper refused the write: {change.result.reason}; nothing was applied, try again", retry_after_s=1
            )
        if isinstance(change.result, Exception):
            # Changes of a shared attempt share the error: it is not raised in each of them.
            return await self._failed(change, change.result)
        if isinstance(change.result, TransactionUnknown):
            await self._settle(change)
        elif change.unchanged is not None:
            await self._reject(change, change.unchanged.error)
        return change

    async def _make(self, change: ChangeRun[Any], *, again: bool) -> None:
        """Decide an attempt and submit it; the change then has its result."""
        store, deadline = change.store, change.caller.deadline
        writer = store.writer()
        with span("draft", again=again):
            decision = await change.job.decide(again=again)
        if not isinstance(decision, NoChange):
            change.begin(writer, decision)
            await self.submit([change])
        elif decision.seen is None:
            change.end_unwritten(decision)
        elif (revision := await store.confirm(writer, decision.seen, deadline, layout=decision.layout)) is not None:
            change.end_unwritten(decision, revision)
        else:
            change.result = Conflict()

    async def _settle(self, change: ChangeRun[Any]) -> None:
        """Settle a transaction whose reply was lost, until the deadline."""
        with span("settle") as current:
            outcome = await settle_own(
                *(self._audit, change.store, change.id, change.number),
                began=change.began,
                deadline=change.caller.deadline,
                writes=change.draft.writes,
            )
            current.set(outcome="committed" if outcome.committed else "aborted")
        change.settled = True
        if not outcome.committed:
            raise UnavailableError(
                "ZooKeeper's reply was lost, and the write was settled as aborted; nothing was applied, try again",
                retry_after_s=1,
            )
        change.result = committed(outcome, change.draft.writes)

    async def _failed(self, change: ChangeRun[Any], error: Exception) -> Exception:
        """Close a change that ends with this error; return the error."""
        # After an unknown outcome the intent stays open until it is settled.
        if isinstance(error, ConfplaneError) and not isinstance(error, OutcomeUnknownError):
            # ZooKeeper refused every attempt that was submitted, and the last one was not submitted.
            error.outcome = error.outcome or WriteOutcome.NOT_APPLIED
            await self._reject(change, error)
        return error

    async def _reject(self, change: ChangeRun[Any], error: ConfplaneError | None) -> None:
        """Close a change that has intents and certainly no effect."""
        if not change.intended or change.settled:
            return
        code, text = (0, "It already was as asked") if error is None else (int(error.code), error.detail)
        await self._audit.conclude(
            [Outcome(change.id, change.intended, change.store.name, committed=False, error_code=code, error=text)]
        )
        if error is not None:
            error.in_trail = True

    # -- admission and intent

    async def submit(self, changes: Sequence[ChangeRun[Any]]) -> None:
        """Make the begun attempts of changes. Then each has its result, and a committed change has its outcome.

        Args:
            changes: The changes, in the order of their ids. No two write one znode.
        """
        alike: dict[Any, list[ChangeRun[Any]]] = {}
        for change in changes:
            draft = change.draft
            alike.setdefault((change.writer, draft.layout, draft.guarded), []).append(change)
        for some in alike.values():
            await self._admit(some)

    async def _admit(self, changes: list[ChangeRun[Any]]) -> None:
        writes = [write for change in changes for write in change.draft.writes]
        first, count = changes[0], len(changes)
        deadline, guarded = first.caller.deadline, first.draft.guarded
        try:
            first.share = await first.store.check_admission(writes, deadline, guarded=guarded, changes=count)
        except UnknownTopicError as error:
            if count == 1:
                reply_all(changes, error)
                return
            unknown = [change for change in changes if _names(change, error.topics)]
            others = [change for change in changes if not _names(change, error.topics)]
            # Each error names the topic of its own change.
            await asyncio.gather(*map(self._admit, [*([each] for each in unknown), *([others] if others else [])]))
        except (BodyTooLargeError, ListFullError, ThrottledError) as error:
            if count == 1:
                reply_all(changes, error)
                return
            # Each half may be admitted. The second half is later: the first half's notifications count.
            await self._admit(changes[: count // 2])
            await self._admit(changes[count // 2 :])
        except ConfplaneError as error:
            reply_all(changes, error)
        else:
            if first.caller.validate_only:
                reply_all(changes, Unwritten())
            else:
                await self._intend(changes)

    async def _intend(self, changes: list[ChangeRun[Any]]) -> None:
        caller = changes[0].caller
        intents = [_intent(change) for change in changes]
        run = caller.run
        claims = [] if run is None else [run.claim(change.draft.answers, caller.deadline) for change in changes]
        try:
            # After a failure nothing is submitted. Rows may have been written, and are then settled as aborted.
            with span("intent", change_ids=[change.id for change in changes]):
                await self._audit.intend(intents, claims)
        except Exception as error:  # noqa: BLE001 - the result of the change concerned
            is_refused = isinstance(error, InvalidRequestError) or not isinstance(error, ConfplaneError)
            if len(changes) == 1 or not is_refused:
                reply_all(changes, error)
                return
            # Postgres refuses the content of one intent. The rows of the others are written, and are ignored when
            # written again.
            await asyncio.gather(*(self._intend([change]) for change in changes))
        else:
            for change, intent in zip(changes, intents, strict=True):
                change.intent, change.intended = intent, intent.attempt
            if changes[0].shared:
                await self._committer.commit_shared(changes[0])
            else:
                await self._committer.commit(changes, caller.deadline)


def _intent(change: ChangeRun[Any]) -> Intent:
    caller = change.caller
    return Intent(
        change_id=change.id,
        attempt=change.number,
        cluster=change.store.name,
        writer=change.writer,
        principal=caller.principal,
        source=caller.source,
        request_id=caller.request_id,
        reason=caller.reason or caller.break_glass,
        ticket=caller.ticket,
        entities=change.draft.entities,
        behalf_of=caller.behalf_of,
        kind=change.draft.kind,
        observed=change.draft.observed,
        reverts=change.draft.reverts,
        revert_at=caller.revert_at,
        ends=caller.ends,
        applies=caller.request_applied,
    )


def _facts_of(ended: ChangeRun[Any] | Exception) -> dict[str, str]:
    """Return the facts of a change's span at its end."""
    error = ended if isinstance(ended, Exception) else ended.error
    if isinstance(error, ConfplaneError):
        return {"outcome": (error.outcome or WriteOutcome.UNKNOWN).value, "error": error.code.name}
    if isinstance(ended, Exception):
        return {"outcome": WriteOutcome.UNKNOWN.value, "error": type(ended).__name__}
    return {"outcome": "unchanged" if ended.change_id is None else "applied"}


def _names(change: ChangeRun[Any], topics: frozenset[str]) -> bool:
    """Return True if a change writes one of these topics."""
    return any(
        isinstance(write, EntityWrite) and write.entity.get(EntityType.TOPIC) in topics for write in change.draft.writes
    )


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
