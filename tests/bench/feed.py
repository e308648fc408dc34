"""The feed: the delay of its events with some consumers, and what idle consumers cost."""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import httpx
import psutil
from kazoo.client import KazooClient

from tests.bench.caller import QUOTAS
from tests.bench.rounds import Figure, alternate, column, percentiles, summary
from tests.bench.world import data_of
from tests.support.waiting import until, wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from tests.bench.rounds import Sample
    from tests.bench.world import World
    from tests.support.service import Service

CONSUMERS: Final = (1, 100, 1_000)
_OF_PRINCIPAL: Final = 20
_PATH: Final = f"{QUOTAS}/user=bench"
_FEED: Final = "/v1/clusters/default/changes"


def measure(world: World, *, rounds: int, changes: int) -> Iterator[Figure]:
    """Yield the delay of events; the reference is as many watches of a kazoo client, each followed by a read."""
    with world.service() as service:
        tokens = asyncio.run(_tokens(service, max(CONSUMERS)))
        for count in CONSUMERS:
            ours, reference = alternate(
                f"event received, {count:,} streams | kazoo's watches and reads, ms at the median",
                rounds,
                partial(_received_by, service, tokens[:count], changes),
                partial(_watches, world, count, changes),
                decimals=2,
            )
            name = f"Response to a write until the event is received, {count:,} streams"
            yield from percentiles(name, ours, "kazoo: watch, get", reference, ("information", "0.12"), decimals=2)


def idle(world: World, *, rounds: int, seconds: float, consumers: int) -> Iterator[Figure]:
    """Yield the memory of a consumer that follows another entity, and the rate of alters beside so many of them."""
    with world.service() as service:
        rates, alone, size = asyncio.run(_idle(service, consumers, seconds, rounds))
        yield Figure(f"Memory of one of {consumers:,} idle consumers", "kB", [size], decimals=1)
        yield Figure(f"Alters beside {consumers:,} idle consumers", "/s", rates, "without them", alone, decimals=0)


def snapshot(world: World, *, rounds: int, entities: int) -> Iterator[Figure]:
    """Yield the rate of a snapshot of all entities beside that of a describe of them, and the growth of the process."""
    headers = {"Accept": "application/x-ndjson"}
    with (
        world.service(world.filled(entities)) as service,
        httpx.Client(
            base_url=service.url,
            headers={**headers, "Authorization": f"Bearer {service.token}"},
            timeout=600,
            trust_env=False,
        ) as client,
    ):
        process = psutil.Process(service.pid)
        growth: list[float] = []

        def states(_: int) -> Sample:
            before, most, count, begun = process.memory_info().rss, 0, 0, time.perf_counter()
            with client.stream("GET", f"{_FEED}?snapshot=true") as answer:
                answer.raise_for_status()
                for line in filter(None, answer.iter_lines()):
                    if '"type":"bookmark"' in line:
                        break
                    count += 1
                    if not count % 10_000:
                        most = max(most, process.memory_info().rss - before)
            if count != entities:
                raise AssertionError(f"{count} states were sent, not {entities}")
            growth.append(most / 2**20)
            return (entities / (time.perf_counter() - begun),)

        def described(_: int) -> Sample:
            begun = time.perf_counter()
            body = {"components": [], "strict": False}
            with client.stream("POST", f"{QUOTAS}:describe", json=body) as answer:
                count = sum(1 for _ in answer.iter_lines()) - 1
            if count != entities:
                raise AssertionError(f"{count} entities were described, not {entities}")
            return (entities / (time.perf_counter() - begun),)

        name = f"snapshot of {entities:,} entities | describe of them, entities/s"
        ours, reference = alternate(name, rounds, states, described)
    yield Figure(
        f"Snapshot of {entities:,} entities", "/s", column(ours), "describe, a line for each", column(reference)
    )
    yield Figure(f"Growth of the process in a snapshot of {entities:,} entities", "MiB", growth)


