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

from confplane.domain.change_requests import (
    TRANSITIONS,
    WRITTEN,
    RequestAction,
    RequestState,
    check_action,
    uncovered,
)
from confplane.domain.errors import (
    ConcurrentChangeError,
    ConfplaneError,
    FrozenError,
    ObservedError,
    OutcomeUnknownError,
    PreconditionFailedError,
    RequestStateError,
    StalePlanError,
    UnavailableError,
    WriteOutcome,
)
from confplane.domain.texts import rfc3339
from confplane.services.access import Access, unrestricted
from confplane.services.changes.callers import Caller
from confplane.services.ports.change_requests import RequestApplication
from confplane.services.requests.contents import differences
from confplane.services.requests.manifests import is_complete
from confplane.services.requests.participants import approval_of, lacking, to_cover

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from confplane.domain.approvals import Requirement
    from confplane.domain.facets import JsonValue
    from confplane.services.access import AccessControl
    from confplane.services.clusters import Cluster
    from confplane.services.ports.change_requests import (
        ChangeRequest,
        ChangeRequestStore,
        GivenApproval,
        Participant,
    )
    from confplane.services.requests.participants import Participants
    from confplane.services.requests.requested import RequestedChange, RequestedChanges
    from confplane.services.requests.transitions import RequestTransitions

_MARGIN: Final = timedelta(seconds=5)
"""The time after an attempt's deadline in which it may still write its outcome."""
_STALE: Final = (PreconditionFailedError, StalePlanError)
"""Refusals because what was decided does not hold any more."""
_PASSING: Final = (FrozenError, ObservedError, ConcurrentChangeError)
"""Refusals that end without another request."""
_CHANGED: Final = "An entity was changed after the request was decided, so the request is open again, without approvals"


