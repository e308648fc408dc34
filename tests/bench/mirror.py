"""The mirror: how fast it loads, and what it costs in memory.

``python -m tests.bench.mirror JSON`` with ``connect`` prints the seconds from the start of a store until it serves all
entities; with ``gets`` besides, the seconds in which plain kazoo, pipelined, reads that many of the nodes.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import psutil
import uvloop
from kazoo.client import KazooClient

from tests.bench.rounds import Figure, alternate, column
from tests.bench.stage import paths_of, probe
from tests.bench.transactions import new_store, until_loaded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.rounds import Sample
    from tests.bench.stage import Stage

_IN_FLIGHT = 1000
"""Reads under way at a time, for plain kazoo as for the mirror."""
_SETTLE_S = 2.0


def load(stage: Stage, *, rounds: int, entities: int) -> Iterator[Figure]:
    """Yield how fast a mirror loads."""
    connect = stage.filled(entities)

    def mirror(_: int) -> Sample:
        return (entities / probe("mirror", connect=connect),)

    def gets(_: int) -> Sample:
        return (entities / probe("mirror", connect=connect, gets=entities),)

    ours, reference = alternate("mirror load | pipelined kazoo gets, entities/s", rounds, mirror, gets)
    name = f"Mirror load of {entities:,} entities"
    yield Figure(name, "/s", column(ours), "the same nodes by pipelined kazoo gets", column(reference), "0.80")


def memory(stage: Stage, *, rounds: int, entities: int) -> Iterator[Figure]:
    """Yield what an entity costs in the memory of a service."""
    full, dsn = stage.filled(entities), stage.database()

    def resident(connect: str) -> Sample:
        with stage.service(connect, dsn) as service:
            time.sleep(_SETTLE_S)
            return (float(psutil.Process(service.pid).memory_info().rss),)

    empty = stage.chroot()
    loaded, unloaded = alternate(
        "bytes resident with all entities | with none",
        rounds,
        lambda _: resident(full),
        lambda _: resident(empty),
    )
    costs = [(a - b) / entities for a, b in zip(column(loaded), column(unloaded), strict=True)]
    yield Figure(
        f"Resident memory of an entity, {entities:,} entities",
        "bytes",
        costs,
        "the goal",
        [1000.0] * rounds,
        "1.00",
        less_is_better=True,
    )


async def _load(connect: str) -> float:
    store = new_store(connect)
    begun = time.monotonic()
    await store.start()
    await until_loaded(store)
    seconds = time.monotonic() - begun
    await store.stop()
    return seconds


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
