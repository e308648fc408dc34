"""A change and its attempts: decided, submitted, decided again after a conflict, settled after a lost reply.

An attempt is submitted in two steps, admission and intent, and then committed (services/changes/commit.py). A single
change is admitted and intended alone. Changes of a bulk are submitted together, with one commit in each store for all
of them. They stay separate changes: each has its own intent, marker, outcome and result. A refusal by admission that is
due to all changes together is followed by an admission of each half.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

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
from confplane.services.changes.commit import Attempt, Validated, end_all
from confplane.services.changes.draft import D, NoChange
from confplane.services.changes.settle import committed, settle_own
from confplane.services.metrics import CHANGE_ID, span
from confplane.services.ports.trail import Intent, Outcome
from confplane.services.ports.transactions import Committed, Conflict, EntityWrite, SessionEnded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from confplane.services.changes.callers import Caller
    from confplane.services.changes.commit import Committer
    from confplane.services.changes.draft import Decide, Draft
    from confplane.services.ports.store import ClusterStore

CONTENDED: Final = "Other writers kept changing the same entity until the deadline; nothing was applied, try again"


class ChangeJob(NamedTuple, Generic[D]):
    """A change to run."""

    decide: Decide[D]
    paths: Sequence[str]
    """Full paths of the znodes that changes of this process write in turn."""
    waits: bool = False
    """True if the first decision waits, for the answer of a Kafka cluster or for a read. Such decisions are made at
    once; each of them is a task, which costs as much as a short decision."""


@dataclass(frozen=True, slots=True)
class ChangeResult(Generic[D]):
    """The result of a change that ended without an exception."""

    decided: D
    """The decision that was carried out."""
    change_id: UUID | None = None
    """The id of the change; None if nothing was written."""
    committed: Committed | None = None
    error: ConfplaneError | None = None
    """The reason to write nothing; see :class:`NoChange`."""
    revision: int | None = None
    """The revision of the transaction, or the one at which ZooKeeper confirmed a decision to write nothing."""


class RunningChange(Generic[D]):
    """One change while it runs.

    Args:
        submission: Makes the attempts.
        job: The change.
        contended: The error's text when conflicts last until the deadline.

    Attributes:
        id: The change's id, above the ids of all earlier changes of this process.
        keys: The paths, unique among all clusters.
        deadline: The caller's deadline.
        job: The change.
        first: The first attempt, if it is made together with other changes.
        unchanged: The first decision, if it is to write nothing. ZooKeeper has to confirm it.
    """

    def __init__(self, submission: Submission, job: ChangeJob[D], contended: str = CONTENDED) -> None:
        store, caller = submission.store, submission.caller
        self.id = store.new_change_id()
        self.keys = [f"{store.name}{path}" for path in job.paths]
        self.deadline = caller.deadline
        self.job = job
        self.first: Attempt[D] | None = None
        self.unchanged: NoChange[D] | None = None
        self._submission = submission
        self._store = store
        self._contended = contended
        self._began = time.monotonic()
        self._intended = 0
        self._writer: str | None = None
        self._settled = False

    async def run(self) -> ChangeResult[D] | Exception:
        """Make attempts until the change is committed, refused for good, or out of time; return the end or the error.

        A first attempt that was made together with other changes counts.
        """
        CHANGE_ID.set(self.id)
        attempt, self.first = self.first, None
        with span("change", cluster=self._store.name, change_id=self.id) as current:
            try:
                ended = await self._attempts(attempt)
            except ConfplaneError as error:
                ended = await self._failed(error)
            if current.recorded:
                current.set(**_facts_of(ended))
            return ended

    async def _attempts(self, attempt: Attempt[D] | None) -> ChangeResult[D] | Exception:
        again = False
        while True:
            if attempt is not None:
                ended = await self._take(attempt)
            else:
                writer = self._store.writer()
                with span("draft", again=again):
                    decision = await self.job.decide(again=again)
                if isinstance(decision, NoChange):
                    ended = await self._leave(writer, decision)
                else:
                    made = self._attempt(writer, decision)
                    await self._submission.make([made])
                    ended = await self._take(made)
            if ended is not None:
                return ended
            if time.monotonic() >= self.deadline:
                raise ConcurrentChangeError(self._contended, retry_after_s=1)
            attempt, again = None, True

    async def _leave(self, writer: str, decision: NoChange[D]) -> ChangeResult[D] | None:
        """End without a change, once ZooKeeper has confirmed the nodes of the decision; None if one is not as read."""
        revision = None
        if decision.seen is not None:
            revision = await self._store.confirm(writer, decision.seen, self.deadline, layout=decision.layout)
            if revision is None:
                return None
        await self._reject(decision.error)
        return self.left(decision, revision)

    def left(self, decision: NoChange[D], revision: int | None) -> ChangeResult[D]:
        """Return the end of a decision to write nothing that ZooKeeper confirmed at a revision."""
        if decision.error is not None:
            decision.error.outcome = decision.error.outcome or WriteOutcome.NOT_APPLIED
        return ChangeResult(decision.decided, error=decision.error, revision=revision)

    # -- the first attempt, together with those of other changes

    async def plan(self, writer: str) -> ConfplaneError | None:
        """Decide the first attempt without making it; return the error if the change ends with one."""
        try:
            decision = await self.job.decide(again=False)
            if isinstance(decision, NoChange):
                self.unchanged = decision
            else:
                self.first = self._attempt(writer, decision)
        except ConfplaneError as error:
            error.outcome = error.outcome or WriteOutcome.NOT_APPLIED
            return error
        return None

    @property
    def ended(self) -> ChangeResult[D] | None:
        """The end of the change by its first attempt; None if :meth:`run` has to continue."""
        return None if self.first is None else self._done(self.first)

    # -- attempts

    def _attempt(self, writer: str, draft: Draft[D]) -> Attempt[D]:
        if self._writer not in {None, writer}:
            raise UnavailableError(
                "The ZooKeeper session was replaced between two attempts; nothing was applied, try again",
                retry_after_s=1,
            )
        self._writer = writer
        return Attempt(self.id, self._intended + 1, self._submission.caller, writer, self._store, draft)

    def _done(self, attempt: Attempt[D]) -> ChangeResult[D] | None:
        draft, result = attempt.draft, attempt.result
        if isinstance(result, Committed):
            return ChangeResult(draft.decided, self.id, result, revision=result.revision)
        return ChangeResult(draft.decided) if isinstance(result, Validated) else None

    async def _take(self, attempt: Attempt[D]) -> ChangeResult[D] | Exception | None:
        """Return the end by an attempt; None after a conflict, which another attempt may follow."""
        result = attempt.result
        if attempt.intended:
            self._intended = attempt.number
        if isinstance(result, Conflict):
            return None
        if isinstance(result, SessionEnded):
            raise UnavailableError(
                f"ZooKeeper refused the write: {result.reason}; nothing was applied, try again", retry_after_s=1
            )
        if isinstance(result, Exception):
            # Changes of a shared attempt share the error: it is not raised in each of them.
            return await self._failed(result)
        return self._done(attempt) or await self._settle(attempt)

    async def _settle(self, attempt: Attempt[D]) -> ChangeResult[D]:
        """Settle a transaction whose reply was lost, until the deadline."""
        audit = self._submission.audit
        with span("settle") as current:
            outcome = await settle_own(
                audit, self._store, self.id, attempt.number, began=self._began, deadline=self.deadline
            )
            current.set(outcome="committed" if outcome.committed else "aborted")
        self._settled = True
        if not outcome.committed:
            raise UnavailableError(
                "ZooKeeper's reply was lost, and the write was settled as aborted; nothing was applied, try again",
                retry_after_s=1,
            )
        result = committed(outcome, attempt.draft.writes)
        return ChangeResult(attempt.draft.decided, self.id, result, revision=result.revision)

    async def _failed(self, error: Exception) -> Exception:
        """Close the change, which ends with this error; return the error."""
        # After an unknown outcome the intent stays open until it is settled.
        if isinstance(error, ConfplaneError) and not isinstance(error, OutcomeUnknownError):
            # ZooKeeper refused every attempt that was submitted, and the last one was not submitted.
            error.outcome = error.outcome or WriteOutcome.NOT_APPLIED
            await self._reject(error)
        return error

    async def _reject(self, error: ConfplaneError | None) -> None:
        """Close a change that has intents and certainly no effect."""
        if not self._intended or self._settled:
            return
        code, text = (0, "It already was as asked") if error is None else (int(error.code), error.detail)
        await self._submission.audit.conclude(
            [Outcome(self.id, self._intended, self._store.name, committed=False, error_code=code, error=text)]
        )
        if error is not None:
            error.in_trail = True


# ---------------------------------------------------------------- admission and intents


class Submission:
    """The way of one caller's attempts into the stores of one cluster.

    Args:
        store: The cluster.
        caller: The caller, with the deadline.
        committer: Commits the attempts.
        validate_only: End at the admission.
        shared: Commit a single change together with those of other callers.
    """

    def __init__(
        self,
        store: ClusterStore,
        caller: Caller,
        committer: Committer,
        *,
        validate_only: bool = False,
        shared: bool = False,
    ) -> None:
        self.audit = committer.audit
        self.store = store
        self.caller = caller
        self._committer = committer
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
            with span("intent", change_ids=[attempt.change_id for attempt in attempts]):
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
            if self._shared:
                await self._committer.commit_shared(attempts[0])
            else:
                await self._committer.commit(attempts, caller.deadline)

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
            reason=caller.reason or caller.break_glass,
            ticket=caller.ticket,
            entities=attempt.draft.entities,
            behalf_of=caller.behalf_of,
            kind=attempt.draft.kind,
            observed=attempt.draft.observed,
            reverts=attempt.draft.reverts,
            revert_at=caller.revert_at,
            ends=caller.ends,
            applies=caller.request_applied,
        )


def _facts_of(ended: ChangeResult[Any] | Exception) -> dict[str, str]:
    """Return the facts of a change's span at its end."""
    error = ended if isinstance(ended, Exception) else ended.error
    if isinstance(error, ConfplaneError):
        return {"outcome": (error.outcome or WriteOutcome.UNKNOWN).value, "error": error.code.name}
    if isinstance(ended, Exception):
        return {"outcome": WriteOutcome.UNKNOWN.value, "error": type(ended).__name__}
    return {"outcome": "unchanged" if ended.change_id is None else "applied"}


def _names(attempt: Attempt[Any], topics: frozenset[str]) -> bool:
    """Return True if a change writes one of these topics."""
    return any(
        isinstance(write, EntityWrite) and write.entity.get(EntityType.TOPIC) in topics
        for write in attempt.draft.writes
    )
