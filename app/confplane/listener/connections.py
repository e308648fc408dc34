"""The open connections of a process: their number, the wait of each, and the limits of both.

Each connection is in at most one wait queue, according to the event that it waits for. All connections of a queue have
the same time limit, so the queue is ordered by deadline and a sweep only checks its first entries. No connection has a
timer of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from confplane.services.metrics import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

RESERVE: Final = 128
"""Connections above the cap that may be without a complete head, so that a probe among them can send its head."""
_TICK_S: Final = 0.25
_REPORT_S: Final = 10.0
_UNREAD_S: Final = 75.0
"""Seconds for which a client may read nothing of a response."""
_DRAIN_S: Final = 0.002
"""Seconds between two reads of bytes that nobody wants, on all connections together: some 100 MB a second."""
_CLOSING_S: Final = 30.0
"""Seconds for which a client may still send after its last response."""


class CloseReason(StrEnum):
    """The reason why the listener closed a connection."""

    HEAD_TIMEOUT = "head_timeout"
    BODY_TIMEOUT = "body_timeout"
    IDLE = "idle"
    UNREAD = "unread"
    CAP = "cap"
    HEAD_TOO_LARGE = "head_too_large"
    MALFORMED = "malformed"
    SMALL_CHUNKS = "small_chunks"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of connections: their number, bytes and seconds."""

    connections: int
    head_bytes: int
    head_s: float
    body_s: float
    idle_s: float


class ClientConnection(Protocol):
    """A connection as the wait queues see it."""

    queue: WaitQueue | None

    def overdue(self, queue: WaitQueue) -> None:
        """End the wait: respond or close, so that the connection leaves its queue, or restart the wait."""

    def drain(self) -> None:
        """Read and drop once what the client still sends after its last response."""

    def drop(self) -> None:
        """Close at once, without a response."""


class WaitQueue:
    """Connections that wait for the same event, the longest waiting first.

    Args:
        name: The name of the event.
        limit_s: Seconds that each connection may wait.
    """

    def __init__(self, name: str, limit_s: float) -> None:
        self.name = name
        self.limit_s = limit_s
        self.waiting: dict[ClientConnection, float] = {}


class Connections:
    """All open connections. Their clock stops while the event loop is blocked, so such delays never close one.

    Args:
        limits: The limits of number, bytes and time.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.heads = WaitQueue("head", limits.head_s)
        self.bodies = WaitQueue("body", limits.body_s)
        self.idle = WaitQueue("idle", limits.idle_s)
        self.unread = WaitQueue("unread", _UNREAD_S)
        self.closing = WaitQueue("closing", _CLOSING_S)
        self._queues = (self.heads, self.bodies, self.idle, self.unread, self.closing)
        self._all: set[ClientConnection] = set()
        self._draining: deque[ClientConnection] = deque()
        self._now = 0.0
        self._swept = 0.0
        self._closed = dict.fromkeys(CloseReason, 0)
        self._reported = dict(self._closed)
        self._report_at = _REPORT_S
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start ending overdue waits."""
        self._swept = loop.time()
        self._timer = loop.call_later(_TICK_S, self._sweep, loop)

    def stop(self) -> None:
        """Stop ending overdue waits."""
        if self._timer is not None:
            self._timer.cancel()

    def add(self, connection: ClientConnection) -> None:
        """Add a new connection. At the limit, drop the connection that has waited longest for a complete head.

        Refused connections that still send have no head either, and are dropped first.
        """
        self._all.add(connection)
        self.move(connection, self.heads)
        if len(self._all) > self.limits.connections and len(self._all) - self._served() > RESERVE:
            self._drop_first(self.closing if self.closing.waiting else self.heads)

    def admits(self) -> bool:
        """Return True if a request on a new connection is served. At the limit, close an idle connection for it."""
        if self._served() < self.limits.connections:
            return True
        if self.idle.waiting:
            self._drop_first(self.idle)
            return True
        self.count(CloseReason.CAP)
        return False

    def remove(self, connection: ClientConnection) -> None:
        """Remove a connection that is closed."""
        self._all.discard(connection)
        self.move(connection, None)

    def move(self, connection: ClientConnection, queue: WaitQueue | None) -> None:
        """Move a connection to the end of a queue, or out of all queues while it waits only for the service."""
        if connection.queue is not None:
            del connection.queue.waiting[connection]
        connection.queue = queue
        if queue is not None:
            queue.waiting[connection] = self._now

    def drain(self, connection: ClientConnection) -> None:
        """Let a connection read once more after its last response, when it is its turn among all that do."""
        self._draining.append(connection)
        if len(self._draining) == 1:
            asyncio.get_running_loop().call_later(_DRAIN_S, self._drain_next)

    def count(self, reason: CloseReason) -> None:
        """Count a connection that the service closes."""
        self._closed[reason] += 1

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        answering = len(self._all)
        for queue in self._queues:
            answering -= len(queue.waiting)
            yield Sample("http_connections", len(queue.waiting), (queue.name,))
        yield Sample("http_connections", answering, ("answering",))
        yield Sample("http_connections_limit", self.limits.connections)
        for reason, count in self._closed.items():
            yield Sample("http_connections_closed", count, (reason.value,))

    def _served(self) -> int:
        """Return the number of connections that have received a complete head, or had one and may send another."""
        return len(self._all) - len(self.heads.waiting) - len(self.closing.waiting)

    def _drain_next(self) -> None:
        self._draining.popleft().drain()
        if self._draining:
            asyncio.get_running_loop().call_later(_DRAIN_S, self._drain_next)

    def _drop_first(self, queue: WaitQueue) -> None:
        first = next(iter(queue.waiting))
        self.count(CloseReason.CAP)
        self.remove(first)
        first.drop()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(_TICK_S, self._sweep, loop)
        now = loop.time()
        self._now += min(now - self._swept, 2 * _TICK_S)
        self._swept = now
        for queue in self._queues:
            for connection in list(self._overdue(queue)):
                connection.overdue(queue)
        if self._now >= self._report_at:
            self._report_at = self._now + _REPORT_S
            self._report()

    def _overdue(self, queue: WaitQueue) -> Iterator[ClientConnection]:
        for connection, since in queue.waiting.items():
            if self._now - since < queue.limit_s:
                return
            yield connection

    def _report(self) -> None:
        """Log the closed connections, in one line for all: refused clients must not fill the log."""
        more = {
            reason: count - self._reported[reason]
            for reason, count in self._closed.items()
            if count > self._reported[reason] and reason is not CloseReason.IDLE
        }
        self._reported = dict(self._closed)
        if more:
            logger.warning(
                "connections closed in the last %d s: %s; open: %d of %d",
                _REPORT_S,
                ", ".join(f"{reason.value} {count}" for reason, count in more.items()),
                len(self._all),
                self.limits.connections,
            )
