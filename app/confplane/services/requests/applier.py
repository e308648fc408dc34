"""The application of approved change requests: the edits as they were decided, on their versions, in one transaction.

An application is a change like any other, which the trail has with ``applies``. Its intent, with its id, is durable
before its transaction, which rests on the versions of the approved content. So a request is applied once, although
several processes may attempt it, and may be killed at any step:

- The request is in the state ``applying`` before the intent is written. Another process continues only once the session
  of the first has ended, or its time is up.
- Of two attempts on the same versions, ZooKeeper commits one. The other finds the outcome of the first in the trail.
- If an entity was changed by another change, nothing is written. The request is opened again, without approvals.
- A process that was paused beyond its time may commit after the request was given back. The request is applied then,
  whatever was recorded in the meantime.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from confplane.domain.change_requests import WRITTEN, RequestAction, RequestState, check_action, uncovered
from confplane.domain.errors import (
    ConcurrentChangeError,
    ConfplaneError,
    FrozenError,
    ObservedError,
    OutcomeUnknownError,
    PreconditionFailedError,
    RequestStateError,
    UnavailableError,
    WriteOutcome,
)
from confplane.domain.texts import rfc3339
from confplane.services.access import Access, unrestricted
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import offender
from confplane.services.ports.change_requests import RequestApplication
from confplane.services.requests.contents import differences, entries_of, requirements_of
from confplane.services.requests.participants import approval_of, lacking

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confplane.domain.approvals import Requirement
    from confplane.domain.facets import JsonValue
    from confplane.services.access import AccessControl
    from confplane.services.changes.alter import AlterService, Entry
    from confplane.services.changes.edits import EntryResult
    from confplane.services.changes.stored_draft import Fingerprint
    from confplane.services.clusters import Cluster
    from confplane.services.ports.change_requests import (
        ChangeRequest,
        ChangeRequestStore,
        GivenApproval,
        Participant,
    )
    from confplane.services.requests.participants import Participants
    from confplane.services.requests.transitions import RequestTransitions

_MARGIN: Final = timedelta(seconds=5)
"""The time after an attempt's deadline in which it may still write its outcome."""
_PASSING: Final = (FrozenError, ObservedError)
"""Refusals that end without another request."""
_CHANGED: Final = "An entity was changed after the request was decided, so the request is open again, without approvals"


class _Judgement(NamedTuple):
    """An approved request by the grants, tokens and rules of now."""

    counting: tuple[GivenApproval, ...]
    """The approvals that count."""
    requirements: Mapping[str, tuple[Requirement, ...]]
    """The approvals that rules ask for, by entity id."""
    error: str | None
    """The reason why the approvals do not suffice; None if they do."""
    refusal: ConfplaneError | None
    """The refusal of the change; None if it would be made."""


