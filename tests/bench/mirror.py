"""The mirror: the rate of a load, its holds of the event loop, and the memory of an entity.

``python -m tests.bench.mirror JSON`` with ``connect`` prints the seconds from the start of a store until it serves all
entities, and the longest hold of the event loop in a load and a reload; with ``gets`` besides, the seconds in which plain
kazoo, pipelined, reads that many of the nodes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import uvloop
from kazoo.client import KazooClient

from tests.bench.rounds import Figure, alternate, column
from tests.bench.transactions import new_store, until_loaded
from tests.bench.world import paths_of, probe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.rounds import Sample
    from tests.bench.world import World

_IN_FLIGHT = 1000
"""Reads under way at a time, for plain kazoo as for the mirror."""
_SETTLE_S = 2.0
_TURN_S = 0.001
"""Seconds between two reads of the clock on the event loop."""
_HOLD_MS = 50.0
"""The goal of the longest hold."""


def load(world: World, *, rounds: int, entities: int) -> Iterator[Figure]:
    """Yield the rate of a load, and the longest hold of the event loop in a load and a reload."""
    connect = world.filled(entities)

    def mirror(_: int) -> Sample:
        seconds, hold_s = probe("mirror", connect=connect)
        return entities / seconds, hold_s * 1000

    def gets(_: int) -> Sample:
        return (entities / probe("mirror", connect=connect, gets=entities),)

    ours, reference = alternate("mirror load | pipelined kazoo gets, entities/s", rounds, mirror, gets)
    name = f"Mirror load of {entities:,} entities"
    yield Figure(name, "/s", column(ours), "the same nodes by pipelined kazoo gets", column(reference), "10.00")
    yield Figure(
        f"Longest hold of the event loop in a load and a reload of {entities:,} entities",
        "ms",
        column(ours, 1),
        "the goal",
        [_HOLD_MS] * rounds,
        "1.00",
        less_is_better=True,
    )


def memory(world: World, *, rounds: int, entities: int) -> Iterator[Figure]:
    """Yield the memory of a service for an entity, at rest and at most, and the time until it is ready."""
    full, dsn = world.filled(entities), world.database()

    def started(connect: str) -> Sample:
        begun = time.monotonic()
        with world.service(connect, dsn) as service:
            seconds = time.monotonic() - begun
            time.sleep(_SETTLE_S)
            resident = psutil.Process(service.pid).memory_info().rss
            return float(resident), float(peak(service.pid)), seconds

    empty = world.chroot()
    loaded, unloaded = alternate(
        "bytes resident with all entities | with none",
        rounds,
        lambda _: started(full),
        lambda _: started(empty),
    )
    goals = (("Resident memory", 450.0, "1.00"), ("Greatest memory until then", 450.0, "information"))
    for index, (name, most, goal) in enumerate(goals):
        costs = [(a - b) / entities for a, b in zip(column(loaded, index), column(unloaded, index), strict=True)]
        yield Figure(
            f"{name} of an entity, {entities:,} entities",
            "bytes",
            costs,
            "the goal of resident memory",
            [most] * rounds,
            goal,
            less_is_better=True,
        )
    yield Figure(
        f"Start with {entities:,} entities until ready",
        "s",
        column(loaded, 2),
        "with none",
        column(unloaded, 2),
        decimals=1,
        less_is_better=True,
    )


def peak(pid: int) -> int:
    """Return the greatest resident memory of a process so far, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [kilobytes] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(kilobytes) * 1024


class Holds:
    """The holds of the event loop: times of computation by this process between two turns of the loop.

    Times in which other processes had the cores do not count.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._turned = time.monotonic(), time.process_time()

    def turn(self) -> None:
        """Take note of a turn, and come back."""
        now = time.monotonic(), time.process_time()
        self.longest_s = max(self.longest_s, min(now[0] - self._turned[0], now[1] - self._turned[1]))
        self._turned = now
        asyncio.get_running_loop().call_later(_TURN_S, self.turn)


async def _load(connect: str) -> tuple[float, float]:
    holds = Holds()
    holds.turn()
    store = new_store(connect)
    begun = time.monotonic()
    store.start()
    await until_loaded(store)
    seconds = time.monotonic() - begun
    await asyncio.to_thread(_use_up_a_number, connect)
    while not any(sample.name == "mirror_loads" and sample.value not in {0, 1} for sample in store.metrics()):  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.01)
    await until_loaded(store)
    await asyncio.sleep(_SETTLE_S)
    await store.stop()
    return seconds, holds.longest_s


def _use_up_a_number(connect: str) -> None:
    """Leave a gap in the numbers of notifications, after which mirrors load again."""
    client = KazooClient(connect)
    client.start()
    transaction = client.transaction()
    transaction.create("/config/changes/stray")
    transaction.delete("/config/changes/stray")
    transaction.commit()
    client.stop()
    client.close()


def _gets(connect: str, count: int) -> float:
    client = KazooClient(connect)
    begun = time.monotonic()
    client.start()
    under_way: deque[Any] = deque()
    for path in paths_of(count):
        if len(under_way) == _IN_FLIGHT:
            under_way.popleft().get()
        under_way.append(client.get_async(path))
    for reply in under_way:
        reply.get()
    seconds = time.monotonic() - begun
    client.stop()
    client.close()
    return seconds


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    sys.stdout.write(
        json.dumps(_gets(given["connect"], given["gets"]) if "gets" in given else uvloop.run(_load(given["connect"])))
    )
