"""The bounds of reads that may take long: the request's deadline, the client's presence, and the bytes in flight."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.requests import ClientDisconnect

from confplane.api.request_context import REQUEST_CONTEXT
from confplane.api.responses import PIECE, disconnected
from confplane.api.services import RESPONSE_BUDGET
from confplane.domain.errors import UnavailableError
from confplane.services.cooperative_yielding import take_turn
from confplane.services.limits import BYTES_OF_UNIT, LimitClass

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from confplane.api.request_context import RequestContext
    from confplane.api.routing.operations import Handler

T = TypeVar("T")

_GRACE_S: Final = 0.25
"""Seconds after the deadline, so that work that checks the deadline itself can say what it waited for."""


async def bulk_response(request: Request, handler: Handler, arguments: Mapping[str, Any]) -> Response:
    """Return the response of a bulk read, once long work may begin, within its bounds, and charge its bytes.

    Raises:
        UnavailableError: The work was not done by the deadline, or too many bytes are in flight.
        ClientDisconnect: No client waits for the response.
        BodyTooLargeError: The response alone is larger than the share of a principal.
        LimitExceededError: The principal's responses are larger than its share.
    """
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
