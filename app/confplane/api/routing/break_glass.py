"""``Confplane-Break-Glass``: wraps writing handlers, so that a request may write past the rules of the policies."""

from __future__ import annotations

import contextlib
import inspect
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import Header

from confplane.api.dependencies import MAX_REASON
from confplane.api.routing.operations import Handler
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


def breakable(handler: Handler) -> Handler:
    """Make a handler honour the header; it takes ``call`` and optionally a body."""

    @wraps(handler)
    async def bypassing(call: Call, *, break_glass: str | None = None, **given: Any) -> Response:
        if break_glass is None:
            return await handler(call=call, **given)
        call = replace(call, break_glass=break_glass)
        if call.validate_only or getattr(given.get("body"), "validate_only", False):
            return await handler(call=call, **given)
        return await _bypassing(handler, call, given)

    signature = inspect.signature(handler, eval_str=True)
    added = inspect.Parameter("break_glass", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_Reason)
    bypassing.__signature__ = signature.replace(  # type: ignore[attr-defined]  # what inspect looks for
        parameters=[*signature.parameters.values(), added]
    )
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
