"""The open connections of a process: how many there may be, what each waits for, and how long it may.

Each connection stands in at most one line, by what it waits for. All in a line may wait equally long, so a line is in
the order of its ends, and one sweep for all looks at the first of each: no connection has a timer of its own.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from app.services.metrics import Sample

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

RESERVE: Final = 128
"""Connections above the cap that may be without a complete head, so that a probe among them has time to send its."""
_TICK_S: Final = 0.25
_REPORT_S: Final = 10.0
_UNREAD_S: Final = 75.0
"""How long a client may take nothing of an answer."""
_LEAVING_S: Final = 30.0
"""How long a client that was answered for the last time may go on sending."""


class Closed(StrEnum):
    """Why the listener closed a connection."""

    HEAD_TIMEOUT = "head_timeout"
    BODY_TIMEOUT = "body_timeout"
    IDLE = "idle"
    UNREAD = "unread"
    CAP = "cap"
    HEAD_TOO_LARGE = "head_too_large"
    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a connection may take: bytes, seconds, and how many connections there may be."""

    connections: int
    head_bytes: int
    head_s: float
    body_s: float
    idle_s: float


class Connection(Protocol):
    """A connection as the lines see it."""

    line: Line | None

    def overdue(self, line: Line) -> None:
        """End the wait: answer or close, so that the connection leaves its line, or waits anew in it."""

    def drop(self) -> None:
        """Close at once, without an answer."""


class Line:
    """Connections that wait for the same, the longest waiting first.

    Args:
        name: What for.
        limit_s: How long each may.
    """

    def __init__(self, name: str, limit_s: float) -> None:
        self.name = name
        self.limit_s = limit_s
        self.waiting: dict[Connection, float] = {}


class Connections:
    """All open connections. Their clock stands still while the loop is held, so that nobody is closed for our delay.

    Args:
        limits: Of number, bytes and time.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.heads = Line("head", limits.head_s)
        self.bodies = Line("body", limits.body_s)
        self.idle = Line("idle", limits.idle_s)
        self.unread = Line("unread", _UNREAD_S)
        self.leaving = Line("closing", _LEAVING_S)
        self._lines = (self.heads, self.bodies, self.idle, self.unread, self.leaving)
        self._all: set[Connection] = set()
        self._now = 0.0
        self._swept = 0.0
        self._closed = dict.fromkeys(Closed, 0)
        self._reported = dict(self._closed)
        self._report_at = _REPORT_S
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to end waits that are over."""
        self._swept = loop.time()
        self._timer = loop.call_later(_TICK_S, self._sweep, loop)

    def stop(self) -> None:
        """End no more waits."""
        if self._timer is not None:
            self._timer.cancel()

    def add(self, connection: Connection) -> None:
        """Take a new connection; at the cap drop the one that has waited longest for a complete head.

        Connections that were refused and still send have none either, and go first.
        """
        self._all.add(connection)
        self.move(connection, self.heads)
        if len(self._all) > self.limits.connections and len(self._all) - self._served() > RESERVE:
            self._drop_first(self.leaving if self.leaving.waiting else self.heads)

    def admits(self) -> bool:
        """Return whether a request on a connection that waited for its head is served; at the cap an idle one goes."""
        if self._served() < self.limits.connections:
            return True
        if self.idle.waiting:
            self._drop_first(self.idle)
            return True
        self.count(Closed.CAP)
        return False

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self._all.discard(connection)
        self.move(connection, None)

    def move(self, connection: Connection, line: Line | None) -> None:
        """Let a connection wait at the end of a line, or for nothing but us."""
        if connection.line is not None:
            del connection.line.waiting[connection]
        connection.line = line
        if line is not None:
            line.waiting[connection] = self._now

    def count(self, reason: Closed) -> None:
        """Count a connection that is closed by us."""
        self._closed[reason] += 1

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        answering = len(self._all)
        for line in self._lines:
            answering -= len(line.waiting)
            yield Sample("http_connections", len(line.waiting), (line.name,))
        yield Sample("http_connections", answering, ("answering",))
        yield Sample("http_connections_limit", self.limits.connections)
        for reason, count in self._closed.items():
            yield Sample("http_connections_closed", count, (reason.value,))

    def _served(self) -> int:
        """Return how many connections have a complete head, or had one and may send another."""
        return len(self._all) - len(self.heads.waiting) - len(self.leaving.waiting)

    def _drop_first(self, line: Line) -> None:
        first = next(iter(line.waiting))
        self.count(Closed.CAP)
        self.remove(first)
        first.drop()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(_TICK_S, self._sweep, loop)
        now = loop.time()
        self._now += min(now - self._swept, 2 * _TICK_S)
        self._swept = now
        for line in self._lines:
            for connection in list(self._overdue(line)):
                connection.overdue(line)
        if self._now >= self._report_at:
            self._report_at = self._now + _REPORT_S
            self._report()

    def _overdue(self, line: Line) -> Iterator[Connection]:
        for connection, since in line.waiting.items():
            if self._now - since < line.limit_s:
                return
            yield connection

    def _report(self) -> None:
        """Log what was closed, in one line for all: whoever is refused must not fill the log."""
        more = {
            reason: count - self._reported[reason]
            for reason, count in self._closed.items()
            if count > self._reported[reason] and reason is not Closed.IDLE
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
