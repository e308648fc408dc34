"""The request context: facts that the middleware determined about a request, for all later layers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confplane.api.traffic import CLIENT_CLOSED_REQUEST
from confplane.domain.errors import LimitExceededError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.errors import ConfplaneError
    from confplane.services.access import Access
    from confplane.services.limits import Allowance
    from confplane.services.ports.refusals import RefusedEdit
    from confplane.services.response_budget import ResponseLease

REQUEST_CONTEXT: Final = "confplane.request_context"
"""Key of the scope with the :class:`RequestContext`."""


@dataclass(eq=False, slots=True)
class RequestContext:
    """Facts that the middleware determined about a request.

    They are stored under one key of the scope. The scope is a dict close to the size at which it is resized, so one key
    per field would make every request pay for a resize.
    """

    headers: Mapping[bytes, bytes]
    """Headers by name, with the last value of a repeated one. Starlette would search the whole list."""
    request_id: str
    deadline: float
    """Deadline of the response, by ``time.monotonic()``."""
    access: Access | None = None
    """The access of the caller. None if the request needs no access."""
    allowance: Allowance | None = None
    """The limits of the caller. None if there are no limits."""
    lease: ResponseLease | None = None
    """The bytes that the response holds until it was sent. None for small responses."""
    refused: list[RefusedEdit] | None = None
    """The edits of the request that ended with an error. None if they are not recorded."""
    error: ConfplaneError | None = None
    """The error that the response renders. None if it is a success, or a success in part."""
    status: int = CLIENT_CLOSED_REQUEST
    """The status of the response, once it is sent."""

    def extend(self, seconds: float | None) -> None:
        """Move the deadline to so many seconds from now, if that is later; None leaves it."""
        if seconds is not None:
            self.deadline = max(self.deadline, time.monotonic() + seconds)

    async def hold(self, error: ConfplaneError) -> None:
        """Hold the response to an error back if the caller is above a limit and does not wait as it was told."""
        if self.allowance is not None and isinstance(error, LimitExceededError):
            await self.allowance.hold()