class RequestApplier:
    """Applies requests. One instance serves all clusters of a process.

    Args:
        store: The requests.
        transitions: Writes requests.
        participants: The people of requests.
        control: The rights of credentials.
        alter: Runs the edits.
        fingerprints: The fingerprints of sensitive values, by cluster.
        now: The clock.
    """

    def __init__(
        self,
        store: ChangeRequestStore,
        transitions: RequestTransitions,
        participants: Participants,
        *,
        control: AccessControl,
        alter: AlterService,
        fingerprints: Mapping[str, Fingerprint],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._transitions = transitions
        self._participants = participants
        self._control = control
        self._alter = alter
        self._fingerprints = fingerprints
        self._now = now

    def author(
        self, request: ChangeRequest, caller: Caller, approvals: Sequence[GivenApproval], *, applies: bool = False
    ) -> Caller:
        """Return the author of a request as the caller of its change, which needs no grant besides its approvals.

        Args:
            request: The request.
            caller: The caller who applies it or asks about it.
            approvals: The approvals that count.
            applies: The change is to be made.
        """
        rights = self._control.rights(request.authors[-1].identity)
        access = unrestricted(Access(rights, caller.source, caller.request_id))
        return Caller(
            access,
            caller.deadline,
            request.reason,
            request.ticket,
            applies=request.id if applies else None,
            approvals=tuple(map(approval_of, approvals)),
        )

    async def reopen(self, cluster: Cluster, request: ChangeRequest, caller: Caller) -> ChangeRequest:
        """Open a request again, of which an entity was changed after it was decided."""
        await cluster.store.catch_up(caller.deadline)
        return await self._transitions.move(
            request,
            RequestAction.REOPEN,
            RequestState.OPEN,
            text=_CHANGED,
            approvals=(),
            error=_CHANGED,
            differences=differences(cluster, request.draft),
        )

    async def apply(
        self,
        cluster: Cluster,
        request: ChangeRequest,
        caller: Caller,
        by: Participant | None,
        supplied: Mapping[tuple[str, str], JsonValue],
    ) -> ChangeRequest:
        """Apply a request, or continue to, and return it.

        Args:
            cluster: The cluster.
            request: The request as read.
            caller: The caller, for the deadline and the identification of the request.
            by: The caller; None for the leader.
            supplied: The sensitive values, by entity id and key.

        Raises:
            RequestStateError: Its state or its approvals do not allow it, or an entity was changed since.
            InvalidRequestError: A sensitive value is missing, or is not the one that was approved.
            ConcurrentChangeError: Another process applies it.
            ConfplaneError: The change was refused, or is delayed.
        """
        if request.state is RequestState.APPLYING:
            request = await self.recover(cluster, request, caller)
            if request.state in WRITTEN:
                return request
        self._check_ready(request)
        entries = await entries_of(cluster, self._fingerprints[cluster.name], request.draft, supplied)
        counting = await self._checked(cluster, request, entries, caller)
        until = self._now() + timedelta(seconds=max(0.0, caller.deadline - time.monotonic())) + _MARGIN
        before = request.state
        request = await self._transitions.move(
            request,
            RequestAction.BEGIN,
            RequestState.APPLYING,
            by,
            application=RequestApplication(cluster.store.writer(), until),
            error=None,
        )
        if (ended := await self._ended(request)) is not None:
            return ended
        return await self._make(cluster, request, before, entries, self.author(request, caller, counting, applies=True))

    async def check(
        self, cluster: Cluster, request: ChangeRequest, caller: Caller, supplied: Mapping[tuple[str, str], JsonValue]
    ) -> None:
        """Check all that :meth:`apply` checks before the change.

        Raises:
            ConfplaneError: As of :meth:`apply`.
        """
        self._check_ready(request)
        entries = await entries_of(cluster, self._fingerprints[cluster.name], request.draft, supplied)
        try:
            judgement = await self._judge(request, entries, caller)
        except PreconditionFailedError as error:
            raise RequestStateError(error.detail, outcome=WriteOutcome.NOT_APPLIED) from None
        if judgement.error is not None:
            raise RequestStateError(judgement.error)
        if judgement.refusal is not None:
            raise judgement.refusal

    def check_time(self, request: ChangeRequest) -> None:
        """Refuse a request that has expired.

        Raises:
            RequestStateError: Its time has passed.
        """
        if request.expires_at is not None and request.expires_at <= self._now():
            raise RequestStateError("The request has expired; propose the change again")

    def _check_ready(self, request: ChangeRequest) -> None:
        """Refuse a request that may not be applied now.

        Raises:
            RequestStateError: Its state does not allow it, or its time has passed or has not come yet.
        """
        check_action(request.kind, request.state, RequestAction.BEGIN)
        self.check_time(request)
        if request.apply_at is not None and request.apply_at > self._now():
            raise RequestStateError(
                f"The request was approved to be applied at {rfc3339(request.apply_at)}, and not earlier. To apply it"
                " earlier, revise it with another applyAt"
            )

    async def recover(self, cluster: Cluster, request: ChangeRequest, caller: Caller) -> ChangeRequest:
        """Find out what became of an application whose process is gone, and return the request.

        Raises:
            ConcurrentChangeError: The process may still commit the change.
            UnavailableError: The outcome is not known yet, or a store is unavailable.
        """
        application = request.application
        if (
            application is not None
            and application.until > self._now()
            and application.writer in await cluster.store.markers.writers(caller.deadline)
        ):
            raise ConcurrentChangeError(
                "The request is being applied; read it again", outcome=WriteOutcome.UNKNOWN, retry_after_s=1
            )
        if (ended := await self._ended(request)) is not None:
            return ended
        return await self._delay(request, RequestState.APPROVED, "The process that applied the request has ended")

    async def _checked(
        self, cluster: Cluster, request: ChangeRequest, entries: Sequence[Entry], caller: Caller
    ) -> tuple[GivenApproval, ...]:
        """Return the approvals that count, and open the request again if they do not suffice any more."""
        try:
            judgement = await self._judge(request, entries, caller)
        except PreconditionFailedError:
            await self.reopen(cluster, request, caller)
            raise RequestStateError(_CHANGED, outcome=WriteOutcome.NOT_APPLIED) from None
        # A refusal ends the change in the same way, and then the request has it.
        counting, error = judgement.counting, judgement.error
        if error is not None:
            changes: dict[str, Any] = {"approvals": counting, "requirements": judgement.requirements, "error": error}
            await self._transitions.move(request, RequestAction.REOPEN, RequestState.OPEN, text=error, **changes)
            raise RequestStateError(f"{error}; the request is open again")
        return counting

    async def _judge(self, request: ChangeRequest, entries: Sequence[Entry], caller: Caller) -> _Judgement:
        """Judge a request by the grants, tokens and rules of now.

        Raises:
            RequestStateError: The author may not propose the change any more.
            PreconditionFailedError: An entity was changed after the request was decided.
        """
        await self._participants.refresh()
        if not await self._participants.may_propose(request.authors[-1], request):
            raise RequestStateError(
                f"{request.authors[-1].identity.principal}, the author, may not propose a change of these entities any"
                " more, or the author's token was revoked"
            )
        counting = tuple(await self._participants.counting(request))
        left = uncovered(request.entity_ids, [each.entities for each in counting])
        error = f"No approver may alter {left[0]} any more, or the approver's token was revoked" if left else None
        requirements, refusal = request.requirements, None
        try:
            requirements = requirements_of(
                await self._alter.decide_entries(entries, self.author(request, caller, counting))
            )
        except PreconditionFailedError:
            raise
        except ConfplaneError as found:
            refusal = found
        if asked := lacking(replace(request, requirements=requirements), counting):
            error = error or f"Approvals are missing: {'; '.join(map(str, asked))}"
        return _Judgement(counting, requirements, error, refusal)

    async def _ended(self, request: ChangeRequest) -> ChangeRequest | None:
        """Return the request as applied if an attempt was committed; None if none was.

        Raises:
            UnavailableError: An attempt has no outcome yet.
        """
        attempts = await self._store.attempts(request.id)
        if attempts.committed is not None:
            return await self._finish(request, attempts.committed)
        if attempts.open:
            raise UnavailableError(
                "An earlier attempt has no outcome yet; it is settled within seconds",
                outcome=WriteOutcome.UNKNOWN,
                retry_after_s=2,
            )
        return None

    async def _make(
        self, cluster: Cluster, request: ChangeRequest, before: RequestState, entries: Sequence[Entry], author: Caller
    ) -> ChangeRequest:
        """Make the change of a request."""
        results: list[EntryResult] = await self._alter.alter_entries(entries, author, atomic=True)
        error = offender(result.error for result in results)
        if error is None:
            change_id = next((result.change_id for result in results if result.change_id is not None), None)
            return await self._finish(request, None if change_id is None else UUID(change_id))
        if isinstance(error, OutcomeUnknownError) or error.outcome is WriteOutcome.UNKNOWN:
            raise error
        # An attempt of another process may have committed the change, and so have changed the entities.
        if (ended := await self._ended(request)) is not None:
            return ended
        if isinstance(error, PreconditionFailedError):
            await self.reopen(cluster, request, author)
            raise RequestStateError(_CHANGED, outcome=WriteOutcome.NOT_APPLIED) from None
        if error.is_refusal and not isinstance(error, _PASSING):
            await self._transitions.move(
                request, RequestAction.FAIL, RequestState.FAILED, text=error.detail, error=error.detail
            )
        else:
            await self._delay(request, before, error.detail)
        raise error

    async def finish_late(self, request: ChangeRequest) -> None:
        """Record that a request is applied whose change was committed after it was given back.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        await self._ended(request)

    async def _finish(self, request: ChangeRequest, change_id: UUID | None) -> ChangeRequest:
        """Record that a request is applied, also if it was written since it was read: its change is committed."""
        while request.state not in WRITTEN:
            late = None
            if request.state is not RequestState.APPLYING:
                late = f"The change was committed late; the request was {request.state} by then"
            try:
                return await self._transitions.move(
                    request,
                    RequestAction.FINISH,
                    RequestState.APPLIED,
                    text=late,
                    change_id=change_id,
                    error=None,
                    differences=(),
                )
            except ConcurrentChangeError:
                found = await self._store.find(request.cluster, request.id)
                if found is None or change_id is None:
                    raise
                request = found
        return request

    async def _delay(self, request: ChangeRequest, state: RequestState, error: str) -> ChangeRequest:
        if request.apply_at is not None:
            state = RequestState.SCHEDULED
        return await self._transitions.move(request, RequestAction.DELAY, state, text=error, error=error)
