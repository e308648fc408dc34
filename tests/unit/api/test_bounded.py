"""Long reads end at the deadline of the request, and once nobody waits for the response."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from starlette.requests import ClientDisconnect

from confplane.api.request_context import REQUEST_CONTEXT, RequestContext
from confplane.api.responses import PIECE, PreparedResponse, StreamedResponse
from confplane.api.routing.bounded import while_wanted
from confplane.domain.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import Message


class Work:
    """Work that pauses again and again, and notes that it was cancelled."""

    def __init__(self) -> None:
        self.cancelled = False

    async def endless(self) -> int:
        try:
            while True:  # noqa: ASYNC110 - stands for work in slices
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled = True
            raise


class Connection:
    """The messages of a client that closes the connection when told to."""

    def __init__(self, *, open_: bool = True) -> None:
        self.closed = asyncio.Event()
        if not open_:
            self.closed.set()

    async def receive(self) -> Message:
        await self.closed.wait()
        return {"type": "http.disconnect"}


def request(connection: Connection, deadline: float) -> Any:
    context = RequestContext({}, "r", deadline)
    return cast("Any", SimpleNamespace(scope={REQUEST_CONTEXT: context}, receive=connection.receive))


async def test_work_is_cancelled_at_the_deadline() -> None:
    work = Work()
    with pytest.raises(UnavailableError, match="deadline of the request; ask for less") as late:
        await while_wanted(request(Connection(), time.monotonic() - 1), work.endless())
    assert late.value.retry_after_s == 1
    assert work.cancelled


async def test_work_is_cancelled_once_the_client_is_gone() -> None:
    work = Work()
    with pytest.raises(ClientDisconnect):
        await while_wanted(request(Connection(open_=False), time.monotonic() + 600), work.endless())
    assert work.cancelled


async def test_work_that_ends_has_its_result_or_error() -> None:
    async def done() -> int:
        return 7

    async def fails() -> int:
        raise UnavailableError("Postgres is away")

    given = request(Connection(), time.monotonic() + 600)
    assert await while_wanted(given, done()) == 7
    with pytest.raises(UnavailableError, match="Postgres is away"):
        await while_wanted(given, fails())


async def test_a_large_body_is_sent_in_pieces_that_make_it_up() -> None:
    body = bytes(range(256)) * (PIECE // 100)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await PreparedResponse(body, [])({}, Connection().receive, send)
    pieces = [message["body"] for message in sent[1:]]
    assert b"".join(pieces) == body
    assert max(map(len, pieces)) == PIECE
    assert [message.get("more_body", False) for message in sent[1:]] == [True] * (len(sent) - 2) + [False]


async def test_no_piece_is_made_for_a_client_that_is_gone() -> None:
    connection, made, ended = Connection(), 0, False

    async def pieces() -> AsyncGenerator[bytes, None]:
        nonlocal made, ended
        try:
            while True:
                made += 1
                yield b"x"
        finally:
            ended = True

    async def send(_: Message) -> None:
        if made == 3:
            connection.closed.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    await StreamedResponse(pieces(), [])({}, connection.receive, send)
    assert made <= 5
    assert ended
