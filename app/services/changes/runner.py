"""The runner: from a decision to a committed transaction with its trail, the same for every kind of change.

The order is what makes config and trail agree (docs/architecture.md, "One write")::

    decide ── admission ── intent (Postgres) ── transaction (ZooKeeper) ── outcome (Postgres) ── answer
       ▲                                              │
       └───────────── conflict: decide again ─────────┘

ZooKeeper's transaction is the commit point. No intent, no transaction; no answer "applied" without the transaction; a
lost reply is never followed by another attempt, because the first may still be applied: the change is settled.

All attempts of a change are made under one ZooKeeper session, that of the first. So once its writer node is gone the
change can't commit any more, and whoever settles it need not know whether another attempt is on its way.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from app.domain.errors import (
    ConcurrentChangeError,
    ConfplaneError,
    OutcomeUnknownError,
    UnavailableError,
    WriteOutcome,
)
from app.services.changes.draft import D, Unchanged
from app.services.changes.queues import Queues
from app.services.changes.settle import committed, settle_own
from app.services.metrics import Sample
from app.services.ports.trail import Intent, Outcome
from app.services.ports.transactions import ChangeWrites, Committed, Conflict, SessionEnded, Transaction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from app.services.changes.callers import Caller
    from app.services.changes.draft import Decide, Draft
    from app.services.ports.store import ClusterStore
    from app.services.ports.trail import AuditLog

CONTENDED = "Others kept changing the same entity until the deadline; nothing was applied, try again"


@dataclass(frozen=True, slots=True)
class Ended(Generic[D]):
    """How a change ended, when not by an error."""

    decided: D
    """Of the decision that was carried out."""
    change_id: UUID | None = None
    """None where nothing was written."""
    committed: Committed | None = None
    error: ConfplaneError | None = None
    """Why nothing was to be written; see :class:`Unchanged`."""
    revision: int | None = None
    """Of the transaction, or that at which ZooKeeper confirmed that nothing was to be written."""


class ChangeRunner:
    """Runs changes. One instance serves all clusters of a process."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit
        self._queues = Queues()
        self._running: set[asyncio.Task[Any]] = set()

    async def run(
        self,
        store: ClusterStore,
        decide: Decide[D],
        caller: Caller,
        *,
        paths: Sequence[str] = (),
        validate_only: bool = False,
        contended: str = CONTENDED,
    ) -> Ended[D]:
        """Run one change to its end; a caller that goes away can't cut it between intent and outcome.

        Args:
            store: The cluster.
            decide: Decides each attempt.
            caller: Who asks, and until when.
            paths: Full paths of the znodes that changes of this process are to write one after the other.
            validate_only: Go the same way up to the intent, and no further.
            contended: The error's text where conflicts go on until the deadline.

        Raises:
            ConcurrentChangeError: Others kept changing the same until the deadline; nothing was applied.
            UnavailableError: ZooKeeper or Postgres is away; nothing was applied.
            OutcomeUnknownError: The reply was lost and the change could not be settled in time.
            ConfplaneError: Whatever ``decide`` and the store's admission raise; nothing was applied.
        """
        store.writer()  # without a session nobody queues
        change = _Change(self._audit, store, decide, caller, validate_only=validate_only, contended=contended)
        task = asyncio.create_task(self._queued(change, [f"{store.name}{path}" for path in paths], caller.deadline))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        ended = await asyncio.shield(task)
        if isinstance(ended, ConfplaneError):
            raise ended
        return ended

    async def _queued(self, change: _Change[D], keys: Sequence[str], deadline: float) -> Ended[D] | ConfplaneError:
        try:
            async with self._queues.turn(keys, deadline):
                return await change.run()
        except ConfplaneError as error:
            return error  # so that one whose caller went away is not reported as unhandled

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield Sample("changes_in_flight", len(self._running))

    async def drain(self, timeout_s: float) -> None:
        """Wait for changes under way, so that a stop leaves no intent without its outcome."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_s)


class _Change(Generic[D]):
    """One change through its attempts."""

    def __init__(
        self,
        audit: AuditLog,
        store: ClusterStore,
        decide: Decide[D],
        caller: Caller,
        *,
        validate_only: bool,
        contended: str,
    ) -> None:
        self._audit = audit
        self._store = store
        self._decide = decide
        self._caller = caller
        self._validate_only = validate_only
        self._contended = contended
        self._id = store.new_change_id()
        self._began = time.monotonic()
        self._attempt = 0
        self._writer: str | None = None
        self._settled = False

    async def run(self) -> Ended[D]:
        """Try until committed, refused for good, or out of time."""
        try:
            return await self._attempts()
        except OutcomeUnknownError:
            raise  # its intent stays open until someone settles it
        except ConfplaneError as error:
            # Every attempt that was submitted has been refused by ZooKeeper, and the last was not submitted at all.
            error.outcome = error.outcome or WriteOutcome.NOT_APPLIED
            await self._reject(error)
            raise

    async def _attempts(self) -> Ended[D]:
        again = False
        while True:
            writer = self._store.writer()
            decision = await self._decide(again=again)
            if isinstance(decision, Unchanged):
                ended = await self._leave(writer, decision)
            else:
                ended = await self._write(writer, decision)
            if ended is not None:
                return ended
            if time.monotonic() >= self._caller.deadline:
                raise ConcurrentChangeError(self._contended, retry_after_s=1)
            again = True

    async def _leave(self, writer: str, decision: Unchanged[D]) -> Ended[D] | None:
        """End without a change, once ZooKeeper has confirmed what led to that; None where it is otherwise by now."""
        revision = None
        if decision.seen is not None:
            revision = await self._store.confirm(writer, decision.seen, self._caller.deadline, layout=decision.layout)
            if revision is None:
                return None
        if decision.error is not None:
            decision.error.outcome = decision.error.outcome or WriteOutcome.NOT_APPLIED
        await self._reject(decision.error)
        return Ended(decision.decided, error=decision.error, revision=revision)

    async def _write(self, writer: str, draft: Draft[D]) -> Ended[D] | None:
        """Make one attempt; None means that something was not as read and the next may be made."""
        store, caller = self._store, self._caller
        await store.check_admission(draft.writes, caller.deadline, guarded=draft.guarded)
        if self._validate_only:
            return Ended(draft.decided)
        if self._writer not in {None, writer}:
            raise UnavailableError(
                "The ZooKeeper session was replaced between two attempts; nothing was applied, try again",
                retry_after_s=1,
            )
        self._writer = writer
        intent = Intent(
            change_id=self._id,
            attempt=self._attempt + 1,
            cluster=store.name,
            writer=writer,
            principal=caller.principal,
            source=caller.source,
            request_id=caller.request_id,
            reason=caller.reason,
            ticket=caller.ticket,
            entities=draft.entities,
        )
        # Where this fails nothing is submitted. Its row may be there all the same, and is then settled as aborted.
        claim = None if caller.run is None else caller.run.claim(draft.answers, caller.deadline)
        await self._audit.intend([intent], claim)
        self._attempt = intent.attempt
        change = ChangeWrites(self._id, self._attempt, draft.writes, caller.principal, caller.request_id)
        result = await store.commit(Transaction(writer, (change,), draft.layout, draft.guarded), caller.deadline)
        if isinstance(result, Conflict):
            return None
        if isinstance(result, SessionEnded):
            raise UnavailableError(
                f"ZooKeeper refused the write: {result.reason}; nothing was applied, try again", retry_after_s=1
            )
        if isinstance(result, Committed):
            await self._conclude(result)
        else:
            result = await self._settle(draft)
        return Ended(draft.decided, self._id, result, revision=result.revision)

    async def _settle(self, draft: Draft[D]) -> Committed:
        """Find out what became of a transaction whose reply was lost, until the deadline."""
        outcome = await settle_own(
            self._audit,
            self._store,
            self._id,
            self._attempt,
            began=self._began,
            deadline=self._caller.deadline,
        )
        self._settled = True
        if not outcome.committed:
            raise UnavailableError(
                "ZooKeeper's reply was lost, and the write was settled as aborted; nothing was applied, try again",
                retry_after_s=1,
            )
        return committed(outcome, draft.writes)

    async def _conclude(self, result: Committed) -> None:
        """Write that the change was applied; its marker is let go some time after that."""
        outcome = Outcome(
            self._id,
            self._attempt,
            self._store.name,
            committed=True,
            revision=result.revision,
            time_ms=result.time_ms,
            versions=result.versions,
            remade=result.remade,
        )
        if await self._audit.conclude([outcome]):
            self._store.release_marker(self._id)

    async def _reject(self, error: ConfplaneError | None) -> None:
        """Close a change that has intents and, for certain, no effect."""
        if not self._attempt or self._settled:
            return
        code, text = (0, "It already was as asked") if error is None else (int(error.code), error.detail)
        await self._audit.conclude(
            [Outcome(self._id, self._attempt, self._store.name, committed=False, error_code=code, error=text)]
        )
