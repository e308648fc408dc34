"""Much asked at once, by anybody: an honest poller and an honest PUT beside each attack go on as if there were none.

Bounds of time are many times what a quiet machine needs, and far below what was met before there were limits.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest

from confplane.api.routing.strict_json import MAX_ITEMS
from tests.contract.api import publish_and_configure
from tests.support.honest import BASE, honest
from tests.support.service import Service
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Database

CONNECTIONS = 64
MAX_BODY = 8 * 1024 * 1024
ATTACK_CPU_S = 0.2
"""The processor time of the service that each attack takes, however busy the machine is."""


@pytest.fixture(scope="module")
def service_options(module_database: Database) -> dict[str, Any]:
    return publish_and_configure(module_database)


@pytest.fixture(scope="module")
def service_class() -> type[Service]:
    """A process: its processor time is measured, and the clients must not take its turns."""
    return Service


@contextlib.contextmanager
def flood(service: Service, path: str) -> Iterator[list[int]]:
    """Ask for one thing over many connections as fast as it comes; yields the number of answers of each."""
    over = threading.Event()
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    answers = [0] * CONNECTIONS

    def ask(index: int) -> None:
        with socket.create_connection(("127.0.0.1", service.port), timeout=120) as connection:
            reader = connection.makefile("rb")
            while not over.is_set():
                connection.sendall(request)
                length = 0
                while (line := reader.readline()) != b"\r\n":
                    assert line
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                reader.read(length)
                answers[index] += 1

    threads = [threading.Thread(target=ask, args=(index,), daemon=True) for index in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        over.set()
        for thread in threads:
            thread.join(120)


def flooded(service: Service, path: str) -> float:
    """Flood one path beside honest clients, and return the answers for each second of the service's processor time."""
    assert httpx.get(f"{service.url}{path}", trust_env=False, timeout=120).status_code == 200
    process = psutil.Process(service.pid)

    def used() -> float:
        times = process.cpu_times()
        return times.user + times.system

    with honest(service) as seen, flood(service, path) as answers:
        before, sent = used(), sum(answers)
        # None fails, so none takes as long as the deadline; and nobody is left out.
        wait_for(lambda: used() - before > ATTACK_CPU_S and len(seen.writes) > 1 and min(answers) > 0)
        return (sum(answers) - sent) / (used() - before)


def test_what_is_open_to_all_starves_nobody(service: Service) -> None:
    bare = flooded(service, "/livez")
    heavier = ("/metrics", "/openapi.json", "/readyz", "/docs", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css")
    found = {path: flooded(service, path) for path in heavier}
    bare = min(bare, flooded(service, "/livez"))
    # Each answer costs the service some few times the bare minimum; an answer that is rendered for each request takes 20
    # to 150 times as much.
    assert all(answers > bare / 8 for answers in found.values()), (bare, found)


BODIES = {
    "lists": (b'{"entries":[', b"[],", b"]}"),
    "objects": (b'{"entries":[', b"{},", b"]}"),
    "numbers": (b'{"entries":[', b"0,", b"]}"),
    "members": (b'{"entries":[{"entity":[],"ops":[', b'{"key":0},', b"]}]}"),
    "one-level-up": (b"[", b"[],", b"]"),
    "status": (b'{"quotas":{"producer_byte_rate":1},"status":{"a":[', b"[],", b"]}}"),
}
"""By name, a body of the largest size that is made of the smallest items: its head, an item, its tail."""


@pytest.mark.parametrize("name", BODIES)
def test_a_body_of_many_small_items_holds_nobody_up(service: Service, name: str) -> None:
    head, item, tail = BODIES[name]
    body = head + item * ((MAX_BODY - len(head) - len(tail)) // len(item) - 1) + item.rstrip(b",") + tail
    path = f"{BASE}/client-quotas/user=many" if name == "status" else f"{BASE}/client-quotas:alter"
    headers = {"Authorization": f"Bearer {service.token}", "Content-Type": "application/json"}
    with honest(service) as seen:
        for _ in range(3):
            answer = httpx.request(
                "PUT" if name == "status" else "POST",
                f"{service.url}{path}",
                content=body,
                headers=headers,
                trust_env=False,
                timeout=120,
            )
            assert answer.status_code == 413, answer.text[:500]
            assert f"at most {MAX_ITEMS}" in answer.json()["detail"]
    assert seen.longest_read < 2, str(seen)
    assert seen.grown < 100_000_000, str(seen)


@pytest.mark.parametrize("validate_only", [True, False])
def test_ten_thousand_entries_are_accepted_alongside_other_requests(service: Service, *, validate_only: bool) -> None:
    ops = [{"key": key, "value": 5} for key in ("producer_byte_rate", "consumer_byte_rate", "request_percentage")]
    entries = [{"entity": [{"entityType": "user", "entityName": f"many{n}"}], "ops": ops} for n in range(10_000)]
    with honest(service) as seen:
        began = time.monotonic()
        answer = httpx.post(
            f"{service.url}{BASE}/client-quotas:alter",
            json={"entries": entries, "validateOnly": validate_only},
            headers={"Authorization": f"Bearer {service.token}"},
            trust_env=False,
            timeout=120,
        )
        took = time.monotonic() - began
    # What the deadline left no time for was not begun, and its caller is told so.
    assert answer.status_code in {200, 207, 503}, answer.text[:500]
    found = answer.json()["entries"]
    assert len(found) == 10_000
    left = [each for each in found if each["errorCode"]]
    assert all(each["retriable"] and each["outcome"] in {"not_applied", "unknown"} for each in left), left[:1]
    assert seen.longest_read < 2, str(seen)
    assert took < 60, took
