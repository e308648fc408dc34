"""Reviews of change requests: approvals, rejections, cancellations and comments."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from confplane.domain.access.operations import Operation
from confplane.domain.change_requests import (
    RequestAction,
    RequestKind,
    RequestState,
    check_action,
    shared_names,
    uncovered,
    with_approval,
)
from confplane.domain.errors import ForbiddenError, PreconditionFailedError, RequestStateError, StalePlanError
from confplane.services.changes.stored_draft import to_supply
from confplane.services.ports.change_requests import GivenApproval
from confplane.services.requests.participants import lacking, to_cover
from confplane.services.requests.reader import check_manages, check_some, check_text, is_author

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from confplane.services.changes.callers import Caller
    from confplane.services.clusters import Cluster
    from confplane.services.ports.change_requests import ChangeRequest, Participant
    from confplane.services.requests.applier import RequestApplier
    from confplane.services.requests.participants import Participants
    from confplane.services.requests.reader import RequestReader
    from confplane.services.requests.requested import RequestedChanges
    from confplane.services.requests.transitions import RequestTransitions


class RequestReviews:
    """Reviews requests.

    Args:
        reader: Reads requests.
        transitions: Writes requests.
        participants: The people of requests.
        applier: Opens requests again, and names their authors.
        changes: Decides requests again.
        now: The clock.
    """

    def __init__(
        self,
        reader: RequestReader,
        transitions: RequestTransitions,
        participants: Participants,
        *,
        applier: RequestApplier,
        changes: RequestedChanges,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._reader = reader
        self._transitions = transitions
        self._participants = participants
        self._applier = applier
        self._changes = changes
        self._now = now

    async def approve(
        self,
        cluster: Cluster,
        request_id: UUID,
        plan: str,
        caller: Caller,
        *,
        comment: str | None = None,
        validate_only: bool = False,
    ) -> ChangeRequest:
        """Approve the content of a request.

        Args:
            cluster: The cluster.
            request_id: The request.
            plan: The digest of the content that was seen.
            caller: The approver.
            comment: A comment.
            validate_only: Check everything, and write nothing.

        Raises:
            ForbiddenError: The caller is an author, may alter no entity of the request, or has the admin token.
            StalePlanError: The request has another content by now.
            RequestStateError: Its state does not allow it, or an entity was changed since it was decided.
            ConfplaneError: The change would be refused.
        """
        check_text(comment)
        request = await self._reader.find(cluster.name, request_id, caller.access)
        check_action(request.kind, request.state, RequestAction.APPROVE)
        self._applier.check_time(request)
        if plan != request.digest:
            raise StalePlanError(
                f"The request has the content {request.digest} by now; read it again", pointer="/digest"
            )
        approver = await self._approver(request, caller)
        await self._participants.refresh()
        covered = await self._participants.covered(approver, request)
        given = GivenApproval(approver, self._now(), covered)
        counting = await self._participants.counting(request)
        approvals = with_approval(counting, given, lambda each: each.approver.person)
        if request.kind is RequestKind.CHANGE and not to_supply(request.draft):
            request = await self._decided_again(cluster, request, caller, approvals)
        state = _state(request, approvals)
        changes: dict[str, Any] = {"approvals": tuple(approvals), "error": None, "differences": ()}
        if validate_only:
            return replace(request, state=state, **changes)
        return await self._transitions.move(request, RequestAction.APPROVE, state, approver, comment, **changes)

    async def _approver(self, request: ChangeRequest, caller: Caller) -> Participant:
        """Return the caller as an approver.

        Raises:
            ForbiddenError: The caller can't approve the request.
        """
        identity = caller.access.identity
        if identity.is_admin:
            raise ForbiddenError(
                "The admin token approves nothing: it belongs to the service, and not to a person. Use the credential"
                " of a person"
            )
        approver = await self._participants.of(identity)
        for author in request.authors:
            shared = shared_names(author.person, approver.person)
            if shared:
                raise ForbiddenError(
                    f"Another person than the author has to approve, and both credentials belong to"
                    f" {', '.join(sorted(shared))}"
                )
        if not any(caller.access.allows(request.cluster, Operation.ALTER_CONFIGS, each) for each in request.entity_ids):
            caller.require(request.cluster, Operation.ALTER_CONFIGS, request.entity_ids[0])
        return approver

    async def _decided_again(
        self, cluster: Cluster, request: ChangeRequest, caller: Caller, approvals: Sequence[GivenApproval]
    ) -> ChangeRequest:
        """Decide a request again, on the versions on which it was decided; return it with what rules ask for now."""
        change = await self._changes.restore(cluster, request, {})
        try:
            requirements = await change.requirements(self._applier.author(request, caller, approvals))
        except (PreconditionFailedError, StalePlanError) as error:
            await self._applier.reopen(cluster, request, caller)
            raise RequestStateError(f"{error.detail}. The request is open again, without approvals") from None
        return replace(request, requirements=requirements)

    async def reject(
        self, cluster: Cluster, request_id: UUID, comment: str | None, caller: Caller, *, validate_only: bool = False
    ) -> ChangeRequest:
        """Reject a request for good.

        Raises:
            ForbiddenError: The caller may alter no entity of the request, and does not manage change requests.
            RequestStateError: Its state does not allow it.
        """
        check_text(comment)
        request = await self._reader.find(cluster.name, request_id, caller.access)
        check_some(caller, request, Operation.ALTER_CONFIGS)
        return await self._end(
            request, RequestAction.REJECT, RequestState.REJECTED, comment, caller, validate_only=validate_only
        )

    async def cancel(
        self, cluster: Cluster, request_id: UUID, comment: str | None, caller: Caller, *, validate_only: bool = False
    ) -> ChangeRequest:
        """Cancel a request: as an author, or as somebody who manages change requests.

        Raises:
            ForbiddenError: The caller is neither.
            RequestStateError: Its state does not allow it.
        """
        check_text(comment)
        request = await self._reader.find(cluster.name, request_id, caller.access)
        if request.kind is RequestKind.BREAK_GLASS:
            raise RequestStateError("The change of this request is made already; another person has to approve it")
        if not is_author(caller, request):
            check_manages(caller, request)
        action = RequestAction.DISCARD if request.state is RequestState.DRAFT else RequestAction.CANCEL
        return await self._end(request, action, RequestState.CANCELLED, comment, caller, validate_only=validate_only)

    async def _end(
        self,
        request: ChangeRequest,
        action: RequestAction,
        state: RequestState,
        comment: str | None,
        caller: Caller,
        *,
        validate_only: bool,
    ) -> ChangeRequest:
        check_action(request.kind, request.state, action)
        if validate_only:
            return replace(request, state=state)
        by = await self._participants.of(caller.access.identity)
        return await self._transitions.move(request, action, state, by, comment)

    async def comment(
        self, cluster: Cluster, request_id: UUID, comment: str, caller: Caller, *, validate_only: bool = False
    ) -> ChangeRequest:
        """Add a comment, and return the request.

        Raises:
            ForbiddenError: The caller may propose a change of none of the entities, and alter none of them.
            InvalidRequestError: The comment can't be stored.
        """
        check_text(comment)
        request = await self._reader.find(cluster.name, request_id, caller.access)
        check_some(caller, request, Operation.PROPOSE, Operation.ALTER_CONFIGS)
        if not validate_only:
            await self._transitions.comment(request, await self._participants.of(caller.access.identity), comment)
        return request


def _state(request: ChangeRequest, approvals: Sequence[GivenApproval]) -> RequestState:
    """Return the state of a request with these approvals."""
    if uncovered(to_cover(request), [each.entities for each in approvals]) or lacking(request, approvals):
        return RequestState.OPEN
    if request.kind is RequestKind.BREAK_GLASS:
        return RequestState.ACKNOWLEDGED
    return RequestState.APPROVED if request.apply_at is None else RequestState.SCHEDULED
