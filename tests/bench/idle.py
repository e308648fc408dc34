"""The costs of an idle process: its share of a core, and its requests to Postgres and ZooKeeper."""

from __future__ import annotations

import json
import secrets
import socket
import time
from typing import TYPE_CHECKING

import psutil
import psycopg

from tests.bench.rounds import Figure, progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.world import World


def measure(world: World, *, clusters: int, seconds: float) -> Iterator[Figure]:
    """Measure one process with one cluster, and with many on the same ZooKeeper and Postgres."""
    key = world.directory / "webhooks-key"
    key.write_text(secrets.token_urlsafe(32))
    for count in sorted({1, clusters}):
        dsn = world.database()
        named = {f"c{number}": {"zookeeper": world.chroot(), "session_timeout_ms": 10_000} for number in range(count)}
        settings = {"CONFPLANE_CLUSTERS": json.dumps(named), "CONFPLANE_WEBHOOKS__KEY_FILE": str(key)}
        with world.service(dsn=dsn, settings=settings) as service, progress.status(f"  {count} idle clusters"):
            time.sleep(seconds)  # for the recorder's first contacts and the first sweeps
            process = psutil.Process(service.pid)
            before, begun = _totals(world, process, dsn), time.perf_counter()
            time.sleep(seconds)
            passed = time.perf_counter() - begun
            cpu, statements, packets = (
                (now - was) / passed for now, was in zip(_totals(world, process, dsn), before, strict=True)
            )
        name = "One idle cluster" if count == 1 else f"{count} idle clusters"
        yield Figure(f"{name}: share of a core", "%", [100 * cpu], decimals=1)
        yield Figure(f"{name}: transactions of Postgres", "/s", [statements], decimals=1)
        yield Figure(f"{name}: requests to ZooKeeper", "/s", [packets], decimals=1)


def _totals(world: World, process: psutil.Process, dsn: str) -> tuple[float, int, int]:
    """Return the seconds of CPU time, the transactions in Postgres, and the requests to ZooKeeper so far."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    host, _, port = world.zookeeper.hosts.rpartition(":")
    with socket.create_connection((host, int(port))) as monitor, monitor.makefile() as answer:
        monitor.sendall(b"mntr")
        found = dict(line.rstrip("\n").split("\t", 1) for line in answer)
    return sum(process.cpu_times()[:2]), row[0], int(found["zk_packets_received"])
