"""A change and its attempts: decided, submitted, decided again after a conflict, settled after a lost reply.

An attempt is submitted in two steps, admission and intent, and then committed (services/changes/commit.py). A single
change is admitted and intended alone. Changes of a bulk are submitted together, with one commit in each store for all
of them. They stay separate changes: each has its own intent, marker, outcome and result. A refusal by admission that is
due to all changes together is followed by an admission of each half.
"""

from __future__ import annotations

import asyncio
import time
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

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
from confplane.services.changes.commit import ChangeResult, RunningChange, Validated, reply_all
from confplane.services.changes.draft import NoChange
from confplane.services.changes.settle import committed, settle_own
from confplane.services.cooperative_yielding import TimeSlice
from confplane.services.metrics import CHANGE_ID, span
from confplane.services.ports.trail import Intent, Outcome
from confplane.services.ports.transactions import Committed, Conflict, EntityWrite, SessionEnded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confplane.services.changes.callers import Caller
    from confplane.services.changes.commit import Committer
    from confplane.services.changes.draft import ChangeJob, D
    from confplane.services.ports.store import ClusterStore

_DECIDED: Final = 50
"""Changes decided at once, of those whose decisions wait."""
_PATHS: Final = 65_536
"""Characters of paths in one confirmation, at most: far below ZooKeeper's limit of a request."""


