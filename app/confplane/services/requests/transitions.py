"""Transitions of change requests: each is one write, with its event, and is refused if another came before it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from uuid_utils.compat import uuid7

from confplane.domain.change_requests import OPENED, TRANSITIONS, RequestState, check_action
from confplane.domain.errors import ConcurrentChangeError, WriteOutcome
from confplane.services.ports.change_requests import RequestEvent

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from confplane.domain.change_requests import RequestAction
    from confplane.services.ports.change_requests import ChangeRequest, ChangeRequestStore, Participant, RequestClaim

COMMENT: Final = "comment"
"""The event of a comment, which is not an action of the domain: it leads to no other state."""


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
        await self._store.create(request, self._event(request, OPENED, by, request.reason), claim)

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
        return moved

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
