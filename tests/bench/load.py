"""A load generator for HTTP/1.1: a process of its own, so that the server has its own interpreter to itself.

``python -m tests.bench.load JSON`` with the fields of :class:`Load` prints the fields of :class:`Loaded` as JSON. Each
connection has one request under way. A load without a rate is closed: a connection sends when it was answered. One with a
rate is open: requests are due at that rate whatever the answers do, and each waits for a free connection. Nothing is parsed but the status and the length of a reply, so one process makes
several times the requests that a Python server answers; it imports the standard library only, to start at once.
"""

from __future__ import annotations

import json
import re
import select
import socket
import sys
import time
from bisect import bisect_right
from collections import Counter, deque
from dataclasses import asdict, dataclass, field

_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_RECEIVE = 1 << 18


@dataclass(frozen=True, slots=True)
class Load:
    """The requests of a load.

    ``{entity}`` in path and body becomes a number below ``entities``, each connection going round those that are its
    own; ``{value}`` in headers and body becomes a number of ten digits, never the same twice.
    """

    port: int
    path: str
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    body: str | None = None
    connections: int = 32
    entities: int = 1
    first_value: int = 1_000_000_000
    warm_up_s: float = 0.5
    seconds: float = 3.0
    rest_s: float = 0.0
    """Seconds from a reply to the next request of its connection."""
    rate: float = 0.0
    """Requests a second of an open load; 0 of a closed one."""
    limit_s: float = 1.0
    """Seconds within which a reply is in time."""
    reconnects: bool = False
    """Open a connection again that the server closed. Its request counts as one with the status ``closed``."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The answers within the measured time; latencies in milliseconds, of an open load from the time that is due."""

    replies: int
    seconds: float
    all_replies: int
    """With those of the warm-up."""
    statuses: dict[str, int]
    p50_ms: float
    p99_ms: float
    in_time: int

    @property
    def rate(self) -> float:
        """Replies a second."""
        return self.replies / self.seconds


class _Connection:
    """One connection and the requests that it sends."""

    def __init__(self, load: Load, number: int) -> None:
        self._load = load
        self._entity = number
        self._value = load.first_value + number
        self._varies = any(mark in f"{load.path}{load.headers}{load.body}" for mark in ("{entity}", "{value}"))
        self._request = self._render()
        self._sent = 0.0
        self.open()

    def open(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self._load.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reply = b""

    def _render(self) -> bytes:
        load, value = self._load, f"{self._value:010d}"
        body = (load.body or "").replace("{entity}", f"{self._entity:06d}").replace("{value}", value)
        path = load.path.replace("{entity}", f"{self._entity:06d}")
        lines = [f"{load.method} {path} HTTP/1.1", "Host: 127.0.0.1"]
        lines += [f"{name}: {text.replace('{value}', value)}" for name, text in load.headers.items()]
        if load.body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()

    def send(self, now: float) -> None:
        if self._varies:
            self._value += self._load.connections
            self._entity += self._load.connections
            if self._entity >= self._load.entities:
                self._entity %= self._load.connections
            self._request = self._render()
        self._sent = now
        try:
            self.socket.sendall(self._request)
        except ConnectionError:
            if not self._load.reconnects:
                raise  # otherwise found as it is read

    def receive(self) -> bytes | None:
        """Take what arrived; the status when the reply is complete."""
        data = self.socket.recv(_RECEIVE)
        if not data:
            raise ConnectionError(f"The server closed a connection after {self.reply[:200]!r}")
        self.reply = reply = self.reply + data if self.reply else data
        end = reply.find(_HEAD_END)
        if end < 0:
            return None
        length = _LENGTH.search(reply, 0, end + 2)
        if len(reply) < end + 4 + (int(length[1]) if length else 0):
            return None
        self.reply = b""
        return reply[9:12]

    def latency(self, now: float) -> float:
        return now - self._sent


def _reopen(connections: dict[int, _Connection], poll: select.epoll, fd: int) -> None:
    connection = connections.pop(fd)
    poll.unregister(fd)
    connection.socket.close()
    connection.open()
    connections[connection.socket.fileno()] = connection
    poll.register(connection.socket, select.EPOLLIN)


def run(load: Load) -> Loaded:  # noqa: C901, PLR0912 - one loop, which takes no time for calls
    """Send for a while and count what comes back."""
    if load.entities % load.connections and load.entities > load.connections:
        raise ValueError("entities must be a multiple of connections, so that no two connections share one")
    poll = select.epoll()
    connections = {}
    for number in range(load.connections):
        connection = _Connection(load, number)
        connections[connection.socket.fileno()] = connection
        poll.register(connection.socket, select.EPOLLIN)
    clock = time.perf_counter
    statuses: Counter[bytes] = Counter()
    latencies: list[float] = []
    warming = 0
    resting = deque((clock(), connection) for connection in connections.values())
    due, step = clock(), 1 / load.rate if load.rate else 0.0
    begun = clock() + load.warm_up_s
    end = begun + load.seconds
    while (now := clock()) < end:
        while resting and max(resting[0][0], due) <= now:
            resting.popleft()[1].send(due if step else now)
            due += step
        for fd, _ in poll.poll(min(max(resting[0][0], due) - now, 1) if resting else 1):
            connection = connections[fd]
            try:
                status = connection.receive()
            except ConnectionError:
                if not load.reconnects:
                    raise
                _reopen(connections, poll, fd)
                status = b"closed"
            if status is None:
                continue
            now = clock()
            if now >= begun:
                statuses[status] += 1
                latencies.append(connection.latency(now))
            else:
                warming += 1
            if load.rest_s or step:
                resting.append((now + load.rest_s, connection))
            else:
                connection.send(now)
    latencies.sort()
    for connection in connections.values():
        connection.socket.close()
    return Loaded(
        len(latencies),
        now - begun,
        warming + len(latencies),
        {status.decode(): count for status, count in statuses.items()},
        latencies[len(latencies) // 2] * 1000,
        latencies[len(latencies) * 99 // 100] * 1000,
        bisect_right(latencies, load.limit_s),
    )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(run(Load(**json.loads(sys.argv[1]))))))