def application_of(cluster: Cluster, caller: Caller, now: datetime) -> RequestApplication:
    """Return an attempt of this process, which ends with the deadline of the caller.

    Raises:
        UnavailableError: ZooKeeper is unavailable, so that nothing can be written.
    """
    until = now + timedelta(seconds=max(0.0, caller.deadline - time.monotonic())) + _MARGIN
    return RequestApplication(cluster.store.writer(), until)


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
        changes: The changes of requests.
        now: The clock.
    """

    def __init__(
        self,
        store: ChangeRequestStore,
        transitions: RequestTransitions,
        participants: Participants,
        *,
        control: AccessControl,
        changes: RequestedChanges,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._transitions = transitions
        self._participants = participants
        self._control = control
        self._changes = changes
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
        change = await self._changes.restore(cluster, request, supplied)
        counting = await self._checked(cluster, request, change, caller)
        before = request.state
        request = await self._transitions.move(
            request,
            RequestAction.BEGIN,
            RequestState.APPLYING,
            by,
            application=application_of(cluster, caller, self._now()),
            error=None,
        )
        if (ended := await self._ended(request)) is not None:
            return ended
        return await self._make(cluster, request, before, change, self.author(request, caller, counting, applies=True))

    async def check(
        self, cluster: Cluster, request: ChangeRequest, caller: Caller, supplied: Mapping[tuple[str, str], JsonValue]
    ) -> None:
        """Check all that :meth:`apply` checks before the change.

        Raises:
            ConfplaneError: As of :meth:`apply`.
        """
        self._check_ready(request)
        change = await self._changes.restore(cluster, request, supplied)
        try:
            judgement = await self._judge(request, change, caller)
        except _STALE as error:
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
        gone = "The process that applied the request has ended"
        if (ended := await self._ended(request, gone)) is not None:
            return ended
        return await self._delay(request, RequestState.APPROVED, gone)

    async def _checked(
        self, cluster: Cluster, request: ChangeRequest, change: RequestedChange, caller: Caller
    ) -> tuple[GivenApproval, ...]:
        """Return the approvals that count, and open the request again if they do not suffice any more."""
        try:
            judgement = await self._judge(request, change, caller)
        except _STALE:
            await self.reopen(cluster, request, caller)
            raise RequestStateError(_CHANGED, outcome=WriteOutcome.NOT_APPLIED) from None
        counting, error, refusal = judgement.counting, judgement.error, judgement.refusal
        if error is None and isinstance(refusal, _PASSING) and request.error == refusal.detail:
            raise refusal  # the request has it from an earlier attempt, and each attempt would add two events
        # Another refusal ends the change in the same way, and then the request has it.
        if error is None:
            return counting
        if request.state is RequestState.PARTLY_APPLIED:
            raise RequestStateError(f"{error}; propose what is left as another request")
        changes: dict[str, Any] = {"approvals": counting, "requirements": judgement.requirements, "error": error}
        await self._transitions.move(request, RequestAction.REOPEN, RequestState.OPEN, text=error, **changes)
        raise RequestStateError(f"{error}; the request is open again")

    async def _judge(self, request: ChangeRequest, change: RequestedChange, caller: Caller) -> _Judgement:
        """Judge a request by the grants, tokens and rules of now.

        Raises:
            RequestStateError: The author may not propose the change any more.
            PreconditionFailedError: An entity was changed after the request was decided.
            StalePlanError: What the plan of a manifest rests on was changed.
        """
        await self._participants.refresh()
        if not await self._participants.may_propose(request.authors[-1], request):
            raise RequestStateError(
                f"{request.authors[-1].identity.principal}, the author, may not propose a change of these entities any"
                " more, or the author's token was revoked"
            )
        counting = tuple(await self._participants.counting(request))
        left = uncovered(to_cover(request), [each.entities for each in counting])
        error = f"No approver may alter {left[0]} any more, or the approver's token was revoked" if left else None
        requirements, refusal = request.requirements, None
        try:
            requirements = await change.requirements(self.author(request, caller, counting))
        except _STALE:
            raise
        except ConfplaneError as found:
            refusal = found
        if asked := lacking(replace(request, requirements=requirements), counting):
            error = error or f"Approvals are missing: {'; '.join(map(str, asked))}"
        return _Judgement(counting, requirements, error, refusal)

    async def _ended(self, request: ChangeRequest, reason: str | None = None) -> ChangeRequest | None:
        """Return the request as applied if its change was committed; None if nothing was.

        Args:
            request: The request.
            reason: Return it as applied in part, for this reason, if only some changes of its manifest were committed.
                None: return None then.

        Raises:
            UnavailableError: An attempt has no outcome yet.
        """
        attempts = await self._store.attempts(request.id)
        if attempts.committed is not None and is_complete(request.draft, attempts.places):
            return await self._finish(request, attempts.committed)
        if attempts.open:
            raise UnavailableError(
                "An earlier attempt has no outcome yet; it is settled within seconds",
                outcome=WriteOutcome.UNKNOWN,
                retry_after_s=2,
            )
        if attempts.committed is not None and reason is not None:
            return await self._finish(request, attempts.committed, f"Only a part is applied. {reason}")
        return None

    async def _make(
        self, cluster: Cluster, request: ChangeRequest, before: RequestState, change: RequestedChange, author: Caller
    ) -> ChangeRequest:
        """Make the change of a request."""
        change_id, error = await change.make(author)
        if error is None:
            return await self._finish(request, request.change_id or change_id)
        if isinstance(error, OutcomeUnknownError) or error.outcome is WriteOutcome.UNKNOWN:
            raise error
        # An attempt of another process may have committed the change, and so have changed the entities.
        if (ended := await self._ended(request, error.detail)) is not None:
            if ended.state is RequestState.PARTLY_APPLIED and change_id is None:
                raise error
            return ended
        if isinstance(error, _STALE):
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
        await self._ended(request, "The change was committed late")

    async def _finish(
        self, request: ChangeRequest, change_id: UUID | None, missing: str | None = None
    ) -> ChangeRequest:
        """Record that a request is applied, also if it was written since it was read: its change is committed.

        Args:
            request: The request.
            change_id: The first of its changes.
            missing: The reason why others are missing; None if all are committed.
        """
        action, state = RequestAction.FINISH, RequestState.APPLIED
        if missing is not None:
            action, state = RequestAction.FINISH_PARTLY, RequestState.PARTLY_APPLIED
        while action in TRANSITIONS[request.state]:
            late = None
            if request.state not in {RequestState.APPLYING, RequestState.PARTLY_APPLIED}:
                late = f"The change was committed late; the request was {request.state} by then"
            changes: dict[str, Any] = {"change_id": change_id, "error": missing, "differences": ()}
            try:
                return await self._transitions.move(request, action, state, text=late or missing, **changes)
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
