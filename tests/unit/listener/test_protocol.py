"""Connections in one process: how responses are written, and what is read of bodies that nobody wants."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override
from uvicorn.server import ServerState

from confplane.listener.connections import ConnectionLimits, Connections
from confplane.listener.protocol import BoundedProtocol, ListenerConfig
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import ASGIApp, Receive, Scope, Send

_SOON_S = 20
_CHUNK = b"1\r\n \r\n"


class _Connection(BoundedProtocol):
    """A connection that counts what it parses and reads."""

    chunks = 0
    reads = 0

    def on_chunk_complete(self) -> None:
        self.chunks += 1
        super().on_chunk_complete()

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        super().data_received(data)


class _Listener:
    """A listener whose connections are not closed for their times.

    Attributes:
        accepted: All connections, the newest last.
        state: Uvicorn's state, with the open ones.
    """

    def __init__(self, app: ASGIApp) -> None:
        limits = ConnectionLimits(connections=100, head_bytes=65_536, head_s=10, body_s=10, idle_s=10)
        self.connections = Connections(limits)
        self.state = ServerState()
        self.accepted: list[_Connection] = []
        self._config = ListenerConfig(app, self.connections, lambda error, _: (413, [], str(error).encode()))
        self._config.load()

    def accept(self) -> _Connection:
        self.accepted.append(_Connection(self._config, self.state, {}))
        return self.accepted[-1]

    @contextlib.asynccontextmanager
    async def client(self, sent: bytes) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Send some bytes on a connection; yields it."""
        async with await asyncio.get_running_loop().create_server(self.accept, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(sent)
            try:
                yield reader, writer
            finally:
                writer.close()


class _Transport(asyncio.Transport):
    """A transport that takes all and says whether it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = True
        self.writes: list[bytes] = []

    @property
    def written(self) -> bytes:
        """All bytes that were written."""
        return b"".join(self.writes)

    @override
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Do nothing: nobody reads."""

    def get_write_buffer_size(self) -> int:
        return 0


def _head(*, chunked: bool) -> bytes:
    body = b"transfer-encoding: chunked" if chunked else b"content-length: 1000000"
    return b"PUT /x HTTP/1.1\r\nhost: a\r\n" + body + b"\r\n\r\n"


async def _never(_scope: Scope, receive: Receive, _send: Send) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def test_a_body_of_many_small_chunks_is_parsed_up_to_the_bound_only() -> None:
    listener = _Listener(_never)
    connection, transport = listener.accept(), _Transport()
    connection.connection_made(transport)
    connection.data_received(_head(chunked=True) + _CHUNK * 10_000)
    assert b"in larger chunks" in transport.written
    assert connection.chunks < 1_100


async def test_bytes_after_the_last_response_are_read_with_pauses() -> None:
    listener = _Listener(_never)
    transports = [_Transport() for _ in range(3)]
    for transport in transports:
        connection = listener.accept()
        connection.connection_made(transport)
        connection.data_received(_head(chunked=True) + _CHUNK * 2_000)
        connection.data_received(b"x" * 500_000)
        assert transport.reads
        connection.data_received(b"x" * 100_000)
        assert not transport.reads
    await until(lambda: all(transport.reads for transport in transports))


async def test_nothing_is_read_of_a_refused_request_while_an_earlier_one_is_served() -> None:
    listener = _Listener(_never)
    connection, transport = listener.accept(), _Transport()
    connection.connection_made(transport)
    connection.data_received(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\nnonsense\r\n\r\n")
    connection.data_received(_CHUNK)
    assert not transport.reads
    connection.connection_lost(None)


async def test_a_refused_upload_does_not_delay_a_stop() -> None:
    stopping = asyncio.Event()

    async def refuse(_scope: Scope, _receive: Receive, send: Send) -> None:
        await stopping.wait()
        await send({"type": "http.response.start", "status": 403, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"no"})

    listener = _Listener(refuse)
    async with listener.client(_head(chunked=False) + b"x" * 100) as (reader, _):
        await until(lambda: listener.accepted and listener.accepted[0].reads)
        listener.accepted[0].shutdown()
        stopping.set()
        assert (await reader.read()).endswith(b"no")
        await until(lambda: not listener.state.connections, _SOON_S, why="the connection stays open")


async def _written(
    headers: list[tuple[bytes, bytes]], *bodies: bytes, status: int = 200, method: str = "GET"
) -> list[bytes]:
    """Return the writes of a response."""

    async def respond(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for index, body in enumerate(bodies):
            await send({"type": "http.response.body", "body": body, "more_body": index + 1 < len(bodies)})

    listener = _Listener(respond)
    connection, transport = listener.accept(), _Transport()
    connection.connection_made(transport)
    connection.data_received(f"{method} /x HTTP/1.1\r\nhost: a\r\n\r\n".encode())
    await asyncio.gather(*listener.state.tasks)
    connection.connection_lost(None)
    return transport.writes


_TWO = (b"content-length", b"2")


@pytest.mark.parametrize(
    ("status", "headers", "body", "head"),
    [
        (200, [(b"etag", b"x"), _TWO], b"ok", b"HTTP/1.1 200 OK\r\netag: x\r\ncontent-length: 2\r\n\r\n"),
        (304, [(b"etag", b"x")], b"", b"HTTP/1.1 304 Not Modified\r\netag: x\r\n\r\n"),
    ],
)
async def test_a_response_is_one_write(
    status: int, headers: list[tuple[bytes, bytes]], body: bytes, head: bytes
) -> None:
    assert await _written(headers, body, status=status) == [head + body]


async def test_a_stream_begins_before_its_first_piece() -> None:
    piece = asyncio.Event()

    async def stream(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"y")]})
        await piece.wait()
        await send({"type": "http.response.body", "body": b"ok"})

    async with _Listener(stream).client(b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n") as (reader, _):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\nx: y\r\n")
        piece.set()
        assert await reader.readuntil(b"0\r\n\r\n") == b"2\r\nok\r\n0\r\n\r\n"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_body_in_pieces_follows_its_head(method: str) -> None:
    head, *pieces = await _written([(b"content-length", b"4")], b"ab", b"cd", method=method)
    assert head == b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"
    assert b"".join(pieces) == (b"abcd" if method == "GET" else b"")


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\rb", b"a\0b", b"a\x7fb"])
async def test_a_header_with_control_characters_is_never_sent(value: bytes) -> None:
    assert await _written([(b"location", value), _TWO], b"ok") == []


@pytest.mark.parametrize("body", [b"o", b"okay"])
async def test_a_body_of_another_length_ends_the_connection(body: bytes) -> None:
    closed = False

    class Closing(_Transport):
        @override
        def close(self) -> None:
            nonlocal closed
            closed = True

    async def respond(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [_TWO]})
        await send({"type": "http.response.body", "body": body})

    listener = _Listener(respond)
    connection = listener.accept()
    connection.connection_made(Closing())
    connection.data_received(b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n")
    await asyncio.gather(*listener.state.tasks)
    assert closed
    connection.connection_lost(None)


async def test_a_response_during_a_stop_closes_its_connection() -> None:
    begun, stopping = asyncio.Event(), asyncio.Event()

    async def respond(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [_TWO]})
        begun.set()
        await stopping.wait()
        await send({"type": "http.response.body", "body": b"ok"})

    listener = _Listener(respond)
    async with listener.client(b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n") as (reader, _):
        await begun.wait()
        listener.accepted[0].shutdown()
        stopping.set()
        assert b"\r\nconnection: close\r\n" in await reader.read()
