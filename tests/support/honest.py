"""Honest clients during an attack: one that polls an entity and one that writes another, each timed, and the memory."""

from __future__ import annotations

import http.client
import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.service import Service

BASE = "/v1/clusters/default"
_PAUSE_S = 0.005


@dataclass
class HonestTraffic:
    """The experience of honest clients; times in seconds."""

    reads: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    grown: int = 0
    """Maximum growth of the service's memory in bytes."""

    @property
    def longest_read(self) -> float:
        """The longest duration of a poll: an upper bound for the time that the event loop was blocked."""
        return max(self.reads)

    @property
    def longest_write(self) -> float:
        """The longest duration of a PUT."""
        return max(self.writes)

    def __str__(self) -> str:
        return (
            f"{len(self.reads)} reads, the longest {self.longest_read * 1000:.0f} ms; {len(self.writes)} writes, the"
            f" longest {self.longest_write * 1000:.0f} ms; {self.grown / 1e6:.0f} MB more; {self.failures[:3]}"
        )


@contextmanager
def honest(service: Service) -> Iterator[HonestTraffic]:
    """Poll and write for the duration of a block; neither may fail."""
    seen = HonestTraffic()
    over = threading.Event()
    body = {"quotas": {"producer_byte_rate": 1}}
    _once(service, "PUT", f"{BASE}/client-quotas/user=polled", body)
    process = psutil.Process(service.pid)
    before = process.memory_info().rss

    def poll(connection: http.client.HTTPConnection, _: int) -> int:
        seen.grown = max(seen.grown, process.memory_info().rss - before)
        return _send(connection, service, "GET", f"{BASE}/client-quotas/user=polled")

    def write(connection: http.client.HTTPConnection, number: int) -> int:
        body = {"quotas": {"producer_byte_rate": number}}
        return _send(connection, service, "PUT", f"{BASE}/client-quotas/user=written", body)

    threads = [
        threading.Thread(target=_repeat, args=(service, work, times, seen.failures, over), daemon=True)
        for work, times in ((poll, seen.reads), (write, seen.writes))
    ]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        over.set()
        for thread in threads:
            thread.join(120)
    assert not seen.failures, seen.failures[:5]
    assert seen.reads
    assert seen.writes


def _repeat(
    service: Service,
    work: Callable[[http.client.HTTPConnection, int], int],
    times: list[float],
    failures: list[str],
    over: threading.Event,
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
    number = 0
    while not over.is_set() or not number:
        number += 1
        began = time.monotonic()
        try:
            status = work(connection, number)
        except (OSError, http.client.HTTPException) as error:
            failures.append(repr(error))
            connection.close()
            continue
        times.append(time.monotonic() - began)
        if status != 200:
            failures.append(f"{work.__name__}: {status}")
        over.wait(_PAUSE_S)
    connection.close()


def _send(connection: http.client.HTTPConnection, service: Service, method: str, path: str, body: object = None) -> int:
    headers = {"Authorization": f"Bearer {service.token}", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def _once(service: Service, method: str, path: str, body: object) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
    assert _send(connection, service, method, path, body) == 200
    connection.close()