async def _tokens(service: Service, count: int) -> list[str]:
    """Return a token for each consumer: a principal has a bounded number of streams."""
    headers = {"Authorization": f"Bearer {service.token}"}
    found: list[str] = []
    async with httpx.AsyncClient(base_url=service.url, headers=headers, trust_env=False, timeout=60) as admin:
        for number in range(-(-count // _OF_PRINCIPAL)):
            principal = f"User:reader-{number}"
            grant = {"principal": principal, "operation": "DESCRIBE_CONFIGS", "resourceType": "user", "name": "*"}
            (await admin.post("/v1/grants", json=grant)).raise_for_status()
            made = (await admin.post("/v1/tokens", json={"principal": principal})).raise_for_status()
            found.append(made.json()["token"])
        for token in found:
            await until(partial(_accepted, admin, token))
    return [found[number // _OF_PRINCIPAL] for number in range(count)]


async def _accepted(client: httpx.AsyncClient, token: str) -> bool:
    answer = await client.get(_FEED, headers={"Authorization": f"Bearer {token}"})
    return answer.status_code == httpx.codes.OK


@asynccontextmanager
async def _consumer(service: Service, token: str, query: str = "") -> AsyncIterator[asyncio.StreamReader]:
    """Open a stream on a plain connection, which costs this process little."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    head = (
        f"GET {_FEED}{query} HTTP/1.1",
        "Host: bench",
        f"Authorization: Bearer {token}",
        "Accept: text/event-stream",
    )
    writer.write("\r\n".join((*head, "", "")).encode())
    try:
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError(f"The feed answered {status.decode().strip()}")
        await reader.readuntil(b"\n\n")  # the comment at the begin
        yield reader
    finally:
        writer.close()


def _received_by(service: Service, tokens: Sequence[str], changes: int, number: int) -> Sample:
    return asyncio.run(_delays(service, tokens, number * changes, changes))


async def _delays(service: Service, tokens: Sequence[str], first: int, changes: int) -> Sample:
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(_consumer(service, token)) for token in tokens]
        client = await stack.enter_async_context(
            httpx.AsyncClient(
                base_url=service.url, headers={"Authorization": f"Bearer {service.token}"}, trust_env=False
            )
        )
        seen: list[float] = []
        for value in range(first + 1, first + changes + 1):
            received = [asyncio.create_task(_received(reader, f'"after":{value},'.encode())) for reader in readers]
            answer = await client.put(_PATH, json={"quotas": {"producer_byte_rate": value}})
            answered = time.perf_counter()
            answer.raise_for_status()
            # An event may come before the response to its write.
            seen += [max(0.0, at - answered) for at in await asyncio.gather(*received)]
        return summary(seen)


async def _received(reader: asyncio.StreamReader, wanted: bytes) -> float:
    while wanted not in await reader.readline():
        pass
    return time.perf_counter()


def _watches(world: World, count: int, changes: int, _number: int) -> Sample:
    connect = world.chroot()
    writer, reader = KazooClient(connect), KazooClient(connect)
    for client in (writer, reader):
        client.start()
    path, seen = "/watched", list[float]()
    writer.ensure_path(path)
    for number in range(changes):
        at: list[float] = []

        def read(_: object, at: list[float] = at) -> None:
            reader.get_async(path).rawlink(lambda _: at.append(time.perf_counter()))

        # kazoo calls a function once that watches a path several times.
        for watch in [partial(read) for _ in range(count)]:
            reader.get(path, watch=watch)
        writer.set(path, data_of(number))
        answered = time.perf_counter()
        wait_for(lambda: len(at) >= count, pause_s=0.0002)  # noqa: B023 - called within the round
        seen += [max(0.0, each - answered) for each in at]
    for client in (writer, reader):
        client.stop()
        client.close()
    return summary(seen)


async def _idle(service: Service, count: int, seconds: float, rounds: int) -> tuple[list[float], list[float], float]:
    process, alone, beside, size = psutil.Process(service.pid), list[float](), list[float](), 0.0
    tokens = await _tokens(service, count)
    for _ in range(rounds):
        alone.append(await _rate(service, seconds))
        before = process.memory_info().rss
        async with AsyncExitStack() as stack:
            for token in tokens:
                await stack.enter_async_context(_consumer(service, token, "?entity=user%3Didle"))
            if not beside:  # later consumers take what the first ones gave back
                size = (process.memory_info().rss - before) / count / 1_000
            beside.append(await _rate(service, seconds))
    return beside, alone, size


async def _rate(service: Service, seconds: float) -> float:
    """Return the alters a second of one caller after another."""
    headers, count = {"Authorization": f"Bearer {service.token}"}, 0
    async with httpx.AsyncClient(base_url=service.url, headers=headers, trust_env=False) as client:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    (await client.put(_PATH, json={"quotas": {"producer_byte_rate": count + 1}})).raise_for_status()
                    count += 1
    return count / seconds
