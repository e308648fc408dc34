"""The adapter between kazoo's threads and the event loop.

kazoo completes calls on its own thread. Its documented handler interface lets the adapter supply result objects that
post to a :class:`Mailbox`. The loop drains the mailbox in order, so **everything from a session reaches the loop in
wire order**: replies, watch events and state changes. The mirror depends on that order.

Savings over kazoo's own threading handler: no condition variable per call, no completion thread between the connection
and the loop, one wake-up of the loop for everything that has arrived, no epoll object per select, one ``recv``
for many replies, and a wake-up channel that can't block the loop (kazoo's is a socket that holds about 280 unread
bytes, after which a call would wait for the connection).
"""

from __future__ import annotations

import os
import select as poller
import ssl
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import MarshallingError, ZookeeperError
from kazoo.handlers.threading import SequentialThreadingHandler

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable

    from confplane.store.session.tls import ZooKeeperTls

    ReplyCallback = Callable[[Any, Exception | None], None]
    """Receives a reply's value or its failure."""

_DRAIN_SECONDS: Final = 0.005
"""Seconds of emptying the mailbox before other tasks get their turn."""
_SLICE_RESULTS: Final = 64
"""The greatest number of results in a slice: their processing takes less time than an emptying of the mailbox may."""
_SLICE_BYTES: Final = 65_536
"""Bytes of a slice, by the average of the reply's results."""
_RECEIVE: Final = 65_536
_RECEIVE_MOST: Final = 1_048_576


class Mailbox:
    """Carries calls from any thread to the loop, in order, with at most one wake-up under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.thread = threading.get_ident()
        self._posts: deque[tuple[ReplyCallback, Any, Exception | None]] = deque()
        self._woken = False

    def post(self, deliver: ReplyCallback, value: Any, error: Exception | None) -> None:
        """Call ``deliver(value, error)`` on the loop. May be called on any thread; never blocks."""
        self._posts.append((deliver, value, error))
        # Set before the loop looks, cleared before it drains: a post that finds it set is seen by that drain.
        if not self._woken:
            self._woken = True
            try:
                self.loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                # The loop is closed: the process is ending, and no task waits for this any more.
                self._posts.clear()

    def _drain(self) -> None:
        self._woken = False
        posts = self._posts
        until = time.monotonic() + _DRAIN_SECONDS
        while posts:
            deliver, value, error = posts.popleft()
            try:
                deliver(value, error)
            except Exception as failure:  # noqa: BLE001 - one receiver's fault must not lose the others' replies
                self.loop.call_exception_handler(
                    {"message": "A receiver of a ZooKeeper reply failed", "exception": failure}
                )
            if posts and time.monotonic() > until:
                if not self._woken:
                    self._woken = True
                    self.loop.call_soon(self._drain)
                return


class Reply:
    """One reply in the place of kazoo's ``AsyncResult``, delivered on the loop to its receiver there."""

    __slots__ = ("_deliver", "_done", "_error", "_future", "_mailbox", "_value", "refused")

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._deliver: ReplyCallback | None = None
        self._future: asyncio.Future[Any] | None = None
        self._done = False
        self._value: Any = None
        self._error: Exception | None = None
        self.refused: Exception | None = None
        """The error of a call that kazoo gave back before it was queued; nothing was sent."""

    # -- kazoo's side, any thread

    def set(self, value: Any = None) -> None:
        """Take the reply."""
        self._mailbox.post(self._receive, value, None)

    def set_exception(self, exception: Exception) -> None:
        """Take the failure; waiters get a ``ZookeeperError``, also for a reply that kazoo can't read."""
        if not isinstance(exception, ZookeeperError):
            exception = MarshallingError(f"{type(exception).__name__}: {exception}")
        # On the loop's own thread this happens only during the call, by a client that is closed.
        if threading.get_ident() == self._mailbox.thread:
            self.refused = exception
        self._mailbox.post(self._receive, None, exception)

    # -- the loop's side

    def then(self, deliver: ReplyCallback) -> Reply:
        """Call ``deliver(value, error)`` when the reply arrives, in its place among all replies."""
        self._deliver = deliver
        return self

    def __await__(self) -> Any:
        """Wait for the reply; raises the failure. Cancelling the wait leaves the call as it is."""
        if not self._done:
            if self._future is None or self._future.cancelled():
                self._future = self._mailbox.loop.create_future()
            yield from self._future
        if self._error is not None:
            raise self._error
        return self._value

    def _receive(self, value: Any, error: Exception | None) -> None:
        if self._done:
            return
        self._done = True
        self._value = value
        self._error = error
        # Waiting tasks only become runnable here; they run after the current deliveries.
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
        if self._deliver is not None:
            self._deliver(value, error)


