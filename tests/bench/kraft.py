"""An observed Kafka 4: describes compared with Kafka's AdminClient, the import, idle polls, external changes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import psutil

from tests.bench.broker import LOAD, SHIPPED
from tests.bench.caller import Caller
from tests.bench.kraft_describes import all_entities, describe_all, fill, one
from tests.bench.kraft_served import served
from tests.bench.kraft_visibility import latencies
from tests.bench.rounds import Figure, alternate, column, percentiles, progress
from tests.interop.admin import JavaCalls
from tests.support.kraft import kraft_cluster
from tests.support.metrics import Scraped
from tests.support.processes import ROOT
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.rounds import Sample
    from tests.bench.world import World
    from tests.support.kraft import KraftNode
    from tests.support.service import Service

_DESCRIBE: Final = "one describe"
_IMPORTS: Final = 3
"""Rounds of an import, at most: each takes half a minute or more."""
_IDLE_S: Final = 60.0
_FIRST_S: Final = 600.0
_REST_S: Final = 10.0
_REST_SHARE: Final = 0.05
"""A process that takes less of a core has ended the work of its start."""
_REQUEST_MS: Final = 120_000


def measure(
    world: World, class_path: str, *, rounds: int, seconds: float, entities: int, changes: int
) -> Iterator[Figure]:
    """Yield all figures, on a node with the options that Kafka ships."""
    directory = world.directory / "kraft"
    # The controller's half second between two records, and the threads, are the defaults again.
    properties = {"metadata.max.idle.interval.ms": "500", "num.network.threads": "3", "num.io.threads": "8"}
    with kraft_cluster(directory, class_path, properties=properties, java=SHIPPED) as kraft:
        (node,) = kraft.nodes
        log, options = directory / "load.log", ["-Xmx1G", "-XX:+UseSerialGC"]
        with JavaCalls(LOAD, log, class_path=class_path, bootstrap=node.bootstrap, options=options) as java:
            yield from _visibility(world, node, changes)
            yield from one(node, java, rounds, seconds)
            fill(node, entities)
            yield from all_entities(node, java, rounds, entities)
            yield from _import(world, node, min(rounds, _IMPORTS), entities)
            with observing(world, node) as (leader, connect, dsn):
                yield from served(leader, java, rounds=rounds, seconds=seconds, entities=entities)
                yield from _idle(world, node, leader, connect, dsn, entities)


# ---------------------------------------------------------------- the import


def _import(world: World, node: KraftNode, rounds: int, entities: int) -> Iterator[Figure]:
    ours, reference = alternate(
        f"import of {entities:,} entities, s: the command | one describe",
        rounds,
        lambda _: _imported(world, node, world.chroot(), world.database()),
        lambda _: describe_all(node, entities),
        decimals=2,
    )
    for index, name in enumerate(("wall time", "processor time of the process")):
        yield Figure(
            f"Kafka 4: import of {entities:,} entities: {name}",
            "s", column(ours, index), _DESCRIBE, column(reference, index), "information" if index else "0.05",
            decimals=2, less_is_better=True,
        )  # fmt: skip


def _imported(world: World, node: KraftNode, connect: str, dsn: str, **kafka: Any) -> Sample:
    """Import by the command; return its seconds, by the clock and of processor."""
    return run_target(world, node, connect, dsn, "import", "--apply", **kafka)


def run_target(world: World, node: KraftNode, connect: str, dsn: str, *arguments: str, **kafka: Any) -> Sample:
    """Run ``confplane target`` with arguments; return its seconds, by the clock and of processor."""
    cluster = {"zookeeper": connect, "kafka": _kafka(node, **kafka)}
    own = os.environ | {"CONFPLANE_CLUSTERS": json.dumps({"default": cluster}), "CONFPLANE_POSTGRES__DSN": dsn}
    own |= {"CONFPLANE_ADMIN_TOKEN_FILE": str(_token(world.directory)), "LOGNAME": "bench"}
    command = [sys.executable, "-m", "confplane", "target", *arguments, "--cluster", "default"]
    begun = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, env=own, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise AssertionError(f"confplane target {arguments[0]} ended with {process.returncode}")
    return seconds, used.ru_utime + used.ru_stime


def _kafka(node: KraftNode, **more: Any) -> dict[str, Any]:
    return {"bootstrap": [node.bootstrap], "request_timeout_ms": _REQUEST_MS, **more}


def _token(directory: Path) -> Path:
    token = directory / "import-token"
    token.write_text("0" * 48)
    return token


# ---------------------------------------------------------------- polls without changes


def _idle(world: World, node: KraftNode, leader: Service, connect: str, dsn: str, entities: int) -> Iterator[Figure]:
    """Yield the share of a core that the leader takes, and that of another process, which does not poll."""
    with world.service(connect, dsn, {"kafka": _kafka(node)}) as other:
        pids = leader.pid, other.pid, node.pid
        # The first poll compares everything, and the recorder's first contact follows. The import's notifications
        # above the limit are deleted a minute after the start.
        wait_for(lambda: _purged(leader), _FIRST_S, why="the notifications of the import stay")
        wait_for(lambda: _rests(leader.pid), _FIRST_S, why="the leader does not come to rest")
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


def _purged(service: Service) -> bool:
    metrics = Scraped(Caller(service)("GET", "/metrics").decode())
    return metrics("notifications", cluster="default") <= metrics("notifications_limit", cluster="default")


def _rests(pid: int) -> bool:
    before = _spent(pid)
    time.sleep(_REST_S)
    return _spent(pid) - before < _REST_S * _REST_SHARE


def _spent(pid: int) -> float:
    return float(sum(psutil.Process(pid).cpu_times()[:2]))


@contextmanager
def observing(
    world: World, node: KraftNode, settings: dict[str, str] | None = None, **kafka: Any
) -> Iterator[tuple[Service, str, str]]:
    """Import, run a service, and wait for its first polls; yields it with its chroot and DSN.

    Args:
        world: The servers.
        node: The cluster.
        settings: More variables of the service.
        kafka: More settings of the cluster.
    """
    connect, dsn = world.chroot(), world.database()
    _imported(world, node, connect, dsn, **kafka)
    with world.service(connect, dsn, {"kafka": _kafka(node, **kafka)}, settings) as service:
        caller = Caller(service)

        def looked() -> bool:
            target = json.loads(caller("GET", "/v1/clusters/default"))["target"]
            areas = target["areas"] or {}
            return bool(areas) and ("controllers" not in kafka or target["logOffset"] is not None)

        def recorded() -> bool:
            return json.loads(caller("GET", "/v1/clusters/default"))["recorded"] is not None

        wait_for(looked, _FIRST_S, why="no report of the leader")
        wait_for(recorded, _FIRST_S, why="the recorder has not seen all entities")
        yield service, connect, dsn


# ---------------------------------------------------------------- external changes


def _visibility(world: World, node: KraftNode, changes: int) -> Iterator[Figure]:
    """Yield how soon a change by another client of Kafka is in an answer of the service; beside the broker's own."""
    ways: dict[str, dict[str, Any]] = {"by looks": {}, "by the log": {"controllers": [node.controller]}}
    for name, kafka in ways.items():
        with observing(world, node, **kafka) as (service, _, _):
            ours, reference = asyncio.run(latencies(node, service, changes))
        progress.print(
            f"  a change seen {name}, median ms: {ours[0]:.1f}; by the broker's own describe: {reference[0]:.1f}"
        )
        yield from percentiles(
            f"Kafka 4: change by others seen {name}", [ours], "the broker's own describe", [reference]
        )
