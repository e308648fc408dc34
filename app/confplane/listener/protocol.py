"""One connection: uvicorn's protocol with bounds on a client's bytes and times."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from confplane.domain.errors import (
    BodyTooLargeError,
    HeadTooLargeError,
    InvalidRequestError,
    RequestTimeoutError,
    TargetTooLongError,
    TooManyConnectionsError,
)
from confplane.listener.client_certificates import subject_of_peer
from confplane.listener.connections import CloseReason
from confplane.security.authenticator import CERTIFICATE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.server import ServerState

    from confplane.domain.errors import ConfplaneError
    from confplane.listener.connections import Connections, WaitQueue

    RenderedError = tuple[int, list[tuple[bytes, bytes]], bytes]
    ErrorRenderer = Callable[[ConfplaneError, bytes | None], RenderedError]
    """Renders an error as status, headers and body. The second argument is the Origin header, if it was read."""

ALWAYS_ANSWERED: Final = frozenset({"/livez"})
"""Paths that are served above the cap of connections."""
_MAX_PIPELINED: Final = 100
"""Requests that may wait after the current one; a single read of the socket may hold thousands."""


_MAX_DROPPED_BYTES: Final = 40 * 1024 * 1024
"""Bytes that a client may send after its last response: four bodies of the largest size, and their chunks' heads."""
_DROPPED_AT_ONCE: Final = 512 * 1024
"""Bytes of these that are read as they arrive: most clients send no more, and then close."""
_LAST_S: Final = 1.0
"""Seconds for which a client may read its last response once the process is stopping."""
_CHUNKS: Final = 1_024
"""Chunks of a body, of any size."""
_BYTES_OF_CHUNK: Final = 64
"""Bytes for which a body may have one more chunk: parsing a chunk of one byte costs as much as parsing a kilobyte."""
_BODILESS: Final = frozenset({204, 304})
"""Statuses of responses without a body."""
_CONTROLS: Final = bytes({*range(0x20), 0x7F} - {0x09})
"""Characters that no header may have."""


class ListenerConfig(uvicorn.Config):
    """Uvicorn's settings and the state that the connections share."""

    def __init__(self, app: ASGIApp, connections: Connections, render_error: ErrorRenderer, **options: Any) -> None:
        super().__init__(app, http=BoundedProtocol, **options)
        self.connections = connections
        self.render_error = render_error


