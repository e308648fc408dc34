"""An observed Kafka 4: describes beside Kafka's AdminClient, the import, idle looks, changes by others."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psutil
import uvloop

from app.kraft.client import KraftClient
from app.kraft.views import Quotas
from app.kraft.wire.options import Address, Options
from tests.bench.broker import LOAD, SHIPPED
from tests.bench.caller import QUOTAS, Caller
from tests.bench.rounds import Figure, alternate, column, progress, summary
from tests.interop.admin import JavaCalls
from tests.support import tools
from tests.support.kraft import kraft_cluster
from tests.support.kraft_writer import KraftWriter
from tests.support.service import ROOT
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from tests.bench.rounds import Sample
    from tests.bench.stage import Stage
    from tests.support.kraft import KraftNode
    from tests.support.service import Service

T = TypeVar("T")
REFERENCE: Final = f"Kafka {tools.KRAFT_VERSION}'s AdminClient"
_DESCRIBE: Final = "one describe"
_IMPORTS: Final = 3
"""Rounds of an import, at most: each takes half a minute or more."""
_BATCH: Final = 2_500
_ENTITIES: Final = 1_000
_IDLE_S: Final = 60.0
_SPACING_S: Final = 0.05
_POLL_S: Final = 0.002
_DEADLINE_S: Final = 600.0
_REQUEST_MS: Final = 120_000


def measure(
    stage: Stage, class_path: str, *, rounds: int, seconds: float, entities: int, changes: int
) -> Iterator[Figure]:
    """Yield all figures, on a node with the options that Kafka ships."""
    directory = stage.directory / "kraft"
    # The controller's half second between two records, and the threads, are the defaults again.
    properties = {"metadata.max.idle.interval.ms": "500", "num.network.threads": "3", "num.io.threads": "8"}
    with kraft_cluster(directory, class_path, properties=properties, java=SHIPPED) as kraft:
        (node,) = kraft.nodes
        log, options = directory / "load.log", ["-Xmx1G", "-XX:+UseSerialGC"]
        with JavaCalls(LOAD, log, class_path=class_path, bootstrap=node.bootstrap, options=options) as java:
            yield from _seen(stage, node, changes)
            yield from _one(node, java, rounds, seconds)
            with progress.status(f"  creating {entities:,} entities in Kafka"):
                asyncio.run(_fill(node, entities))
                # A broker is seconds behind many writes.
                _with_client(node, lambda client: client.barrier(time.monotonic() + _DEADLINE_S))
            yield from _all(node, java, rounds, entities)
        yield from _import(stage, node, min(rounds, _IMPORTS), entities)
        yield from _idle(stage, node, entities)


# ---------------------------------------------------------------- describes


def _one(node: KraftNode, java: JavaCalls, rounds: int, seconds: float) -> Iterator[Figure]:
    with progress.status("  warming up"):
        java.call("alterMany", answer_s=_DEADLINE_S, entities=_ENTITIES, value=1)
    rate = {"connections": 1, "entities": _ENTITIES, "first_value": 1, "warm_up_s": min(seconds, 1.0)}

    def theirs(_: int) -> Sample:
        return (float(java.call("describe", answer_s=_DEADLINE_S, seconds=seconds, **rate)["p50_ms"]),)

    theirs(0)
    ours, reference = alternate(
        "describe of one entity, median ms: Confplane | AdminClient",
        rounds,
        lambda _: (_with_client(node, lambda client: _median_of_one(client, seconds)),),
        theirs,
        decimals=3,
    )
    yield Figure(
        "Kafka 4: describe of one entity, alone: median",
        "ms", column(ours), REFERENCE, column(reference), "2.00", decimals=3, less_is_better=True,
    )  # fmt: skip


async def _median_of_one(client: KraftClient, seconds: float) -> float:
    spent: list[float] = []
    end = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        user = f"bench-{len(spent) % _ENTITIES:06d}"
        if not await client.describe_quotas_of([("user", user)], time.monotonic() + _DEADLINE_S):
            raise AssertionError(f"{user} was not found")
        spent.append(time.perf_counter() - begun)
    return summary(spent)[0]


def _all(node: KraftNode, java: JavaCalls, rounds: int, entities: int) -> Iterator[Figure]:
    def theirs(_: int) -> Sample:
        result = java.call("describeAll", answer_s=_DEADLINE_S)
        if result["entities"] < entities:
            raise AssertionError(f"{result['entities']} entities were described, not {entities}")
        return (float(result["seconds"]),)

    def unchanged(_: int) -> Sample:
        return (_with_client(node, lambda client: _all_again(client, entities)),)

    theirs(0)
    ours, again, reference = alternate(
        f"describe of {entities:,} entities, s: Confplane | again, unchanged | AdminClient",
        rounds,
        lambda _: (_describe_all(node, entities)[0],),
        unchanged,
        theirs,
        decimals=2,
    )
    for name, samples in (("", ours), (" again, unchanged", again)):
        yield Figure(
            f"Kafka 4: describe of all {entities:,} entities{name}",
            "s", column(samples), REFERENCE, column(reference), "information" if name else "10.00", decimals=2,
            less_is_better=True,
        )  # fmt: skip


def _describe_all(node: KraftNode, entities: int) -> Sample:
    """Describe all entities and decode the answer; return the seconds, by the clock and of this process."""

    async def describe(client: KraftClient) -> Sample:
        await client.cluster_id(time.monotonic() + _DEADLINE_S)
        begun, spent = time.perf_counter(), time.process_time()
        await _all_of(client, entities)
        return time.perf_counter() - begun, time.process_time() - spent

    return _with_client(node, describe)


async def _all_again(client: KraftClient, entities: int) -> float:
    found = await _all_of(client, entities)
    begun = time.perf_counter()
    await client.describe_quotas(found.digest, time.monotonic() + _DEADLINE_S)
    return time.perf_counter() - begun


async def _all_of(client: KraftClient, entities: int) -> Quotas:
    found = await client.describe_quotas(None, time.monotonic() + _DEADLINE_S)
    if not isinstance(found, Quotas) or len(found.entries) < entities:
        raise AssertionError(f"not all of {entities} entities were described")
    return found


def _with_client(node: KraftNode, use: Callable[[KraftClient], Awaitable[T]]) -> T:
    async def run() -> T:
        client = KraftClient([Address.parse(node.bootstrap)], Options())
        try:
            return await use(client)
        finally:
            await client.close()

    # The service's loop.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


async def _fill(node: KraftNode, entities: int) -> None:
    """Create ``<user, client-id>`` entities with two quotas, 100 a user."""
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


# ---------------------------------------------------------------- the import


def _import(stage: Stage, node: KraftNode, rounds: int, entities: int) -> Iterator[Figure]:
    ours, reference = alternate(
        f"import of {entities:,} entities, s: the command | one describe",
        rounds,
        lambda _: _imported(stage, node, stage.chroot(), stage.database()),
        lambda _: _describe_all(node, entities),
        decimals=2,
    )
    for index, name in enumerate(("wall time", "processor time of the process")):
        yield Figure(
            f"Kafka 4: import of {entities:,} entities: {name}",
            "s", column(ours, index), _DESCRIBE, column(reference, index), "information" if index else "0.05",
            decimals=2, less_is_better=True,
        )  # fmt: skip


def _imported(stage: Stage, node: KraftNode, connect: str, dsn: str, **kafka: Any) -> Sample:
    """Import by the command; return its seconds, by the clock and of processor."""
    cluster = {"zookeeper": connect, "kafka": _kafka(node, **kafka)}
    own = os.environ | {"CONFPLANE_CLUSTERS": json.dumps({"default": cluster}), "CONFPLANE_POSTGRES__DSN": dsn}
    own |= {"CONFPLANE_ADMIN_TOKEN_FILE": str(_token(stage.directory))}
    command = [sys.executable, "-m", "app", "target", "import", "--apply", "--cluster", "default"]
    begun = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, env=own, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise AssertionError(f"the import ended with {process.returncode}")
    return seconds, used.ru_utime + used.ru_stime


def _kafka(node: KraftNode, **more: Any) -> dict[str, Any]:
    return {"bootstrap": [node.bootstrap], "request_timeout_ms": _REQUEST_MS, **more}


def _token(directory: Path) -> Path:
    token = directory / "import-token"
    token.write_text("0" * 48)
    return token


# ---------------------------------------------------------------- looks without changes


def _idle(stage: Stage, node: KraftNode, entities: int) -> Iterator[Figure]:
    """Yield the share of a core that the leader takes, and that of a process beside it, which does not look."""
    with (
        _observing(stage, node) as (leader, connect, dsn),
        stage.service(connect, dsn, {"kafka": _kafka(node)}) as other,
    ):
        pids = leader.pid, other.pid, node.pid
        time.sleep(_IDLE_S / 2)  # the first look compares everything
        before, begun = [_spent(pid) for pid in pids], time.perf_counter()
        with progress.status("  idle"):
            time.sleep(_IDLE_S)
        passed = time.perf_counter() - begun
        leading, beside, broker = ((_spent(pid) - was) / passed * 100 for pid, was in zip(pids, before, strict=True))
    progress.print(
        f"  idle, % of a core: the leader | another process | Kafka: {leading:.2f} | {beside:.2f} | {broker:.2f}"
    )
    yield Figure(
        f"Kafka 4: {entities:,} entities without a change, share of a core",
        "%", [leading], "a process that does not lead", [beside], "2 %", decimals=2, less_is_better=True,
    )  # fmt: skip
    yield Figure("The same: share of a core of Kafka, one node", "%", [broker], decimals=2)


def _spent(pid: int) -> float:
    return float(sum(psutil.Process(pid).cpu_times()[:2]))


@contextmanager
def _observing(stage: Stage, node: KraftNode, **kafka: Any) -> Iterator[tuple[Service, str, str]]:
    """Import, run a service, and wait for its first looks; yields it with its chroot and DSN."""
    connect, dsn = stage.chroot(), stage.database()
    _imported(stage, node, connect, dsn, **kafka)
    with stage.service(connect, dsn, {"kafka": _kafka(node, **kafka)}) as service:
        caller = Caller(service)

        def looked() -> bool:
            target = json.loads(caller("GET", "/v1/clusters/default"))["target"]
            areas = target["areas"] or {}
            return bool(areas) and ("controllers" not in kafka or target["logOffset"] is not None)

        wait_for(looked, why="no report of the leader")
        yield service, connect, dsn


# ---------------------------------------------------------------- changes by others


def _seen(stage: Stage, node: KraftNode, changes: int) -> Iterator[Figure]:
    """Yield how soon a change by another client of Kafka is in an answer of the service; beside the broker's own."""
    for name, kafka in (("by looks", {}), ("by the log", {"controllers": [node.controller]})):
        with _observing(stage, node, **kafka) as (service, _, _):
            ours, reference = asyncio.run(_latencies(node, service, changes))
        progress.print(
            f"  a change seen {name}, median ms: {ours[0]:.1f}; by the broker's own describe: {reference[0]:.1f}"
        )
        for index, what in enumerate(("median", "99th percentile")):
            yield Figure(
                f"Kafka 4: change by others seen {name}, {what}",
                "ms", [ours[index]], "the broker's own describe", [reference[index]], decimals=1, less_is_better=True,
            )  # fmt: skip


