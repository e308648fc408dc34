"""Commits: attempts whose intents are durable on their way through a transaction of ZooKeeper to their outcomes.

- ZooKeeper applies a transaction whole or not at all, and its refusal blames one change
  (store/write/transactions.py). The other changes are submitted again under the same attempt and intent: their
  writes are the same and do not depend on the refused one, since no two of them read each other's entity
  (services/changes/order.py). After a second refusal each is submitted alone.
- After a lost reply nothing is submitted again: each change is settled by its own marker.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from confplane.domain.errors import BodyTooLargeError, ConfplaneError
from confplane.services.changes.draft import D
from confplane.services.ports.trail import Outcome
from confplane.services.ports.transactions import (
    ChangeWrites,
    Committed,
    Conflict,
    SessionEnded,
    Transaction,
    TransactionUnknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from confplane.services.changes.callers import Caller
    from confplane.services.changes.draft import Draft
    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import AuditLog
    from confplane.services.ports.transactions import CommitResult


@dataclass(frozen=True, slots=True)
class Validated:
    """The attempt was admitted, and ends there."""


AttemptResult = Committed | Conflict | SessionEnded | TransactionUnknown | Validated | Exception
"""The result of one attempt. After an exception nothing is applied."""


@dataclass(slots=True)
class Attempt(Generic[D]):
    """An attempt at one change, and its result."""

    change_id: UUID
    number: int
    caller: Caller
    writer: str
    """The writer node of the attempt's session."""
    draft: Draft[D]
    intended: bool = False
    """True once the intent is durable."""
    result: AttemptResult | None = None
    """None until the attempt was made."""
    ended: asyncio.Event | None = None
    """Set once the result is known and a commit has its outcome, for a caller who waits for another's transaction."""

    def end(self, result: AttemptResult) -> None:
        """Set the result."""
        self.result = result
        if self.ended is not None:
            self.ended.set()


class Committer:
    """Commits attempts in one cluster, whoever their callers are.

    Args:
        audit: The trail.
        store: The cluster.
    """

    def __init__(self, audit: AuditLog, store: ClusterStore) -> None:
        self.audit = audit
        self.store = store

    async def commit(
        self, attempts: list[Attempt[Any]], deadline: float, replied: Callable[[], None] = lambda: None
    ) -> None:
        """Commit attempts whose intents are durable. Then each has its result, and a committed attempt its outcome.

        Args:
            attempts: The attempts, of any callers, in the order of their ids. No two write one znode.
            deadline: The latest deadline of a caller.
            replied: Called once all shared transactions have their results, before outcomes are written; not called if
                changes are submitted alone in the end.
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
        await asyncio.gather(*(self._commit_alone(attempt) for attempt in left))

    async def _commit_alone(self, attempt: Attempt[Any]) -> None:
        try:
            await self._conclude([attempt], await self._transact([attempt], attempt.caller.deadline, again=True))
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
        try:
            return await self.store.commit(transaction, deadline)
        except ConfplaneError as error:
            return error

    async def _conclude(self, attempts: list[Attempt[Any]], result: AttemptResult) -> None:
        """Set the results of attempts of one transaction, and write the outcomes of a commit."""
        if not isinstance(result, Committed):
            end_all(attempts, result)
            return
        outcomes = []
        for attempt, part in zip(attempts, result.parts([each.draft.writes for each in attempts]), strict=True):
            attempt.result = part
            outcomes.append(
                Outcome(
                    attempt.change_id,
                    attempt.number,
                    self.store.name,
                    committed=True,
                    revision=part.revision,
                    time_ms=part.time_ms,
                    versions=part.versions,
                    remade=part.remade,
                    incarnation=self.store.incarnation,
                )
            )
        if await self.audit.conclude(outcomes):
            # The markers are dropped some time later.
            for attempt in attempts:
                self.store.markers.release(attempt.change_id)
        for attempt in attempts:
            if attempt.ended is not None:
                attempt.ended.set()


def end_all(attempts: Sequence[Attempt[Any]], result: AttemptResult) -> None:
    """Give attempts the same result."""
    for attempt in attempts:
        attempt.end(result)


def _is_of_one_caller(attempts: Sequence[Attempt[Any]]) -> bool:
    return all(attempt.caller is attempts[0].caller for attempt in attempts)
