"""Transitions of change requests: each is one write, with its event, and is refused if another came before it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from uuid_utils.compat import uuid7

from confplane.domain.change_requests import (
    COMMENT,
    DRAFTED,
    OPENED,
    TRANSITIONS,
    WITHOUT_CHANGE,
    WRITTEN,
    RequestAction,
    RequestState,
    check_action,
)
from confplane.domain.errors import ConcurrentChangeError, UnavailableError, WriteOutcome
from confplane.services.ports.change_requests import RequestEvent
from confplane.services.requests.contents import partly_warning, related

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from uuid import UUID

    from confplane.services.ports.change_requests import ChangeRequest, ChangeRequestStore, Participant, RequestClaim

_ENDING: Final = frozenset(
    {RequestAction.FINISH, RequestAction.FAIL, RequestAction.REJECT, RequestAction.CANCEL, RequestAction.EXPIRE}
)


class RequestTransitions:
    """Writes requests.

    Args:
        store: The requests.
        now: The clock.
    """

    def __init__(self, store: ChangeRequestStore, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now

    async def create(self, request: ChangeRequest, by: Participant, claim: RequestClaim | None = None) -> None:
        """Add a request, under an Idempotency-Key if there is one.

        Raises:
            IdempotencyKeyBusyError: Another request holds the key, or made the change request under it.
        """
        opened = DRAFTED if request.state is RequestState.DRAFT else OPENED
        await self._store.create(request, self._event(request, opened, by, request.reason), claim)

    async def move(
        self,
        request: ChangeRequest,
        action: RequestAction,
        state: RequestState,
        by: Participant | None = None,
        text: str | None = None,
        **changes: Any,
    ) -> ChangeRequest:
        """Write a transition, and return the request after it.

        Args:
            request: The request as read.
            action: The action.
            state: The state to which it leads.
            by: The caller; None if no caller asked for it.
            text: The reason, or a comment.
            changes: Other fields that change.

        Raises:
            RequestStateError: The state does not allow the action.
            ConcurrentChangeError: The request was written in the meantime.
        """
        check_action(request.kind, request.state, action)
        if state not in TRANSITIONS[request.state][action]:
            raise ValueError(f"{action} does not lead from {request.state} to {state}")
        application = request.application if state is RequestState.APPLYING else None
        moved = replace(
            request, **{"state": state, "version": request.version + 1, "application": application, **changes}
        )
        await self._write(moved, self._event(moved, action, by, text))
        if action in _ENDING and moved.reverts is not None:
            # The leader does it later if it fails, or if this process ends first.
            with suppress(UnavailableError, ConcurrentChangeError):
                await self.end_revert(moved, moved.reverts)
        return moved

    async def end_revert(self, request: ChangeRequest, reverted: UUID) -> None:
        """Record in a request that it is reverted, or that it is not, once the request that reverts it has ended.

        Args:
            request: The request that reverts another one.
            reverted: The other one.

        Raises:
            UnavailableError: Postgres is unavailable.
            ConcurrentChangeError: The reverted request was written in the meantime.
        """
        found = await self._store.find(request.cluster, reverted)
        if found is None or RequestAction.FINISH_REVERT not in TRANSITIONS[found.state]:
            return
        is_related = related(found.draft, request.draft)
        if request.state in WRITTEN and is_related:
            action, state = RequestAction.FINISH_REVERT, RequestState.REVERTED
            # A process of an earlier release that applied the request has left its warnings only.
            if request.reverts_partly or partly_warning(reverted) in request.warnings:
                action, state = RequestAction.FINISH_REVERT_PARTLY, RequestState.REVERTED_PARTLY
            text = f"The request {request.id} reverted it"
            await self.move(found, action, state, text=text, reverted_by=request.id)
        elif (request.state in WITHOUT_CHANGE or not is_related) and (found.state, found.reverted_by) == (
            RequestState.REVERTING,
            request.id,
        ):
            text = f"The request {request.id}, which would have reverted it, is {request.state}"
            if not is_related:
                text = f"The request {request.id}, which would have reverted it, changes none of its keys"
            # A request that was applied in part has the reason.
            before = RequestState.APPLIED if found.error is None else RequestState.PARTLY_APPLIED
            await self.move(found, RequestAction.DROP_REVERT, before, text=text, reverted_by=None)

    async def comment(self, request: ChangeRequest, by: Participant, text: str) -> None:
        """Add a comment, which does not change the request."""
        await self._store.add_event(request.id, self._event(request, COMMENT, by, text))

    async def _write(self, request: ChangeRequest, event: RequestEvent) -> None:
        if not await self._store.write(request, event):
            raise ConcurrentChangeError(
                "The request was changed at the same time; read it and try again",
                outcome=WriteOutcome.NOT_APPLIED,
                retry_after_s=1,
            )

    def _event(self, request: ChangeRequest, action: str, by: Participant | None, text: str | None) -> RequestEvent:
        identity = None if by is None else by.identity
        return RequestEvent(
            uuid7(),
            action,
            self._now(),
            None if identity is None else identity.principal,
            None if identity is None else identity.acts_for,
            text,
            request.revision,
            request.state,
        )
