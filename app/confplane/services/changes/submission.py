"""Submissions: attempts at changes on their way through admission, intents, transaction and outcomes.

A single change is submitted alone. Changes of a bulk are submitted together, with one commit in each store for all of
them. They stay separate changes: each has its own intent, marker, outcome and result.

- ZooKeeper applies a transaction whole or not at all, and its refusal blames one change
  (store/write/transactions.py). The other changes are submitted again under the same attempt and intent: their
  writes are the same and do not depend on the refused one, since no two of them read each other's entity
  (services/changes/order.py). After a second refusal each is submitted alone.
- A refusal by admission that is due to all changes together is followed by an admission of each half.
- After a lost reply nothing is submitted again: each change is settled by its own marker.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from confplane.domain.entities import EntityType
from confplane.domain.errors import (
    BodyTooLargeError,
    ConfplaneError,
    InvalidRequestError,
    ListFullError,
    ThrottledError,
    UnknownTopicError,
)
from confplane.services.changes.draft import D
from confplane.services.ports.trail import Intent, Outcome
from confplane.services.ports.transactions import (
    ChangeWrites,
    Committed,
    Conflict,
    EntityWrite,
    SessionEnded,
    Transaction,
    TransactionUnknown,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
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
    writer: str
    """The writer node of the attempt's session."""
    draft: Draft[D]
    intended: bool = False
    """True once the intent is durable."""
    result: AttemptResult | None = None
    """None until the attempt was made."""


class Submission:
    """The way of one caller's attempts into the stores of one cluster.

    Args:
        audit: The trail.
        store: The cluster.
        caller: The caller, with the deadline.
        validate_only: End at the admission.
    """

    def __init__(self, audit: AuditLog, store: ClusterStore, caller: Caller, *, validate_only: bool = False) -> None:
        self.audit = audit
        self.store = store
        self.caller = caller
        self._validate_only = validate_only

    async def make(self, attempts: Sequence[Attempt[Any]]) -> None:
        """Make attempts. Then each has its result, and a committed attempt has its outcome.

        Args:
            attempts: Attempts at different changes, in the order of their ids. No two write one znode.
        """
        alike: dict[Any, list[Attempt[Any]]] = {}
        for attempt in attempts:
            draft = attempt.draft
            alike.setdefault((attempt.writer, draft.layout, draft.guarded), []).append(attempt)
        for some in alike.values():
            await self._admit(some)

    async def _admit(self, attempts: list[Attempt[Any]]) -> None:
        writes = [write for attempt in attempts for write in attempt.draft.writes]
        guarded, count = attempts[0].draft.guarded, len(attempts)
        try:
            await self.store.check_admission(writes, self.caller.deadline, guarded=guarded, changes=count)
        except UnknownTopicError as error:
            if count == 1:
                _end(attempts, error)
                return
            unknown = [attempt for attempt in attempts if _names(attempt, error.topics)]
            others = [attempt for attempt in attempts if not _names(attempt, error.topics)]
            # Each error names the topic of its own change.
            await asyncio.gather(*map(self._admit, [*([each] for each in unknown), *([others] if others else [])]))
        except (BodyTooLargeError, ListFullError, ThrottledError) as error:
            if count == 1:
                _end(attempts, error)
                return
            # Each half may be admitted. The second half is later: the first half's notifications count.
            await self._admit(attempts[: count // 2])
            await self._admit(attempts[count // 2 :])
        except ConfplaneError as error:
            _end(attempts, error)
        else:
            if self._validate_only:
                _end(attempts, Validated())
            else:
                await self._intend(attempts)

    async def _intend(self, attempts: list[Attempt[Any]]) -> None:
        caller = self.caller
        intents = [self._intent(attempt) for attempt in attempts]
        run = caller.run
        claims = [] if run is None else [run.claim(attempt.draft.answers, caller.deadline) for attempt in attempts]
        try:
            # After a failure nothing is submitted. Rows may have been written, and are then settled as aborted.
            await self.audit.intend(intents, claims)
        except Exception as error:  # noqa: BLE001 - the result of the change concerned
            is_refused = isinstance(error, InvalidRequestError) or not isinstance(error, ConfplaneError)
            if len(attempts) == 1 or not is_refused:
                _end(attempts, error)
                return
            # Postgres refuses the content of one intent. The rows of the others are written, and are ignored when
            # written again.
            await asyncio.gather(*(self._intend([attempt]) for attempt in attempts))
        else:
            for attempt in attempts:
                attempt.intended = True
            await self._commit(attempts)

    def _intent(self, attempt: Attempt[Any]) -> Intent:
        caller = self.caller
        return Intent(
            change_id=attempt.change_id,
            attempt=attempt.number,
            cluster=self.store.name,
            writer=attempt.writer,
            principal=caller.principal,
            source=caller.source,
            request_id=caller.request_id,
            reason=caller.reason,
            ticket=caller.ticket,
            entities=attempt.draft.entities,
            behalf_of=caller.behalf_of,
            kind=attempt.draft.kind,
            observed=attempt.draft.observed,
            reverts=attempt.draft.reverts,
        )

    async def _commit(self, attempts: list[Attempt[Any]]) -> None:
        left = attempts
        for again in (False, True):
            result = await self._transact(left, again=again)
            blamed = result.change_id if isinstance(result, (Conflict, SessionEnded)) else None
            too_large = isinstance(result, BodyTooLargeError) and len(left) > 1
            if blamed is None and not too_large:
                await self._conclude(left, result)
                return
            if too_large:
                break
            _end([attempt for attempt in left if attempt.change_id == blamed], result)
            left = [attempt for attempt in left if attempt.change_id != blamed]
        await asyncio.gather(*(self._commit_alone(attempt) for attempt in left))

    async def _commit_alone(self, attempt: Attempt[Any]) -> None:
        await self._conclude([attempt], await self._transact([attempt], again=True))

    async def _transact(self, attempts: list[Attempt[Any]], *, again: bool) -> CommitResult | ConfplaneError:
        writer, draft = attempts[0].writer, attempts[0].draft
        who = self.caller.principal, self.caller.request_id
        changes = tuple(ChangeWrites(each.change_id, each.number, each.draft.writes, *who) for each in attempts)
        transaction = Transaction(writer, changes, draft.layout, draft.guarded, again)
        try:
            return await self.store.commit(transaction, self.caller.deadline)
        except ConfplaneError as error:
            return error

    async def _conclude(self, attempts: list[Attempt[Any]], result: AttemptResult) -> None:
        """Set the results of attempts of one transaction, and write the outcomes of a commit."""
        if not isinstance(result, Committed):
            _end(attempts, result)
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


def _end(attempts: Sequence[Attempt[Any]], result: AttemptResult) -> None:
    for attempt in attempts:
        attempt.result = result


def _names(attempt: Attempt[Any], topics: frozenset[str]) -> bool:
    """Return True if a change writes one of these topics."""
    return any(
        isinstance(write, EntityWrite) and write.entity.get(EntityType.TOPIC) in topics
        for write in attempt.draft.writes
    )
