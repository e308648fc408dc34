"""``Confplane-Break-Glass``: a request may write past the rules of the policies."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import Depends, Header
from starlette.requests import Request

from confplane.api.dependencies import BREAK_GLASS, MAX_REASON
from confplane.api.routing.operations import Handler, validates_only
from confplane.api.services import CHANGE_REQUESTS
from confplane.domain.errors import ConfplaneError, WriteOutcome
from confplane.services.changes.callers import RuleBypass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.responses import Response

    from confplane.api.dependencies import Call
    from confplane.services.ports.change_requests import ChangeRequest
    from confplane.services.requests.service import ChangeRequestService

HEADER: Final = "Confplane-Break-Glass"
_Reason = Annotated[
    str | None,
    Header(
        alias=HEADER,
        min_length=1,
        max_length=MAX_REASON,
        description="The reason of an emergency: writes past the rules of the policies and their approvals, which needs"
        " BYPASS_RULES on each entity that they concern. Another person has to acknowledge it. Without effect"
        " within the rules",
    ),
]


async def _break_glass(request: Request, reason: _Reason = None) -> None:
    request.scope[BREAK_GLASS] = reason


BreakGlass: Any = Depends(_break_glass)
"""The header, as a parameter of an operation; :func:`breakable` acts on it."""


def breakable(handler: Handler) -> Handler:
    """Make a handler, which takes ``call`` and optionally a body, act on the header."""

    async def bypassing(call: Call, **given: Any) -> Response:
        if call.request.scope.get(BREAK_GLASS) is None or validates_only(call, given):
            return await handler(call=call, **given)
        return await _bypassing(handler, call, given)

    return bypassing


async def _bypassing(handler: Handler, call: Call, given: dict[str, Any]) -> Response:
    requests, access, cluster = CHANGE_REQUESTS(call.request), call.access, call.cluster

    async def open_request(entity_ids: Sequence[str]) -> ChangeRequest:
        opened = await requests.open_break_glass(cluster, entity_ids, call.caller)
        if access.events is not None:
            access.events.broke_glass(access.identity, access.source, access.request_id, cluster.name, str(opened.id))
        return opened

    bypass = RuleBypass(open_request)
    try:
        response = await handler(call=replace(call, bypass=bypass), **given)
    except ConfplaneError as error:
        if error.outcome is not WriteOutcome.UNKNOWN:
            await _drop(requests, bypass)
        raise
    await _drop(requests, bypass)
    return response


async def _drop(requests: ChangeRequestService, bypass: RuleBypass) -> None:
    """Cancel the change request if nothing was written. It stays open if that fails, for somebody to acknowledge."""
    if bypass.request is not None and not bypass.wrote:
        with contextlib.suppress(ConfplaneError):
            await requests.drop_break_glass(bypass.request)
