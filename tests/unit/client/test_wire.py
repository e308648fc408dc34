"""Both clients on real connections: cut amid an answer, closed while idle, shared by threads."""

from __future__ import annotations

import json
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.client import Confplane, ConnectionFailedError
from tests.support.both_clients import KINDS, Kind, connected, done

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENDS: Final = ["reset", "closed", "reset without a body"]
_RESET: Final = struct.pack("ii", 1, 0)
"""Of SO_LINGER: a close that sends RST."""


class Served(ThreadingHTTPServer):
    """A service whose first answers end too soon."""

    daemon_threads = True

    def __init__(self, *ends: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ends = list(ends)
        self.keys: list[str | None] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that the handler cut."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Served

    def do_GET(self) -> None:
        served, body = self.server, json.dumps({"path": self.path}).encode()
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        served.keys.append(self.headers.get("Idempotency-Key"))
        end = served.ends.pop(0) if served.ends else ""
        if end != "reset without a body":
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:5] if end in _ENDS else body)
        if end:
            if end.startswith("reset"):
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self.connection.close()
            self.close_connection = True

    do_PUT = do_POST = do_GET  # noqa: N815 - names of the base

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base
        """Write no log."""


@contextmanager
def served(*ends: str) -> Iterator[Served]:
    """Run such a service."""
    with Served(*ends) as service:
        thread = threading.Thread(target=service.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield service
        finally:
            service.shutdown()
            thread.join()


@pytest.mark.parametrize("end", _ENDS)
@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_that_ends_too_soon_is_no_answer(kind: Kind, end: str) -> None:
    with served(end, end, end) as service:
        async with connected(kind, service.url) as client:
            with pytest.raises(ConnectionFailedError) as raised:
                await done(client.tokens.create({"principal": "User:alice"}))
            assert raised.value.may_be_applied
            await done(client.client_quotas.put("user=alice", {"producer_byte_rate": 1}))
            service.ends = [end]
            await done(client.client_quotas.get("user=alice"))
        without, first, again, *reads = service.keys
        assert without is None
        assert first == again is not None
        assert reads[-2:] == [None, None]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_connection_that_was_closed_while_idle_is_replaced_and_a_client_is_closed_twice(kind: Kind) -> None:
    with served("idle", "idle") as service:
        async with connected(kind, service.url) as client:
            for _ in range(3):
                await done(client.client_quotas.put("user=alice", {"producer_byte_rate": 1}))
            await done(client.close())
        assert len(set(service.keys)) == 3


def test_threads_share_a_client() -> None:
    with served() as service, Confplane(service.url, token=None, tries=1) as client, ThreadPoolExecutor(8) as threads:

        def read(number: int) -> Any:
            return client.client_quotas.get(f"user=u{number}").body

        found = list(threads.map(read, range(400)))
    assert found == [{"path": f"/v1/clusters/default/client-quotas/user=u{number}"} for number in range(400)]