async def _latencies(node: KraftNode, service: Service, changes: int) -> tuple[Sample, Sample]:
    """Alter users one after another; return when each was shown, behind the sending: by the service, by the broker."""
    sent = [0.0] * changes
    shown: list[dict[int, float]] = [{}, {}]
    stop = threading.Event()

    def note(seen: dict[int, float], users: set[str]) -> None:
        now = time.perf_counter()
        for number in range(changes):
            if number not in seen and f"seen-{number:04d}" in users:
                seen[number] = now

    def by_service() -> None:
        caller = Caller(service)
        while not stop.is_set() and len(shown[0]) < changes:
            items = json.loads(caller("GET", f"{QUOTAS}?pageSize=1000"))["items"]
            note(shown[0], {each["id"].removeprefix("user=") for each in items})
            time.sleep(_POLL_S)

    async def by_broker() -> None:
        client = KraftClient([Address.parse(node.bootstrap)], Options())
        try:
            while len(shown[1]) < changes:
                found = await client.describe_quotas(None, time.monotonic() + _DEADLINE_S)
                assert isinstance(found, Quotas)
                note(shown[1], {each.entity[0][1] or "" for each in found.entries})
                await asyncio.sleep(_POLL_S)
        finally:
            await client.close()

    async def write() -> None:
        async with KraftWriter(node.bootstrap) as writer:
            for number in range(changes):
                sent[number] = time.perf_counter()
                await writer.quotas(({"user": f"seen-{number:04d}"}, {"producer_byte_rate": 1.0}))
                await asyncio.sleep(_SPACING_S)

    try:
        async with asyncio.timeout(_DEADLINE_S):
            await asyncio.gather(write(), by_broker(), asyncio.to_thread(by_service))
    finally:
        stop.set()
    async with KraftWriter(node.bootstrap) as writer:
        await writer.quotas(
            *(({"user": f"seen-{number:04d}"}, {"producer_byte_rate": None}) for number in range(changes))
        )
    ours, theirs = (summary([seen[number] - sent[number] for number in range(changes)]) for seen in shown)
    return ours, theirs
