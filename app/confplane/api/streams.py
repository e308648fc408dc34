"""Responses with many entries, sent while they are made."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from confplane.api.rendering import Form, pieces
from confplane.api.responses import PreparedResponse, StreamedResponse, consistency_headers, encoded
from confplane.api.routing.bounded import hold
from confplane.domain.errors import ConfplaneError
from confplane.services.limits import BYTES_OF_UNIT, LimitClass

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Sequence

    from starlette.responses import Response

    from confplane.api.dependencies import Call
    from confplane.api.responses import Headers

_STREAM_BYTES: Final = 8 * 1024 * 1024
"""Bytes of a streamed response: its pieces, and the list of its entities, up to a million."""


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
    return await _response(call, form, parts, skipped, headers, 200)


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
    return await _response(call, form, parts, (), headers, response.status_code)


async def _response(
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