class Replies(Reply):
    """The reply to a request of many reads, delivered in slices, each in its place among all replies.

    So the receiver of a slice never depends on the rest of the reply, and other tasks get their turn in between.

    Args:
        mailbox: The mailbox of the deliveries.
        deliver_slice: Called with some of the results, always the next ones.
    """

    __slots__ = ("_deliver_slice",)

    def __init__(self, mailbox: Mailbox, deliver_slice: Callable[[list[Any]], None]) -> None:
        super().__init__(mailbox)
        self._deliver_slice = deliver_slice

    def set(self, value: Any = None) -> None:
        """Take the reply: the list of results, and its bytes; a waiter gets the bytes."""
        results, size = value
        count = max(1, min(_SLICE_RESULTS, len(results) * _SLICE_BYTES // size))
        for first in range(0, len(results), count):
            self._post(results[first : first + count])
        super().set(size)

    def _post(self, results: list[Any]) -> None:
        self._mailbox.post(lambda _value, _error: self._deliver_slice(results), None, None)


class _WakeupPipe:
    """Both ends of kazoo's wake-up channel. It is readable while there are more sends than receives."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._lock = threading.Lock()
        self._rings = 0
        self._closed = False

    def fileno(self) -> int:
        return self._reader

    def send(self, data: bytes) -> int:
        with self._lock:
            if self._closed:
                raise OSError("closed")
            self._rings += 1
            if self._rings == 1:
                os.write(self._writer, b"\0")
        return len(data)

    def recv(self, _size: int) -> bytes:
        with self._lock:
            if self._closed or not self._rings:
                raise BlockingIOError
            self._rings -= 1
            if not self._rings:
                os.read(self._reader, 1)
        return b"\0"

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._reader)
                os.close(self._writer)


class _BufferedSocket:
    """The connection, read in large pieces. kazoo asks ``pending()`` before it waits, as it does for TLS."""

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw
        self._decrypted = raw.pending if isinstance(raw, ssl.SSLSocket) else int
        self._buffer = b""
        self._at = 0
        self.send = raw.send
        self.sendall = raw.sendall
        self.setblocking = raw.setblocking
        self.fileno = raw.fileno

    def pending(self) -> int:
        return len(self._buffer) - self._at + self._decrypted()

    def recv(self, size: int) -> bytes:
        if self._at >= len(self._buffer):
            if size >= _RECEIVE:
                # A buffer of that size is made for each piece that arrives.
                return self._raw.recv(min(size, _RECEIVE_MOST))
            self._buffer = self._raw.recv(_RECEIVE)
            self._at = 0
        piece = self._buffer[self._at : self._at + size]
        self._at += len(piece)
        return piece

    def close(self) -> None:
        self._raw.close()


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's handler: its one thread runs the connection, all callbacks go to the mailbox.

    Args:
        mailbox: Carries everything to the loop.
        tls: TLS of the connections, if any.
        on_end: Called on the loop once the thread has ended, with the error that ended it, or None. kazoo itself does
            not report a thread that ends before its first connection.
    """

    name = "confplane_loop_handler"

    def __init__(
        self, mailbox: Mailbox, tls: ZooKeeperTls | None, on_end: Callable[[BaseException | None], None]
    ) -> None:
        super().__init__()
        self._on_end = on_end
        self._mailbox = mailbox
        self._tls = tls

    def start(self) -> None:
        """Start; there are no worker threads."""
        self._running = True

    def stop(self) -> None:
        """Stop; there are no worker threads."""
        self._running = False

    def spawn(self, func: Callable[[], None], *args: Any, **kwargs: Any) -> threading.Thread:
        """Start the thread of the connection."""

        def run() -> None:
            failure: BaseException | None = None
            try:
                func(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - delivered on the loop
                failure = error
            self._mailbox.post(lambda _value, _error: self._on_end(failure), None, None)

        thread: threading.Thread = super().spawn(run)
        return thread

    def async_result(self) -> Reply:
        """Create the result of one call."""
        return Reply(self._mailbox)

    def dispatch_callback(self, callback: Any) -> None:
        """Call a watcher; ours only post to the mailbox."""
        callback.func(*callback.args)

    def create_socket_pair(self) -> tuple[_WakeupPipe, _WakeupPipe]:
        """Create the wake-up channel."""
        bell = _WakeupPipe()
        return bell, bell

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Connect to a server.

        kazoo's own TLS trusts the system's authorities besides those of the settings, and waits for bytes of the socket
        while it holds decrypted ones.
        """
        raw = super().create_connection(*args, **kwargs)
        if self._tls is None:
            return _BufferedSocket(raw)
        try:
            return _BufferedSocket(self._tls.wrap(raw, kwargs["hostname"]))
        except BaseException:
            raw.close()
            raise

    def select(self, readers: Any, writers: Any, _errors: Any, timeout: float | None = None) -> Any:
        """Wait for sockets, as ``select.select``; buffered bytes count as readable."""
        buffered = [reader for reader in readers if isinstance(reader, _BufferedSocket) and reader.pending()]
        poll = poller.poll()
        for reader in readers:
            poll.register(reader, poller.POLLIN)
        for writer in writers:
            poll.register(writer, poller.POLLOUT)
        events = dict(poll.poll(0 if buffered else None if timeout is None else max(0, timeout * 1000)))
        # An error or a hang-up is found by reading, so it counts as readable and as writable.
        ready = [reader for reader in readers if reader in buffered or events.get(reader.fileno())]
        return ready, [writer for writer in writers if events.get(writer.fileno())], []
