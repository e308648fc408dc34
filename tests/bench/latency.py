"""How soon a change made through one service is seen by another."""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
from typing import TYPE_CHECKING

from kazoo.client import KazooClient

from tests.bench.rounds import Figure, alternate, column
from tests.bench.stage import data_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.rounds import Sample
    from tests.bench.stage import Stage
    from tests.support.service import Service

_PATH = "/v1/clusters/default/client-quotas/user=bench"
_PAUSE_S = 0.005
_POLL_S = 0.0002


class _Caller:
    """One connection to a service."""

    def __init__(self, service: Service) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
        self._headers = {"Authorization": f"Bearer {service.token}", "Content-Type": "application/json"}

    def put(self, value: int) -> None:
        body = json.dumps({"quotas": {"producer_byte_rate": value}})
        self._connection.request("PUT", _PATH, body, self._headers)
        reply = self._connection.getresponse()
        if reply.status != http.client.OK:
            raise AssertionError(f"PUT was answered {reply.status}: {reply.read()!r}")
        reply.read()

    def get(self) -> bytes:
        self._connection.request("GET", _PATH, headers=self._headers)
        return self._connection.getresponse().read()


def measure(stage: Stage, *, rounds: int, changes: int) -> Iterator[Figure]:
    """Yield the latencies, in milliseconds from sending the change; the reference is kazoo's own write and watch."""
    connect, dsn = stage.chroot(), stage.database()
    with stage.service(connect, dsn) as first, stage.service(connect, dsn) as second:
        watched = stage.chroot()
        clients = [KazooClient(watched) for _ in range(2)]
        for client in clients:
            client.start()
        ours, reference = alternate(
            "change seen by another service | plain kazoo write and watch, ms at the median",
            rounds,
            lambda number: _services(first, second, range(number * changes + 1, (number + 1) * changes + 1)),
            lambda _: _kazoo(clients[0], clients[1], changes),
            decimals=2,
        )
        for client in clients:
            client.stop()
            client.close()
    plain = "kazoo: set, watch, get"
    for index, name in enumerate(("median", "99th percentile")):
        yield Figure(
            f"Change seen by another service, {name}",
            "ms",
            column(ours, index),
            plain,
            column(reference, index),
            decimals=2,
            less_is_better=True,
        )
    yield Figure("Change answered to who made it, median", "ms", column(ours, 2), decimals=2)
    yield Figure("Change answered to who made it, 99th percentile", "ms", column(ours, 3), decimals=2)


def _services(first: Service, second: Service, values: range) -> Sample:
    writer, reader = _Caller(first), _Caller(second)
    writer.put(values[0])
    seen: list[float] = []
    answered: list[float] = []
    for value in values[1:]:
        wanted = f":{value}}}".encode()
        found = threading.Event()
        at = [0.0]

        def watch(wanted: bytes = wanted, at: list[float] = at, found: threading.Event = found) -> None:
            while wanted not in reader.get():
                time.sleep(_POLL_S)
            at[0] = time.perf_counter()
            found.set()

        watcher = threading.Thread(target=watch)
        watcher.start()
        time.sleep(_PAUSE_S)
        begun = time.perf_counter()
        writer.put(value)
        answered.append(time.perf_counter() - begun)
        found.wait()
        watcher.join()
        seen.append(at[0] - begun)
    return (*_summary(seen), *_summary(answered))


def _kazoo(writer: KazooClient, reader: KazooClient, changes: int) -> Sample:
    path = "/watched"
    writer.ensure_path(path)
    seen: list[float] = []
    for number in range(changes):
        rung = threading.Event()
        reader.get(path, watch=lambda _, rung=rung: rung.set())
        time.sleep(_PAUSE_S)
        begun = time.perf_counter()
        writer.set_async(path, data_of(number))
        rung.wait()
        reader.get(path)
        seen.append(time.perf_counter() - begun)
    return _summary(seen)


def _summary(seconds: list[float]) -> tuple[float, float]:
    ordered = sorted(seconds)
    return statistics.median(ordered) * 1000, ordered[len(ordered) * 99 // 100] * 1000
