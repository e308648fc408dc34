"""The delay until a change made through one service is seen by another."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from kazoo.client import KazooClient

from tests.bench.caller import QUOTAS, Caller
from tests.bench.rounds import alternate, percentiles, summary
from tests.bench.world import data_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.rounds import Figure, Sample
    from tests.bench.world import World
    from tests.support.service import Service

_PATH = f"{QUOTAS}/user=bench"
_PAUSE_S = 0.02
POLL_S = 0.0002


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
    yield from percentiles("Change seen by another service", ours, "kazoo: set, watch, get", reference, decimals=2)
    yield from percentiles("Change answered to who made it", [sample[2:] for sample in ours], decimals=2)


def _services(first: Service, second: Service, values: range) -> Sample:
    writer, reader = Caller(first), Caller(second)

    def put(value: int, caller: Caller = writer) -> None:
        caller("PUT", _PATH, f'{{"quotas":{{"producer_byte_rate":{value}}}}}')

    # By the reader, which then has the entity at once.
    put(values[0], reader)
    answered: list[float] = []

    def write(value: int) -> None:
        begun = time.perf_counter()
        put(value)
        answered.append(time.perf_counter() - begun)

    def see(value: int) -> float:
        while f":{value}}}".encode() not in reader("GET", _PATH):
            time.sleep(POLL_S)
        return time.perf_counter()

    return (*delays(write, see, values[1:]), *summary(answered))


def delays(write: Callable[[int], None], see: Callable[[int], float], values: range) -> Sample:
    """Make changes one by one; the time from sending each until it was seen: median and 99th percentile in ms."""
    took: list[float] = []
    for value in values:
        visibility: list[float] = []
        watcher = threading.Thread(target=lambda value=value, visibility=visibility: visibility.append(see(value)))
        watcher.start()
        time.sleep(_PAUSE_S)
        begun = time.perf_counter()
        write(value)
        watcher.join()
        took.append(visibility[0] - begun)
    return summary(took)


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
