"""The bounds of reads that may take long: the request's deadline, the client's presence, and the bytes in flight.

A response with many entries is sent while it is made.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.requests import ClientDisconnect

from confplane.api.models import RequestModel
from confplane.api.rendering import Form, pieces
from confplane.api.request_context import REQUEST_CONTEXT
from confplane.api.responses import (
    PIECE,
    PreparedResponse,
    StreamedResponse,
    consistency_headers,
    disconnected,
    encoded,
)
from confplane.api.services import RESPONSE_BUDGET
from confplane.domain.errors import ConfplaneError, UnavailableError
from confplane.services.cooperative_yielding import take_turn
from confplane.services.limits import BYTES_OF_UNIT, LimitClass

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Coroutine, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from confplane.api.dependencies import Call
    from confplane.api.request_context import RequestContext
    from confplane.api.responses import Headers
    from confplane.api.routing.operations import Handler

T = TypeVar("T")

_GRACE_S: Final = 0.25
"""Seconds after the deadline, so that work that checks the deadline itself can say what it waited for."""
_STREAM_BYTES: Final = 8 * 1024 * 1024
"""Bytes of a streamed response: its pieces, and the list of its entities, up to a million."""


async def bulk_response(request: Request, handler: Handler, arguments: Mapping[str, Any]) -> Response:
    """Return the response of a bulk read, once long work may begin, within its bounds, and charge its bytes.

    A brief read has no bounds.

    Raises:
        UnavailableError: The work was not done by the deadline, or too many bytes are in flight.
        ClientDisconnect: No client waits for the response.
        BodyTooLargeError: The response alone is larger than the share of a principal.
        LimitExceededError: The principal's responses are larger than its share.
    """
    body = arguments.get("body")
    if isinstance(body, RequestModel) and body.brief:
        return await handler(**arguments)
    context: RequestContext = request.scope[REQUEST_CONTEXT]
    await take_turn()
    response = await while_wanted(request, handler(**arguments))
    size = len(response.body)
    held = 0 if context.lease is None else context.lease.size
    if size > max(held, PIECE):
        hold(request, size - held)
    if context.allowance is not None:
        context.allowance.charge(LimitClass.BULK, size // BYTES_OF_UNIT)
    return response


async def while_wanted(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Run the work of a read, and cancel it at the request's deadline, or once the client has closed the connection.

    The body of the request was received before.

    Raises:
        UnavailableError: The work was not done by the deadline.
        ClientDisconnect: No client waits for the response.
    """
    context: RequestContext = request.scope[REQUEST_CONTEXT]
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(disconnected(request.receive))
    both = {task, gone}
    try:
        left = context.deadline + _GRACE_S - time.monotonic()
        await asyncio.wait(both, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if gone.done():
            raise ClientDisconnect
        raise UnavailableError(
            "The response was not complete by the deadline of the request; ask for less, for example for a smaller page"
            " or fewer entities",
            retry_after_s=1,
        )
    finally:
        left_over = [each for each in both if not each.done()]
        for each in left_over:
            each.cancel()
        if left_over:
            await asyncio.wait(left_over)
        del task, gone, both, left_over


def hold(request: Request, size: int) -> None:
    """Count bytes of the response until it was sent.

    Raises:
        BodyTooLargeError: The response alone is larger than the share of a principal.
        LimitExceededError: The principal's responses are larger than its share.
        UnavailableError: All responses together are larger than the total.
    """
    context: RequestContext = request.scope[REQUEST_CONTEXT]
    if context.lease is None:
        assert context.access is not None  # noqa: S101 - for the type checker: open paths have no large responses
        context.lease = RESPONSE_BUDGET(request).lease(context.access.identity.principal)
    context.lease.hold(size)


async def entries_response(
    call: Call, form: Form, parts: AsyncIterable[Sequence[bytes]], skipped: Sequence[str]
) -> Response:
    """Answer with many entries; a response of more than a piece is sent while it is made.

    Args:
        call: The request.
        form: The form of the response.
        parts: The entries, which are charged for where they are made.
        skipped: The paths of the znodes that can't be read, complete once the parts are.

    Raises:
        BodyTooLargeError: The response alone is larger than the share of a principal.
        LimitExceededError: The principal's responses are larger than its share.
        UnavailableError: All responses together are larger than the total.
    """
    # The revision is that of now: entries may be newer, and never older, than the response says.
    headers = [*consistency_headers(call.cluster.store), *encoded({"vary": "Accept", "content-type": form.media_type})]
    return await _in_pieces(call, form, parts, skipped, headers, 200)


async def extended_response(
    call: Call, response: Response, member: str, parts: AsyncIterable[Sequence[bytes]]
) -> Response:
    """Return a JSON response with one more member, a list, which is sent while it is made if it is long.

    The arguments and errors are those of :func:`entries_response`.
    """
    head = bytes(response.body)[:-1] + f',"{member}":['.encode()
    form = Form(
        "application/json",
        lambda entries, first: (b"" if first else b",") + b",".join(entries),
        lambda _: head,
        lambda _, __: b"]}",
    )
    headers = [each for each in response.raw_headers if each[0] != b"content-length"]
    return await _in_pieces(call, form, parts, (), headers, response.status_code)


async def _in_pieces(
    call: Call,
    form: Form,
    parts: AsyncIterable[Sequence[bytes]],
    skipped: Sequence[str],
    headers: Headers,
    status: int,
) -> Response:
    made = pieces(parts, form)
    first = await anext(made, b"")
    second = await anext(made, None)
    throttle_ms = call.throttle_ms(LimitClass.BULK)
    head = form.head(throttle_ms)
    if second is None:
        return PreparedResponse(head + first + form.tail(throttle_ms, skipped), headers, status=status)
    try:
        hold(call.request, _STREAM_BYTES)
    except ConfplaneError:
        await made.aclose()
        raise
    return StreamedResponse(_streamed(call, form, [head, first, second], made, skipped), headers, status=status)


async def _streamed(
    call: Call, form: Form, made: list[bytes], later: AsyncGenerator[bytes, None], skipped: Sequence[str]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(later):
        while made:
            yield made.pop(0)
        async for piece in later:
            call.charge(LimitClass.BULK, len(piece) // BYTES_OF_UNIT)
            yield piece
    yield form.tail(call.throttle_ms(LimitClass.BULK), skipped)
