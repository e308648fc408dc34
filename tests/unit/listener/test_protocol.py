"""Connections in one process: what is read of bodies that nobody wants, and the end of their connections."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

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
        self.written = b""

    @override
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: Any) -> None:
        self.written += data

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
