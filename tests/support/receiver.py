"""A receiver of webhooks on loopback: keeps what it gets, and responds as a test tells it to."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable

OK: Final = b"HTTP/1.1 204 No Content\r\n\r\n"


class ReceivedRequest(NamedTuple):
    """A request that a receiver got."""

    target: str
    headers: dict[str, str]
    """By their names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Receiver:
    """A server.

    Attributes:
        requests: All requests, in their order.
        connections: The number of connections so far.
        respond: Returns the response to a request; None to send none until the connection is closed.
        port: The port.
    """

    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []
        self.connections = 0
        self.respond: Callable[[ReceivedRequest], bytes | None] = lambda _: OK
        self.port = 0
        self._open: set[asyncio.StreamWriter] = set()

    def url(self, path: str = "/", *, scheme: str = "http", host: str = "127.0.0.1") -> str:
        """Return a URL of the receiver."""
        return f"{scheme}://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        self._open.add(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            pairs = (line.partition(": ") for line in head[1:] if line)
            headers = {name.lower(): value for name, _, value in pairs}
            body = await reader.readexactly(int(headers["content-length"]))
            request = ReceivedRequest(head[0].split(" ")[1], headers, body)
            self.requests.append(request)
            response = self.respond(request)
            if response is None:
                await reader.read()
            else:
                writer.write(response)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    def close(self) -> None:
        """Close the connections that wait for a response."""
        for writer in self._open:
            writer.transport.abort()


@asynccontextmanager
async def receiving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """Run a receiver."""
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        receiver.close()
        server.close()
