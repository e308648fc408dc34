"""One connection: uvicorn's protocol with bounds on a client's bytes and times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from confplane.domain.errors import (
    HeadTooLargeError,
    InvalidRequestError,
    RequestTimeoutError,
    TargetTooLongError,
    TooManyConnectionsError,
)
from confplane.listener.client_certificates import subject_of_peer
from confplane.listener.connections import Closed
from confplane.security.principals import CERTIFICATE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from starlette.types import ASGIApp, Receive, Scope, Send
    from uvicorn.server import ServerState

    from confplane.domain.errors import ConfplaneError
    from confplane.listener.connections import Connections, Line

    Refusal = tuple[int, list[tuple[bytes, bytes]], bytes]
    Refuse = Callable[[ConfplaneError, bytes | None], Refusal]
    """Renders an error; takes the header Origin of the request besides, as far as it was read."""
    """Renders an error as an answer: its status, headers and body."""

ALWAYS_ANSWERED: Final = frozenset({"/livez"})
"""Paths that are answered above the cap of connections."""
_MAX_PIPELINED: Final = 100
"""Requests that may wait behind the current one; a single read of the socket may hold thousands."""


class ListenerConfig(uvicorn.Config):
    """Uvicorn's settings with the state that the connections share."""

    def __init__(self, app: ASGIApp, connections: Connections, refuse: Refuse, **options: Any) -> None:
        super().__init__(app, http=BoundedProtocol, **options)
        self.connections = connections
        self.refuse = refuse


