"""Much asked at once, by anybody: an honest poller and an honest PUT beside each attack go on as if there were none.

Bounds of time are many times what a quiet machine needs, and far below what was met before there were limits.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

import httpx

from tests.support.honest import honest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.service import Service

CONNECTIONS = 64
ATTACK_S = 2.0


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


def flooded(service: Service, path: str) -> int:
    """Flood one path beside honest clients, and return how often it was answered."""
    assert httpx.get(f"{service.url}{path}", trust_env=False, timeout=120).status_code == 200
    with honest(service) as seen, flood(service, path) as answers:
        time.sleep(ATTACK_S)
    # None fails, so none took as long as the deadline.
    assert len(seen.writes) > 1, str(seen)
    assert min(answers) > 0
    return sum(answers)


def test_what_is_open_to_all_starves_nobody(service: Service) -> None:
    bare = flooded(service, "/livez")
    heavier = ("/metrics", "/openapi.json", "/readyz", "/docs", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css")
    found = {path: flooded(service, path) for path in heavier}
    bare = min(bare, flooded(service, "/livez"))
    # Each answer costs the loop some few times the bare minimum; what is rendered for each took 15 to 100 times that.
    assert all(answers > bare / 8 for answers in found.values()), (bare, found)
