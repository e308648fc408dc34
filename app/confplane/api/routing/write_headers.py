"""The headers of writes that a route acts on around its handler.

- ``Idempotency-Key``: a repeated request gets the stored response.
- ``Confplane-Break-Glass``: a request may write past the rules of the policies.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import Depends, Header
from starlette.requests import Request

from confplane.api import formats
from confplane.api.dependencies import BREAK_GLASS, MAX_REASON
from confplane.api.request_context import REQUEST_CONTEXT
from confplane.api.responses import PreparedResponse, consistency_headers, encoded
from confplane.api.routing.bodies import BODY
from confplane.api.routing.operations import Handler, validates_only
from confplane.api.services import CHANGE_REQUESTS, IDEMPOTENCY
from confplane.domain.errors import ConfplaneError, IdempotencyUnsupportedError, InvalidRequestError, WriteOutcome
from confplane.services.changes.callers import RuleBypass
from confplane.services.changes.idempotency import POINTER, RequestKey
from confplane.services.ports.request_keys import StoredAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.responses import Response

    from confplane.api.dependencies import Call, ServiceCall
    from confplane.services.clusters import Cluster
    from confplane.services.ports.change_requests import ChangeRequest
    from confplane.services.requests.service import ChangeRequestService

_NAME: Final = b"idempotency-key"
_GIVEN: Final = "confplane.idempotency-key"
"""Scope key of the header's value."""
_REPLAYED: Final = "idempotency-replayed"
_REVISION: Final = "confplane-revision"
_VALID_KEY: Final = re.compile(formats.IDEMPOTENCY_KEY)
_Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Has this request done once, however often it is sent within 24 hours: sent again with the same "
        "body it is answered as the first time. A new key for every request, a random UUID for example. Without effect "
        "under `validateOnly`",
        json_schema_extra={"pattern": formats.IDEMPOTENCY_KEY},
    ),
]
_STORED_HEADERS: Final = ("content-type", "etag", "location", "confplane-change-id", _REVISION)
"""Headers that are stored with a response and replayed."""
_SUCCESS: Final = 300
_Reason = Annotated[
    str | None,
    Header(
        alias="Confplane-Break-Glass",
        min_length=1,
        max_length=MAX_REASON,
        description="The reason of an emergency: writes past the rules of the policies and their approvals, which needs"
        " BYPASS_RULES on each entity that they concern. Another person has to acknowledge it. Without effect"
        " within the rules",
    ),
]


async def _idempotency_key(request: Request, key: _Key = None) -> None:
    request.scope[_GIVEN] = key


IdempotencyKey: Any = Depends(_idempotency_key)
"""The header, as a parameter of an operation; :func:`idempotent` acts on it."""


def idempotent(handler: Handler) -> Handler:
    """Make a handler, which takes ``call`` and optionally a body, act on the header."""

    async def once(call: Call, **given: Any) -> Response:
        sent = call.request.scope.get(_GIVEN)
        if sent is None:
            return await handler(call=call, **given)
        key = _key(call.request, sent)
        if validates_only(call, given):
            return await handler(call=call, **given)
        return await _once(handler, call, key, given)

    return once


def keyless(handler: Handler) -> Handler:
    """Make a handler, which takes ``call``, refuse the header instead of ignoring it."""

    async def refusing(call: Call | ServiceCall, **given: Any) -> Response:
        if _NAME in call.request.scope[REQUEST_CONTEXT].headers and not call.validate_only:
            raise IdempotencyUnsupportedError(
                "This operation does not honour Idempotency-Key, and will not pretend to; send the request without it",
                pointer=POINTER,
            )
        return await handler(call=call, **given)

    return refusing


def _key(request: Request, given: str) -> str:
    if [name for name, _ in request.scope["headers"]].count(_NAME) > 1:
        raise InvalidRequestError("Idempotency-Key is given more than once", pointer=POINTER)
    if not _VALID_KEY.fullmatch(given):
        raise InvalidRequestError(
            "Idempotency-Key has to be 1 to 255 printable ASCII characters, such as a random UUID", pointer=POINTER
        )
    return given


async def _once(handler: Handler, call: Call, key: str, given: dict[str, Any]) -> Response:
    request, cluster, caller = call.request, call.cluster, call.caller
    requests = IDEMPOTENCY(request)
    path: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    wanted = RequestKey.of(
        key,
        cluster=cluster.name,
        identity=caller.access.identity,
        method=request.method,
        path=path.decode("latin-1"),
        body=request.scope.get(BODY),
    )
    run = None
    while True:
        begun = await requests.begin(wanted, cluster.store, caller.access, caller.deadline, ended=run)
        if isinstance(begun, StoredAnswer):
            return _replayed(cluster, begun)
        run = begun
        response, refusal = None, None
        try:
            response = await handler(call=replace(call, run=run), **given)
        except ConfplaneError as error:
            refusal = error
        answer = None if response is None or response.status_code >= _SUCCESS else _answer(response)
        if not await requests.finish(run, answer):
            continue
        if refusal is not None:
            raise refusal
        if response is not None:
            if run.replays and answer is not None:
                response.headers[_REPLAYED] = "true"
            return response


def _answer(response: Response) -> StoredAnswer:
    headers = {name: response.headers[name] for name in _STORED_HEADERS if name in response.headers}
    return StoredAnswer(response.status_code, headers, bytes(response.body).decode())


def _replayed(cluster: Cluster, answer: StoredAnswer) -> Response:
    kept = dict(answer.headers)
    revision = kept.pop(_REVISION, None)
    headers = consistency_headers(cluster.store, None if revision is None else int(revision))
    headers += encoded({**kept, _REPLAYED: "true"})
    return PreparedResponse(answer.body.encode(), headers, status=answer.status)


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