class Submission:
    """The way of one caller's changes into the stores of one cluster.

    Args:
        store: The cluster.
        caller: The caller, with the deadline.
        committer: Commits the attempts.
        shared: Commit a single change together with those of other callers.
    """

    def __init__(
        self,
        store: ClusterStore,
        caller: Caller,
        committer: Committer,
        *,
        shared: bool = False,
    ) -> None:
        self.store = store
        self.caller = caller
        self._audit = committer.audit
        self._committer = committer
        self._shared = shared

    def change(self, job: ChangeJob[D]) -> RunningChange[D]:
        """Return a change that was not attempted yet."""
        return RunningChange(self.store.new_change_id(), job, self.caller, self.store)

    # -- the attempts of one change

    async def run(self, change: RunningChange[D]) -> ChangeResult[D] | Exception:
        """Attempt a change until it is committed, refused for good, or out of time; return the end or the error.

        A first attempt that was made together with other changes counts.
        """
        CHANGE_ID.set(change.id)
        with span("change", cluster=self.store.name, change_id=change.id) as current:
            try:
                ended = await self._attempts(change)
            except ConfplaneError as error:
                ended = await self._failed(change, error)
            if current.recorded:
                current.set(**_facts_of(ended))
            return ended

    async def _attempts(self, change: RunningChange[D]) -> ChangeResult[D] | Exception:
        again = False
        ended: ChangeResult[D] | Exception | None
        while True:
            if again or change.result is None:
                writer = self.store.writer()
                with span("draft", again=again):
                    decision = await change.job.decide(again=again)
                if isinstance(decision, NoChange):
                    ended = await self._leave(change, writer, decision)
                else:
                    change.begin(writer, decision)
                    await self.make([change])
                    ended = await self._take(change)
            else:
                ended = await self._take(change)
            if ended is not None:
                return ended
            if time.monotonic() >= self.caller.deadline:
                raise ConcurrentChangeError(change.job.contended, retry_after_s=1)
            again = True

    async def _leave(self, change: RunningChange[D], writer: str, decision: NoChange[D]) -> ChangeResult[D] | None:
        """End without a write, once ZooKeeper has confirmed the nodes of the decision; None if one is not as read."""
        revision = None
        if decision.seen is not None:
            revision = await self.store.confirm(writer, decision.seen, self.caller.deadline, layout=decision.layout)
            if revision is None:
                return None
        await self._reject(change, decision.error)
        return _unchanged(decision, revision)

    async def _take(self, change: RunningChange[D]) -> ChangeResult[D] | Exception | None:
        """Return the end by an attempt; None after a conflict, which another attempt may follow."""
        result = change.result
        if isinstance(result, Conflict):
            return None
        if isinstance(result, SessionEnded):
            raise UnavailableError(
                f"ZooKeeper refused the write: {result.reason}; nothing was applied, try again", retry_after_s=1
            )
        if isinstance(result, Exception):
            # Changes of a shared attempt share the error: it is not raised in each of them.
            return await self._failed(change, result)
        return _done(change) or await self._settle(change)

    async def _settle(self, change: RunningChange[D]) -> ChangeResult[D]:
        """Settle a transaction whose reply was lost, until the deadline."""
        with span("settle") as current:
            outcome = await settle_own(
                self._audit, self.store, change.id, change.number, began=change.began, deadline=self.caller.deadline
            )
            current.set(outcome="committed" if outcome.committed else "aborted")
        change.settled = True
        if not outcome.committed:
            raise UnavailableError(
                "ZooKeeper's reply was lost, and the write was settled as aborted; nothing was applied, try again",
                retry_after_s=1,
            )
        result = committed(outcome, change.draft.writes)
        return ChangeResult(change.draft.decided, change.id, result, revision=result.revision)

    async def _failed(self, change: RunningChange[Any], error: Exception) -> Exception:
        """Close a change that ends with this error; return the error."""
        # After an unknown outcome the intent stays open until it is settled.
        if isinstance(error, ConfplaneError) and not isinstance(error, OutcomeUnknownError):
            # ZooKeeper refused every attempt that was submitted, and the last one was not submitted.
            error.outcome = error.outcome or WriteOutcome.NOT_APPLIED
            await self._reject(change, error)
        return error

    async def _reject(self, change: RunningChange[Any], error: ConfplaneError | None) -> None:
        """Close a change that has intents and certainly no effect."""
        if not change.intended or change.settled:
            return
        code, text = (0, "It already was as asked") if error is None else (int(error.code), error.detail)
        await self._audit.conclude(
            [Outcome(change.id, change.intended, self.store.name, committed=False, error_code=code, error=text)]
        )
        if error is not None:
            error.in_trail = True

    # -- attempts at several changes

    async def make_first(self, writer: str, changes: Sequence[RunningChange[Any]]) -> None:
        """Make the first attempts of changes together. Those that need no more attempts then have their ends.

        Args:
            writer: The writer node of the session.
            changes: The changes, in the order of their ids. None of them reads or writes an entity of another.
        """
        time_slice = TimeSlice()
        with span("draft", cluster=self.store.name, changes=len(changes)):
            for change in changes:
                if not change.job.waits:
                    await _decide(change, writer)
                if time_slice.due:
                    await time_slice.pause()
            waiting = iter([change for change in changes if change.job.waits])
            while some := list(islice(waiting, _DECIDED)):
                await asyncio.gather(*(_decide(change, writer) for change in some))
                if time_slice.due:
                    await time_slice.pause()
        begun = [change for change in changes if change.number]
        await asyncio.gather(self._confirm(writer, changes), self.make(begun))
        for change in begun:
            change.end = _done(change)

    async def _confirm(self, writer: str, changes: Sequence[RunningChange[Any]]) -> None:
        """Confirm decisions to write nothing with ZooKeeper, many at a time. Confirmed changes then have their ends."""
        for decisions in _pieces(changes):
            seen = [each for _, decision in decisions for each in decision.seen or ()]
            layout = decisions[0][1].layout
            try:
                revision = await self.store.confirm(writer, seen, self.caller.deadline, layout=layout)
            except ConfplaneError:
                continue  # each change asks by itself, and gets its own error
            if revision is not None:
                for change, decision in decisions:
                    change.end = _unchanged(decision, revision)

    async def make(self, changes: Sequence[RunningChange[Any]]) -> None:
        """Make the begun attempts of changes. Then each has its result, and a committed change has its outcome.

        Args:
            changes: The changes, in the order of their ids. No two write one znode.
        """
        alike: dict[Any, list[RunningChange[Any]]] = {}
        for change in changes:
            draft = change.draft
            alike.setdefault((change.writer, draft.layout, draft.guarded), []).append(change)
        for some in alike.values():
            await self._admit(some)

    async def _admit(self, changes: list[RunningChange[Any]]) -> None:
        writes = [write for change in changes for write in change.draft.writes]
        guarded, count = changes[0].draft.guarded, len(changes)
        try:
            await self.store.check_admission(writes, self.caller.deadline, guarded=guarded, changes=count)
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
            if self.caller.validate_only:
                reply_all(changes, Validated())
            else:
                await self._intend(changes)

    async def _intend(self, changes: list[RunningChange[Any]]) -> None:
        caller = self.caller
        intents = [self._intent(change) for change in changes]
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
            if self._shared:
                await self._committer.commit_shared(changes[0])
            else:
                await self._committer.commit(changes, caller.deadline)

    def _intent(self, change: RunningChange[Any]) -> Intent:
        caller = self.caller
        return Intent(
            change_id=change.id,
            attempt=change.number,
            cluster=self.store.name,
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


def _done(change: RunningChange[D]) -> ChangeResult[D] | None:
    """Return the end of a change by its last attempt; None if the attempt did not end it."""
    result = change.result
    if isinstance(result, Committed):
        return ChangeResult(change.draft.decided, change.id, result, revision=result.revision)
    return ChangeResult(change.draft.decided) if isinstance(result, Validated) else None


def _unchanged(decision: NoChange[D], revision: int | None) -> ChangeResult[D]:
    """Return the end by a decision to write nothing that ZooKeeper confirmed at a revision."""
    if decision.error is not None:
        decision.error.outcome = decision.error.outcome or WriteOutcome.NOT_APPLIED
    return ChangeResult(decision.decided, error=decision.error, revision=revision)


async def _decide(change: RunningChange[Any], writer: str) -> None:
    """Decide the first attempt of a change, and begin it unless it ends the change or writes nothing."""
    try:
        decision = await change.job.decide(again=False)
        if isinstance(decision, NoChange):
            change.unchanged = decision
        else:
            change.begin(writer, decision)
    except ConfplaneError as error:
        error.outcome = error.outcome or WriteOutcome.NOT_APPLIED
        change.end = error


def _pieces(changes: Sequence[RunningChange[D]]) -> Iterator[list[tuple[RunningChange[D], NoChange[D]]]]:
    """Cut decisions to write nothing into pieces of one confirmation each."""
    piece: list[tuple[RunningChange[D], NoChange[D]]] = []
    size = 0
    for change in changes:
        decision = change.unchanged
        if decision is None or decision.seen is None:
            continue
        length = sum(len(entity.path) for _, entity, _ in decision.seen)
        if piece and (decision.layout != piece[0][1].layout or size + length > _PATHS):
            yield piece
            piece, size = [], 0
        piece.append((change, decision))
        size += length
    if piece:
        yield piece


def _facts_of(ended: ChangeResult[Any] | Exception) -> dict[str, str]:
    """Return the facts of a change's span at its end."""
    error = ended if isinstance(ended, Exception) else ended.error
    if isinstance(error, ConfplaneError):
        return {"outcome": (error.outcome or WriteOutcome.UNKNOWN).value, "error": error.code.name}
    if isinstance(ended, Exception):
        return {"outcome": WriteOutcome.UNKNOWN.value, "error": type(ended).__name__}
    return {"outcome": "unchanged" if ended.change_id is None else "applied"}


def _names(change: RunningChange[Any], topics: frozenset[str]) -> bool:
    """Return True if a change writes one of these topics."""
    return any(
        isinstance(write, EntityWrite) and write.entity.get(EntityType.TOPIC) in topics for write in change.draft.writes
    )