class BoundedProtocol(HttpToolsProtocol):
    """A connection with bounds on its client.

    Bytes are counted by ``_quiet``: those read since the parser last reported a complete head, a piece of a body or the
    end of a request. So one bound holds for heads, trailers and the extensions of chunks, and costs a short request one
    addition. The bound is exact for a head that begins with a read; for a head behind another request it begins with
    the next read.

    No connection is upgraded: a request for an upgrade is answered as an ordinary one (RFC 9110, section 7.8). Java's
    client, whose first request offers HTTP/2, relies on this.
    """

    config: ListenerConfig

    def __init__(
        self,
        config: ListenerConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.line: Line | None = None
        self.url = b""
        self._connections = config.connections
        self._most = config.connections.limits.head_bytes
        self._quiet = 0
        self._in_body = False
        self._upgrade = False
        self._deaf = False
        """True where nothing more is read from the client; its further bytes are dropped."""
        self._left = False
        self._gone = False
        self._refusal: ConfplaneError | None = None
        """The error to answer after the earlier requests."""
        self._unsent = 0
        self._subject: str | None = None
        """The subject of the client's certificate."""
        self._sent: list[tuple[bytes, bytes]] = []
        """The headers of the request whose head was complete last."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a head."""
        super().connection_made(transport)
        self._subject = subject_of_peer(transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._connections.remove(self)
        self._deaf = self._gone = True
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the bytes that arrived, in pieces no larger than a head may be."""
        if len(data) <= self._most - self._quiet:
            self._feed(data)
        else:
            start = 0
            while start < len(data) and not self._deaf:
                end = start + self._most - self._quiet
                self._feed(data[start:end])
                start = end
        self._settle()

    def _feed(self, data: bytes) -> None:
        if self._deaf:
            return
        self._quiet += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(
                InvalidRequestError("The request is no HTTP/1.1 that can be parsed; the connection is closed"),
                Closed.MALFORMED,
            )
        if self._quiet >= self._most and not self._deaf:
            self._refuse(self._too_large(), Closed.HEAD_TOO_LARGE)

    def _too_large(self) -> ConfplaneError:
        if self._in_body:
            return HeadTooLargeError(
                f"The body's trailers or chunk extensions are larger than {self._most} bytes; send none"
            )
        if len(self.url) > self._most // 2:
            return TargetTooLongError(
                f"The request's head is larger than {self._most} bytes, most of it the URL; ask for less at once, or "
                "by the operation that takes a body"
            )
        return HeadTooLargeError(f"The request's head is larger than {self._most} bytes; send fewer or shorter headers")

    # ---------------------------------------------------------------- reports of the parser

    def on_message_begin(self) -> None:
        """Begin a request, with the subject of the connection's certificate."""
        super().on_message_begin()
        if self._subject is not None:
            self.scope[CERTIFICATE] = self._subject  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        """Start the answer."""
        self._quiet = 0
        if self._deaf:
            return
        if self.parser.should_upgrade():
            self._upgrade = True
            return
        self._in_body = True
        if self.line is self._connections.heads and not self._connections.admits():
            self.app = _full(self.config.loaded_app, self.config.refuse)
        super().on_headers_complete()
        # Fields behind the body are trailers, not headers.
        self._sent, self.headers = self.headers, []
        if len(self.pipeline) > _MAX_PIPELINED:
            self._refuse(
                InvalidRequestError(f"More than {_MAX_PIPELINED} requests wait on one connection; wait for answers"),
                Closed.MALFORMED,
            )

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._quiet = 0
        if not self._deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._quiet = 0
        if not (self._deaf or self._upgrade):
            self._in_body = False
            super().on_message_complete()

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """Parse a request again without its offer to upgrade, and the bytes behind its head."""
        method, self._upgrade = self.parser.get_method(), False
        if method == b"CONNECT":
            self._refuse(InvalidRequestError("CONNECT is for proxies, and this is none"), Closed.MALFORMED)
            return
        head = [method, b" ", self.url, b" HTTP/", self.parser.get_http_version().encode(), b"\r\n"]
        for name, value in self.headers:
            if name != b"upgrade":
                head += [name, b": ", value, b"\r\n"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._quiet = 0
        self._feed(b"".join([*head, b"\r\n"]))
        self._feed(rest)

    # ---------------------------------------------------------------- answers and ends

    def on_response_complete(self) -> None:
        """Answer the next request, or wait for it."""
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            if not self._deaf:
                self.flow.resume_reading()
            if self.pipeline:
                cycle, app = self.pipeline.pop()
                self._start_asgi_task(cycle, app)
            elif self._refusal is not None:
                self._answer(self._refusal)
        self._settle()

    def shutdown(self) -> None:
        """Close, once the request under way is answered."""
        if self._left:
            self.drop()
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        """Start to wait until the client reads its answer."""
        super().pause_writing()
        self._settle()

    def resume_writing(self) -> None:
        """Continue the answer."""
        super().resume_writing()
        self._settle()

    def overdue(self, line: Line) -> None:
        """End a wait that took too long."""
        connections = self._connections
        if line is connections.unread or line is connections.leaving:
            unsent = self.transport.get_write_buffer_size()
            if unsent not in (0, self._unsent):
                self._unsent = unsent
                connections.move(self, line)
                return
            if line is connections.unread:
                connections.count(Closed.UNREAD)
            self.drop()
        elif line is connections.idle:
            connections.count(Closed.IDLE)
            self.transport.close()
        elif line is connections.bodies:
            self._refuse(
                RequestTimeoutError(f"The body was not complete within {line.limit_s:g} s; nothing was changed"),
                Closed.BODY_TIMEOUT,
            )
        elif self._quiet:
            self._refuse(
                RequestTimeoutError(f"The head of the request was not complete within {line.limit_s:g} s"),
                Closed.HEAD_TIMEOUT,
            )
        else:
            connections.count(Closed.HEAD_TIMEOUT)
            self.transport.close()
        self._settle()

    @property
    def _latest(self) -> RequestResponseCycle | None:
        """The request of the last complete head, if there was one: uvicorn declares that there always is one."""
        return self.cycle

    def drop(self) -> None:
        """Close at once."""
        self._deaf = True
        self.transport.abort()

    def _settle(self) -> None:
        """Move the connection to the line of its current wait."""
        if self._gone:
            return
        connections = self._connections
        line: Line | None
        if self._left or self.transport.is_closing():
            line = connections.leaving
        elif self.flow.write_paused:
            line = connections.unread
        elif self._latest is None:
            line = connections.heads
        elif self._in_body:
            # A body behind another request is not read yet.
            line = None if self.pipeline or self._deaf else connections.bodies
        elif not self.cycle.response_complete:
            line = None
        else:
            line = connections.heads if self._quiet else connections.idle
        if line is not self.line:
            connections.move(self, line)
            if line is connections.unread or line is connections.leaving:
                self._unsent = self.transport.get_write_buffer_size()

    def _refuse(self, error: ConfplaneError, reason: Closed) -> None:
        """Stop reading, and answer with an error after the earlier requests."""
        self._connections.count(reason)
        self._deaf = True
        cycle = self._latest
        if cycle is not None and not cycle.response_complete:
            if not self._in_body or self.pipeline:
                self._refusal = error
                if self._in_body and self.pipeline:
                    self.pipeline.popleft()
                return
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self._leave()
                return
        elif cycle is not None and self._in_body:
            self._leave()
            return
        self._answer(error)

    def _answer(self, error: ConfplaneError) -> None:
        if self.transport.is_closing():
            return
        status, headers, body = self.config.refuse(error, _origin(self.headers or self._sent))
        content = [STATUS_LINE[status]]
        for name, value in (*self.server_state.default_headers, *headers, (b"connection", b"close")):
            content += [name, b": ", value, b"\r\n"]
        self.transport.write(b"".join([*content, b"\r\n", body]))
        self._leave()

    def _leave(self) -> None:
        """Close our side. The client's further bytes are dropped for a while: a reset could destroy the answer."""
        self._left = True
        if self.transport.is_closing():
            return
        if not self.transport.can_write_eof():  # TLS has no half of a connection
            self.transport.close()
            return
        self.transport.write_eof()
        self.flow.resume_reading()


def _origin(headers: Iterable[tuple[bytes, bytes]] | None) -> bytes | None:
    """Return the header Origin of a request, whose headers may be incomplete, or not even begun: None."""
    return dict(headers or ()).get(b"origin")


def _full(app: ASGIApp, refuse: Refuse) -> ASGIApp:
    """Return the application above the cap of connections: the process is alive, and serves no more."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in ALWAYS_ANSWERED:
            await app(scope, receive, send)
            return
        status, headers, body = refuse(
            TooManyConnectionsError("All connections of this process are in use; try again, or another replica"),
            _origin(scope["headers"]),
        )
        await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
        await send({"type": "http.response.body", "body": body})

    return answer