class _DiscardedError(Exception):
    """The rest of what was read is not parsed."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection with bounds on its client.

    ``_unreported_bytes`` counts the bytes read since the parser last reported a complete head, a piece of a body or the
    end of a request. So the same limit covers heads, trailers and the extensions of chunks, and costs a short request
    one addition. The limit is exact for a head that begins with a read. For a head after another request it begins with
    the next read.

    No connection is upgraded: a request for an upgrade is treated as an ordinary one (RFC 9110, section 7.8). Java's
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
        self.queue: WaitQueue | None = None
        self.url = b""
        self._connections = config.connections
        self._max_head_bytes = config.connections.limits.head_bytes
        self._unreported_bytes = 0
        self._in_body = False
        self._chunks = 0
        self._body_bytes = 0
        self._upgrade = False
        self._discarding = False
        """True if nothing more is read from the client. Further bytes are dropped."""
        self._half_closed = self._stopping = False
        self._dropped_bytes = 0
        self._lost = False
        self._pending_error: ConfplaneError | None = None
        """The error to return after the earlier requests."""
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
        """Remove the connection."""
        self._connections.remove(self)
        self._discarding = self._lost = True
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the bytes that arrived, in pieces no larger than a head may be."""
        if self._half_closed:
            self._dropped_bytes += len(data)
            if self._dropped_bytes > _MAX_DROPPED_BYTES:
                self.drop()
            elif self._dropped_bytes > _DROPPED_AT_ONCE:
                self.flow.pause_reading()
                self._connections.drain(self)
            return
        if self._discarding:
            self.flow.pause_reading()
            return
        if len(data) <= self._max_head_bytes - self._unreported_bytes:
            self._feed(data)
        else:
            start = 0
            while start < len(data) and not self._discarding:
                end = start + self._max_head_bytes - self._unreported_bytes
                self._feed(data[start:end])
                start = end
        self._update_queue()

    def _feed(self, data: bytes) -> None:
        if self._discarding:
            return
        self._unreported_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._continue_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            if not self._discarding:  # otherwise a callback stopped the parser
                self._refuse(
                    InvalidRequestError("The request is not valid HTTP/1.1; the connection is closed"),
                    CloseReason.MALFORMED,
                )
        if self._unreported_bytes >= self._max_head_bytes and not self._discarding:
            self._refuse(self._too_large(), CloseReason.HEAD_TOO_LARGE)

    def _too_large(self) -> ConfplaneError:
        if self._in_body:
            return HeadTooLargeError(
                f"The body's trailers or chunk extensions are larger than {self._max_head_bytes} bytes; send none"
            )
        if len(self.url) > self._max_head_bytes // 2:
            return TargetTooLongError(
                f"The request's head is larger than {self._max_head_bytes} bytes, most of it the URL; ask for less at "
                "once, or by the operation that takes a body"
            )
        return HeadTooLargeError(
            f"The request's head is larger than {self._max_head_bytes} bytes; send fewer or shorter headers"
        )

    # ---------------------------------------------------------------- parser callbacks

    def on_message_begin(self) -> None:
        """Begin a request, with the subject of the connection's certificate."""
        super().on_message_begin()
        if self._subject is not None:
            self.scope[CERTIFICATE] = self._subject  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        """Start the response."""
        self._unreported_bytes = 0
        if self._discarding:
            return
        if self.parser.should_upgrade():
            self._upgrade = True
            return
        self._in_body = True
        self._chunks = self._body_bytes = 0
        if self.queue is self._connections.heads and not self._connections.admits():
            self.app = _overload_app(self.config.loaded_app, self.config.render_error)
        super().on_headers_complete()
        # Fields after the body are trailers, not headers.
        self._sent, self.headers = self.headers, []
        if len(self.pipeline) > _MAX_PIPELINED:
            self._refuse(
                InvalidRequestError(f"More than {_MAX_PIPELINED} requests wait on one connection; wait for answers"),
                CloseReason.MALFORMED,
            )

    def on_body(self, body: bytes) -> None:
        """Handle a piece of a body."""
        self._unreported_bytes = 0
        self._body_bytes += len(body)
        if not self._discarding:
            super().on_body(body)

    def on_chunk_complete(self) -> None:
        """Count a chunk; refuse a body of many small ones.

        Raises:
            _DiscardedError: No more chunks are wanted; the parser stops.
        """
        self._chunks += 1
        if not self._discarding and self._chunks > _CHUNKS + self._body_bytes // _BYTES_OF_CHUNK:
            self._refuse(
                BodyTooLargeError(
                    f"The body has more than {_CHUNKS} chunks, of less than {_BYTES_OF_CHUNK} bytes on average; send it"
                    " with Content-Length, or in larger chunks"
                ),
                CloseReason.SMALL_CHUNKS,
            )
        if self._discarding:
            raise _DiscardedError

    def on_message_complete(self) -> None:
        """End a request."""
        self._unreported_bytes = 0
        if not (self._discarding or self._upgrade):
            self._in_body = False
            super().on_message_complete()

    def _continue_without_upgrade(self, rest: bytes) -> None:
        """Parse a request again without its offer to upgrade, and then the bytes after its head."""
        method, self._upgrade = self.parser.get_method(), False
        if method == b"CONNECT":
            self._refuse(InvalidRequestError("CONNECT is only for proxies"), CloseReason.MALFORMED)
            return
        head = [method, b" ", self.url, b" HTTP/", self.parser.get_http_version().encode(), b"\r\n"]
        for name, value in self.headers:
            if name != b"upgrade":
                head += [name, b": ", value, b"\r\n"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._unreported_bytes = 0
        self._feed(b"".join([*head, b"\r\n"]))
        self._feed(rest)

    # ---------------------------------------------------------------- responses and closing

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start to serve a request."""
        super()._start_asgi_task(cycle, partial(self._serve, cycle, app))

    def _serve(
        self, cycle: RequestResponseCycle, app: ASGIApp, scope: Scope, receive: Receive, send: Send
    ) -> Awaitable[None]:
        """Serve a request."""
        # The body of most requests arrived with the head.
        sender = self._sender_without_body if cycle.more_body else self._sender
        return app(scope, receive, sender(cycle, send))

    def _sender(self, cycle: RequestResponseCycle, send: Send) -> Send:
        """Return what writes a complete response at once, and passes any other response on to uvicorn.

        Uvicorn writes head and body one after the other, and checks each header by itself. It sends the responses whose
        length is unknown, whose body has several pieces, and that are the last ones of their connections.
        """
        start: Message | None = None
        head = b""

        async def send_together(message: Message) -> None:
            nonlocal start, head
            if start is None:
                if message["type"] == "http.response.start" and (
                    head := self._head(message["status"], message["headers"])
                ):
                    start = message
                else:
                    await send(message)
                return
            first, start, body = start, None, message.get("body", b"")
            complete = not message.get("more_body", False) and (
                not body if first["status"] in _BODILESS else b"\r\ncontent-length: %d\r\n" % len(body) in head
            )
            if complete and cycle.keep_alive and not (self.flow.write_paused or cycle.disconnected):
                cycle.response_started = cycle.response_complete = True
                cycle.message_event.set()
                self.transport.write(head + body)
                self.on_response_complete()
            else:
                await send(first)
                await send(message)

        return send if cycle.scope["method"] == "HEAD" else send_together

    def _head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return the head of a response of known length; empty if uvicorn must check or send the response."""
        fields = map(b": ".join, (*self.server_state.default_headers, *headers))
        lines = [STATUS_LINE[status][:-2], *fields, b"\r\n"]
        head = b"\r\n".join(lines)
        if (
            len(head.translate(None, _CONTROLS)) + 2 * len(lines) != len(head)
            or b"\r\nconnection: " in head
            or (b"\r\ncontent-length: " not in head and status not in _BODILESS)
        ):
            return b""
        return head

    def _sender_without_body(self, cycle: RequestResponseCycle, send: Send) -> Send:
        """Return what sends a response that does not wait for the body, and that is the last one of the connection."""

        async def send_without_body(message: Message) -> None:
            if cycle.more_body:
                if message["type"] == "http.response.start":
                    cycle.keep_alive = False
                elif not message.get("more_body", False):
                    self._discarding = True
                    cycle.keep_alive = True  # the connection is closed below, in another way than uvicorn does
                    await send(message)
                    self._half_close()
                    self._update_queue()
                    return
            await send(message)

        return send_without_body

    def on_response_complete(self) -> None:
        """Serve the next request, or wait for it."""
        if not self.transport.is_closing():
            if not self._discarding:
                self.flow.resume_reading()
            if self.pipeline:
                cycle, app = self.pipeline.pop()
                self._start_asgi_task(cycle, app)
            elif self._pending_error is not None:
                self._answer(self._pending_error)
        self._update_queue()

    def shutdown(self) -> None:
        """Close, once the current request is complete."""
        self._stopping = True
        if self._half_closed:
            self.drop()
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        """Start to wait until the client reads its response."""
        super().pause_writing()
        self._update_queue()

    def resume_writing(self) -> None:
        """Continue the response."""
        super().resume_writing()
        self._update_queue()

    def overdue(self, queue: WaitQueue) -> None:
        """End a wait that took too long."""
        connections = self._connections
        if queue is connections.unread or queue is connections.closing:
            unsent = self.transport.get_write_buffer_size()
            if unsent not in (0, self._unsent):
                self._unsent = unsent
                connections.move(self, queue)
                return
            if queue is connections.unread:
                connections.count(CloseReason.UNREAD)
            self.drop()
        elif queue is connections.idle:
            connections.count(CloseReason.IDLE)
            self.transport.close()
        elif queue is connections.bodies:
            self._refuse(
                RequestTimeoutError(f"The body was not complete within {queue.limit_s:g} s; nothing was changed"),
                CloseReason.BODY_TIMEOUT,
            )
        elif self._unreported_bytes:
            self._refuse(
                RequestTimeoutError(f"The head of the request was not complete within {queue.limit_s:g} s"),
                CloseReason.HEAD_TIMEOUT,
            )
        else:
            connections.count(CloseReason.HEAD_TIMEOUT)
            self.transport.close()
        self._update_queue()

    @property
    def _latest(self) -> RequestResponseCycle | None:
        """The request of the last complete head, if there was one: uvicorn declares that there always is one."""
        return self.cycle

    def drain(self) -> None:
        """Read and drop more of the bytes that follow the last response."""
        if not (self._lost or self.transport.is_closing()):
            self.flow.resume_reading()

    def drop(self) -> None:
        """Close at once."""
        self._discarding = True
        self.transport.abort()

    def _update_queue(self) -> None:
        """Move the connection to the queue of its current wait."""
        if self._lost:
            return
        connections = self._connections
        queue: WaitQueue | None
        if self._half_closed or self.transport.is_closing():
            queue = connections.closing
        elif self.flow.write_paused:
            queue = connections.unread
        elif self._latest is None:
            queue = connections.heads
        elif self._in_body:
            # A body after another request is not read yet.
            queue = None if self.pipeline or self._discarding else connections.bodies
        elif not self.cycle.response_complete:
            queue = None
        else:
            queue = connections.heads if self._unreported_bytes else connections.idle
        if queue is not self.queue:
            connections.move(self, queue)
            if queue is connections.unread or queue is connections.closing:
                self._unsent = self.transport.get_write_buffer_size()

    def _refuse(self, error: ConfplaneError, reason: CloseReason) -> None:
        """Stop reading, and respond with an error after the earlier requests."""
        self._connections.count(reason)
        self._discarding = True
        cycle = self._latest
        if cycle is not None and not cycle.response_complete:
            if not self._in_body or self.pipeline:
                self._pending_error = error
                if self._in_body and self.pipeline:
                    self.pipeline.popleft()
                return
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self._half_close()
                return
        self._answer(error)

    def _answer(self, error: ConfplaneError) -> None:
        if self.transport.is_closing():
            return
        status, headers, body = self.config.render_error(error, _origin(self.headers or self._sent))
        content = [STATUS_LINE[status]]
        for name, value in (*self.server_state.default_headers, *headers, (b"connection", b"close")):
            content += [name, b": ", value, b"\r\n"]
        self.transport.write(b"".join([*content, b"\r\n", body]))
        self._half_close()

    def _half_close(self) -> None:
        """Close the service's side.

        The client's further bytes are dropped for a while, because a reset could destroy the response.
        """
        self._half_closed = True
        if self.transport.is_closing():
            return
        if self._stopping:
            self.loop.call_later(_LAST_S, self.drop)
        if self.transport.can_write_eof():  # a TLS connection can't be half closed: its client closes it
            self.transport.write_eof()
        self.flow.resume_reading()


def _origin(headers: Iterable[tuple[bytes, bytes]] | None) -> bytes | None:
    """Return the Origin header of a request.

    The headers may be incomplete, or None if they have not begun.
    """
    return dict(headers or ()).get(b"origin")


def _overload_app(app: ASGIApp, render_error: ErrorRenderer) -> ASGIApp:
    """Return the application for requests above the connection limit: only liveness is served."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in ALWAYS_ANSWERED:
            await app(scope, receive, send)
            return
        status, headers, body = render_error(
            TooManyConnectionsError("All connections of this process are in use; try again, or another replica"),
            _origin(scope["headers"]),
        )
        await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
        await send({"type": "http.response.body", "body": body})

    return answer
