"""Submissions: attempts at changes on their way through admission and intents.

A single change is admitted and intended alone. Changes of a bulk are submitted together, with one commit in each store
for all of them. They stay separate changes: each has its own intent, marker, outcome and result.

A refusal by admission that is due to all changes together is followed by an admission of each half.

Attempts with intents are committed (services/changes/commit.py): those of a bulk together, and single ones with
those of other callers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from confplane.domain.entities import EntityType
from confplane.domain.errors import (
    BodyTooLargeError,
    ConfplaneError,
    InvalidRequestError,
    ListFullError,
    ThrottledError,
    UnknownTopicError,
)
from confplane.services.changes.commit import Attempt, Committer, Validated, end_all
from confplane.services.ports.trail import Intent
from confplane.services.ports.transactions import EntityWrite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.services.changes.callers import Caller
    from confplane.services.changes.commit import SharedTransactions
    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import AuditLog


class Submission:
    """The way of one caller's attempts into the stores of one cluster.

    Args:
        audit: The trail.
        store: The cluster.
        caller: The caller, with the deadline.
        validate_only: End at the admission.
        shared: Commits a single change together with those of other callers; None for the changes of a bulk.
    """

    def __init__(
        self,
        audit: AuditLog,
        store: ClusterStore,
        caller: Caller,
        *,
        validate_only: bool = False,
        shared: SharedTransactions | None = None,
    ) -> None:
        self.audit = audit
        self.store = store
        self._committer = Committer(audit, store)
        self.caller = caller
        self._validate_only = validate_only
        self._shared = shared

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
                end_all(attempts, error)
                return
            unknown = [attempt for attempt in attempts if _names(attempt, error.topics)]
            others = [attempt for attempt in attempts if not _names(attempt, error.topics)]
            # Each error names the topic of its own change.
            await asyncio.gather(*map(self._admit, [*([each] for each in unknown), *([others] if others else [])]))
        except (BodyTooLargeError, ListFullError, ThrottledError) as error:
            if count == 1:
                end_all(attempts, error)
                return
            # Each half may be admitted. The second half is later: the first half's notifications count.
            await self._admit(attempts[: count // 2])
            await self._admit(attempts[count // 2 :])
        except ConfplaneError as error:
            end_all(attempts, error)
        else:
            if self._validate_only:
                end_all(attempts, Validated())
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
                end_all(attempts, error)
                return
            # Postgres refuses the content of one intent. The rows of the others are written, and are ignored when
            # written again.
            await asyncio.gather(*(self._intend([attempt]) for attempt in attempts))
        else:
            for attempt in attempts:
                attempt.intended = True
            if self._shared is None:
                await self._committer.commit(attempts, caller.deadline)
            else:
                [attempt] = attempts
                await self._shared.commit(self._committer, attempt)

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


def _names(attempt: Attempt[Any], topics: frozenset[str]) -> bool:
    """Return True if a change writes one of these topics."""
    return any(
        isinstance(write, EntityWrite) and write.entity.get(EntityType.TOPIC) in topics
        for write in attempt.draft.writes
    )
