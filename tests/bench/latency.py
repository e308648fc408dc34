"""The delay until a change made through one service is seen by another."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from kazoo.client import KazooClient

from tests.bench.caller import QUOTAS, Caller
from tests.bench.rounds import Figure, alternate, column, summary
from tests.bench.world import data_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.rounds import Sample
    from tests.bench.world import World
    from tests.support.service import Service

_PATH = f"{QUOTAS}/user=bench"
_PAUSE_S = 0.005
_POLL_S = 0.0002


def measure(world: World, *, rounds: int, changes: int) -> Iterator[Figure]:
    """Yield the latencies, in milliseconds from sending the change; the reference is kazoo's own write and watch."""
    connect, dsn = world.chroot(), world.database()
    with world.service(connect, dsn) as first, world.service(connect, dsn) as second:
        watched = world.chroot()
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
    writer, reader = Caller(first), Caller(second)

    def put(value: int, caller: Caller = writer) -> None:
        caller("PUT", _PATH, f'{{"quotas":{{"producer_byte_rate":{value}}}}}')

    # By the reader, which then has the entity at once.
    put(values[0], reader)
    seen: list[float] = []
    answered: list[float] = []
    for value in values[1:]:
        wanted = f":{value}}}".encode()
        found = threading.Event()
        at = [0.0]

        def watch(wanted: bytes = wanted, at: list[float] = at, found: threading.Event = found) -> None:
            while wanted not in reader("GET", _PATH):
                time.sleep(_POLL_S)
            at[0] = time.perf_counter()
            found.set()

        watcher = threading.Thread(target=watch)
        watcher.start()
        time.sleep(_PAUSE_S)
        begun = time.perf_counter()
        put(value)
        answered.append(time.perf_counter() - begun)
        found.wait()
        watcher.join()
        seen.append(at[0] - begun)
    return (*summary(seen), *summary(answered))


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
    return summary(seen)
