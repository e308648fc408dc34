"""The references of alter: its ZooKeeper transactions alone, without HTTP and without Postgres.

``python -m tests.bench.transactions JSON`` with the fields of :class:`Work` prints transactions a second, and the
CPU time of this process for one in microseconds. ``bridge`` is
the service's own store on the service's event loop; ``threads`` is plain kazoo, a thread for each transaction in
flight. Both make the operations that an alter of one existing entity makes: set of the writer node, set of the config
node at the version read, notification, marker.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvloop
from kazoo.client import KazooClient
from uuid_utils.compat import uuid7

from confplane.domain.entities import Entity
from confplane.domain.facets import Tree, full_path
from confplane.domain.quotas import ClientQuotasFacet
from confplane.services.ports.trail import Intent
from confplane.services.ports.transactions import Committed, EntityWrite, Transaction
from confplane.store import FacetIndex, ZooKeeperStore, znodes
from confplane.store.write import markers

if TYPE_CHECKING:
    from uuid import UUID

PRINCIPAL = "User:admin"


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one helper process."""

    connect: str
    mode: str
    in_flight: int = 64
    entities: int = 1024
    first_value: int = 1_000_000_000
    warm_up_s: float = 1.0
    seconds: float = 3.0


def intent(writer: str, change_id: UUID) -> Intent:
    """Return the intent of a change as far as its transaction needs it."""
    return Intent(change_id, 1, "default", writer, PRINCIPAL, "127.0.0.1", str(change_id), None, None, ())


def entity_write(target: Entity, expected: int | None, values: dict[str, str]) -> EntityWrite:
    """Return the write of an entity at a version."""
    return EntityWrite(full_path(Tree.CONFIG, target), Tree.CONFIG, target, expected, values)


def config(value: int) -> dict[str, str]:
    """Return the config that is written: what a PUT of the two quotas makes."""
    return {"consumer_byte_rate": "1048576", "producer_byte_rate": str(value)}


def entity(number: int) -> Entity:
    """Return one of the entities."""
    return Entity.of(user=f"bench-{number:06d}")


def new_store(connect: str) -> ZooKeeperStore:
    """Return a store as the service has it for client quotas."""
    return ZooKeeperStore(
        "default",
        connect=connect,
        session_timeout_ms=10_000,
        max_packet=900_000,
        notifications_max=10_000,
        jute_maxbuffer=0xFFFFF,
        facets={"client-quotas": FacetIndex(Tree.CONFIG, ClientQuotasFacet().owns, bool)},
    )


async def until_loaded(store: ZooKeeperStore) -> None:
    """Wait until a store serves reads and takes writes."""
    while not (store.status().connected and store.status().loaded and store.status().stale_ms is None):  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.001)


async def through_bridge(work: Work) -> tuple[float, float]:
    """Commit through the store."""
    store = new_store(work.connect)
    store.start()
    await until_loaded(store)
    total = done = 0
    cpu = time.process_time()
    begun = time.monotonic() + work.warm_up_s
    end = begun + work.seconds

    async def one(lane: int) -> None:
        nonlocal done, total
        value = work.first_value + lane
        while True:
            for number in range(lane, work.entities, work.in_flight):
                target = entity(number)
                node = store.get(Tree.CONFIG, target.id)
                value += work.in_flight
                write = entity_write(target, None if node is None else node.version, config(value))
                writer = store.writer()
                transaction = Transaction(writer, (intent(writer, uuid7()),), ((write,),))
                result = await store.commit(transaction, time.monotonic() + 10)
                if not isinstance(result, Committed):
                    raise TypeError(f"{target} was not committed: {result}")
                total += 1
                now = time.monotonic()
                if now >= end:
                    return
                done += now >= begun

    await asyncio.gather(*(one(lane) for lane in range(work.in_flight)))
    cpu = time.process_time() - cpu
    await store.stop()
    return done / work.seconds, cpu / total * 1e6


def through_threads(work: Work) -> tuple[float, float]:
    """Commit from threads."""
    client = KazooClient(work.connect)
    client.start()
    name = uuid7().hex
    client.create(znodes.writer_path(name), ephemeral=True, makepath=True)
    for path in (znodes.COMMITS, znodes.CHANGES, "/config/users"):
        client.ensure_path(path)
    counts: Counter[int] = Counter()
    totals: Counter[int] = Counter()
    cpu = time.process_time()
    begun = time.monotonic() + work.warm_up_s
    end = begun + work.seconds

    def one(lane: int) -> None:
        value = work.first_value + lane
        versions: dict[int, int] = {}
        while True:
            for number in range(lane, work.entities, work.in_flight):
                value += work.in_flight
                versions[number] = _commit(client, name, entity(number), config(value), versions.get(number))
                totals[lane] += 1
                now = time.monotonic()
                if now >= end:
                    return
                if now >= begun:
                    counts[lane] += 1

    with ThreadPoolExecutor(work.in_flight) as threads:
        for future in [threads.submit(one, lane) for lane in range(work.in_flight)]:
            future.result()
    cpu = time.process_time() - cpu
    client.stop()
    client.close()
    return counts.total() / work.seconds, cpu / totals.total() * 1e6


def _commit(client: KazooClient, writer: str, target: Entity, values: dict[str, str], version: int | None) -> int:
    """Commit one change and return the node's version."""
    path = znodes.path_of(Tree.CONFIG, target)
    if version is None:
        stat = client.exists(path)
        version = -1 if stat is None else stat.version
    change = uuid7()
    transaction = client.transaction()
    transaction.set_data(znodes.writer_path(writer), b"")
    expected = None if version < 0 else version
    write = entity_write(target, expected, values)
    if expected is None:
        transaction.create(path, znodes.encode_entity(values))
    else:
        transaction.set_data(path, znodes.encode_entity(values), version)
    transaction.create(znodes.CHANGE_PREFIX, znodes.encode_notification(target.path), sequence=True)
    marker = markers.encode_committed(intent(writer, change), (write,))
    transaction.create(znodes.marker_path(change), marker)
    for result in transaction.commit():
        if isinstance(result, Exception):
            raise result
    return version + 1


if __name__ == "__main__":
    given = Work(**json.loads(sys.argv[1]))
    found = uvloop.run(through_bridge(given)) if given.mode == "bridge" else through_threads(given)
    sys.stdout.write(json.dumps(found))
