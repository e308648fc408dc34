"""Describes by Confplane's client of Kafka's protocol, beside Kafka's AdminClient."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from typing import TYPE_CHECKING, Final, TypeVar

import uvloop

from confplane.kraft.wire.messages import DescribeClientQuotasRequest
from confplane.kraft.wire.messages.quotas import ComponentData
from tests.bench.rounds import Figure, alternate, column, progress, summary
from tests.support import tools
from tests.support.kraft_client import client_of
from tests.support.kraft_writer import KraftWriter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from confplane.kraft.client import KraftClient
    from confplane.kraft.views import Quotas
    from tests.bench.rounds import Sample
    from tests.interop.admin import JavaCalls
    from tests.support.kraft import KraftNode

T = TypeVar("T")
REFERENCE: Final = f"Kafka {tools.KRAFT_VERSION}'s AdminClient"
DEADLINE_S: Final = 600.0
_BATCH: Final = 2_500
ENTITIES: Final = 1_024


def one(node: KraftNode, java: JavaCalls, rounds: int, seconds: float) -> Iterator[Figure]:
    """Yield the figures of a describe of one entity."""
    with progress.status("  warming up"):
        java.call("alterMany", answer_s=DEADLINE_S, entities=ENTITIES, value=1)
    rate = {"connections": 1, "entities": ENTITIES, "first_value": 1, "warm_up_s": min(seconds, 1.0)}

    def theirs(_: int) -> Sample:
        return (float(java.call("describe", answer_s=DEADLINE_S, seconds=seconds, **rate)["p50_ms"]),)

    theirs(0)
    ours, reference, bare = alternate(
        "describe of one entity, median ms: Confplane | AdminClient | bare socket",
        rounds,
        lambda _: (with_client(node, lambda client: _median_of_one(client, seconds)),),
        theirs,
        lambda _: (_bare_median_of_one(node, seconds),),
        decimals=3,
    )
    for name, samples in ((REFERENCE, reference), ("bare socket, the same bytes", bare)):
        yield Figure(
            "Kafka 4: describe of one entity by the wire client, alone: median",
            "ms", column(ours), name, column(samples), decimals=3, less_is_better=True,
        )  # fmt: skip


def _bare_median_of_one(node: KraftNode, seconds: float) -> float:
    """Exchange the bytes of a describe over a socket that waits, without reading the answer: Kafka's part of the time."""
    host, _, port = node.bootstrap.rpartition(":")
    user = ComponentData("user", 0, "bench-000000")
    body = DescribeClientQuotasRequest(components=(user,), strict=True).encode(1)
    # The header: key and version of the API, a number, a client id, no tagged fields.
    request = struct.pack(">hhi", 48, 1, 1) + b"\x00\x05bench\x00" + body
    frame, spent = struct.pack(">i", len(request)) + request, []
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rb") as answers:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            connection.sendall(frame)
            (size,) = struct.unpack(">i", answers.read(4))
            if b"producer_byte_rate" not in answers.read(size):
                raise AssertionError("the entity was not found")
            spent.append(time.perf_counter() - begun)
    return summary(spent)[0]


async def _median_of_one(client: KraftClient, seconds: float) -> float:
    spent: list[float] = []
    end = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        user = f"bench-{len(spent) % ENTITIES:06d}"
        if not await client.describe_quotas_of([("user", user)], time.monotonic() + DEADLINE_S):
            raise AssertionError(f"{user} was not found")
        spent.append(time.perf_counter() - begun)
    return summary(spent)[0]


def all_entities(node: KraftNode, java: JavaCalls, rounds: int, entities: int) -> Iterator[Figure]:
    """Yield the figures of describes of all entities."""

    def theirs(_: int) -> Sample:
        result = java.call("describeAll", answer_s=DEADLINE_S)
        if result["entities"] < entities:
            raise AssertionError(f"{result['entities']} entities were described, not {entities}")
        return (float(result["seconds"]),)

    def unchanged(_: int) -> Sample:
        return (with_client(node, lambda client: _all_again(client, entities)),)

    theirs(0)
    ours, again, reference = alternate(
        f"describe of {entities:,} entities, s: Confplane | again, unchanged | AdminClient",
        rounds,
        lambda _: (describe_all(node, entities)[0],),
        unchanged,
        theirs,
        decimals=2,
    )
    for name, samples in (("", ours), (" again, unchanged", again)):
        yield Figure(
            f"Kafka 4: describe of all {entities:,} entities by the wire client{name}",
            "s", column(samples), REFERENCE, column(reference), decimals=2, less_is_better=True,
        )  # fmt: skip


def describe_all(node: KraftNode, entities: int) -> Sample:
    """Describe all entities and decode the answer; return the seconds, by the clock and of this process."""

    async def describe(client: KraftClient) -> Sample:
        await client.cluster_id(time.monotonic() + DEADLINE_S)
        begun, spent = time.perf_counter(), time.process_time()
        await _all_of(client, entities)
        return time.perf_counter() - begun, time.process_time() - spent

    return with_client(node, describe)


async def _all_again(client: KraftClient, entities: int) -> float:
    found = await _all_of(client, entities)
    begun = time.perf_counter()
    await client.describe_quotas(found.digest, time.monotonic() + DEADLINE_S)
    return time.perf_counter() - begun


async def _all_of(client: KraftClient, entities: int) -> Quotas:
    found = await client.describe_quotas(None, time.monotonic() + DEADLINE_S)
    if found.entries is None or len(found.entries) < entities:
        raise AssertionError(f"not all of {entities} entities were described")
    return found


def with_client(node: KraftNode, use: Callable[[KraftClient], Awaitable[T]]) -> T:
    """Use a client of the node on the service's kind of loop."""

    async def run() -> T:
        async with client_of(node.bootstrap) as client:
            return await use(client)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def fill(node: KraftNode, entities: int) -> None:
    """Create ``<user, client-id>`` entities with two quotas, 100 a user, and wait until the broker has all of them."""
    with progress.status(f"  creating {entities:,} entities in Kafka"):
        asyncio.run(_create(node, entities))
        with_client(node, lambda client: client.barrier(time.monotonic() + DEADLINE_S))


async def _create(node: KraftNode, entities: int) -> None:
    async with KraftWriter(node.bootstrap) as writer:
        for first in range(0, entities, _BATCH):
            await writer.quotas(
                *(
                    (
                        {"user": f"user-{number // 100:06d}", "client-id": f"client-{number % 100:04d}"},
                        {"producer_byte_rate": 1_048_576.0 + number, "consumer_byte_rate": 2_097_152.0},
                    )
                    for number in range(first, min(entities, first + _BATCH))
                )
            )
