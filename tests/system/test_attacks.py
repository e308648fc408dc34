"""Attacks on the listener before any authentication, each beside an honest poller.

Bounds of time and memory are far from noise: without limits an attack takes seconds of the loop, or a gigabyte.
"""

from __future__ import annotations

import json
import re
import resource
import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import httpx
import psutil
import pytest

from tests.support.honest import honest
from tests.support.metrics import scrape
from tests.support.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Database


MIB: Final = 1024 * 1024
HEAD: Final = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
CHUNKED: Final = (
    b"PUT /v1/clusters/default/client-quotas/user=trailed HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer TOKEN\r\n"
    b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"
)
GET: Final = HEAD + b"\r\n"
HEAD_S: Final = 3
IDLE_S: Final = 8
DEADLINE_S: Final = 3
CAP: Final = 200


class SmallLimitService(Service):
    """A service whose process begins with a soft limit of 1,024 file descriptors."""

    def start(self, *, wait_ready: bool = True) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The one of this process is inherited by its children.
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        try:
            super().start(wait_ready=False)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if wait_ready:
            self.wait_ready()


@pytest.fixture(scope="module")
def service(
    module_chroot: str, module_database: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    settings = {
        "CONFPLANE_HTTP__HEAD_TIMEOUT_MS": str(HEAD_S * 1000),
        "CONFPLANE_HTTP__IDLE_TIMEOUT_MS": str(IDLE_S * 1000),
        "CONFPLANE_HTTP__REQUEST_DEADLINE_MS": str(DEADLINE_S * 1000),
    }
    directory = tmp_path_factory.mktemp("service")
    with SmallLimitService(
        directory, connect=module_chroot, dsn=module_database.service_dsn, settings=settings
    ) as running:
        yield running


@pytest.fixture(scope="module")
def small(module_chroot: str, module_database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a low cap of connections."""
    settings = {"CONFPLANE_HTTP__MAX_CONNECTIONS": str(CAP), "CONFPLANE_HTTP__HEAD_TIMEOUT_MS": "60000"}
    with Service(
        tmp_path_factory.mktemp("small"), connect=module_chroot, dsn=module_database.service_dsn, settings=settings
    ) as running:
        yield running


def connected(service: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.port), timeout=120)


def read_all(connection: socket.socket) -> bytes:
    """Read to the end of the connection; a reset ends it too."""
    received = b""
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def read_answer(connection: socket.socket) -> bytes:
    """Read one answer to its end, which may come in pieces."""
    received = b""
    while True:
        chunk = connection.recv(65536)
        assert chunk, received
        received += chunk
        head, end, body = received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if end and length and len(body) >= int(length[1]):
            return received


def statuses(received: bytes) -> list[int]:
    """Return the statuses of all answers that were received."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]


def problem(received: bytes) -> tuple[int, dict[str, object]]:
    """Return the status and the body of the one answer that was received, which must be a problem."""
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.lower(), received[:500]
    assert b"x-request-id: " in head.lower()
    return int(head.split()[1]), json.loads(body)


@contextmanager
def honest_poller(service: Service, *, longest_s: float = 2.0, more_mib: int = 150) -> Iterator[None]:
    """Honest clients beside an attack: each answer comes, none is late, and the process stays small."""
    with honest(service) as seen:
        yield
    assert seen.longest_read < longest_s, str(seen)
    assert seen.grown < more_mib * MIB, str(seen)


def send_until_refused(service: Service, head: bytes, piece: bytes, size: int) -> tuple[int, dict[str, object]]:
    """Send a head and then a piece again and again, as far as the service lets us; return the answer."""
    with connected(service) as connection:
        received: list[bytes] = []
        reader = threading.Thread(target=lambda: received.append(read_all(connection)))
        reader.start()
        try:
            connection.sendall(head.replace(b"TOKEN", service.token.encode()))
            for _ in range(size // len(piece)):
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        reader.join(120)
        return problem(received[0])


@pytest.mark.parametrize(
    ("head", "piece", "status"),
    [
        (HEAD, b"".join(b"X-%06d: y\r\n" % number for number in range(80_000)), 431),
        (HEAD + b"X-Long: ", b"a" * MIB, 431),
        (HEAD, b"N" * MIB, 431),
        (b"GET /livez?", b"a" * MIB, 414),
        (CHUNKED + b"0\r\n", b"".join(b"X-%06d: y\r\n" % number for number in range(80_000)), 431),
        (CHUNKED + b"0\r\nX-Long: ", b"a" * MIB, 431),
        (CHUNKED + b"1;extension=", b"a" * MIB, 431),
        (b"", b"\r\n" * (MIB // 2), 431),
    ],
    ids=["lines", "value", "name", "url", "trailers", "trailer", "extension", "empty-lines"],
)
def test_a_head_without_end_is_refused_at_its_bound(service: Service, head: bytes, piece: bytes, status: int) -> None:
    with honest_poller(service):
        found, body = send_until_refused(service, head, piece, 100 * MIB)
    assert (found, body["status"]) == (status, status)
    assert "65536 bytes" in str(body["detail"])


@pytest.mark.parametrize(("size", "status"), [(65_536, 200), (65_537, 431)])
@pytest.mark.parametrize("cut", [1, 40_000, 65_000])
def test_the_bound_of_a_head_is_exact(service: Service, size: int, status: int, cut: int) -> None:
    head = HEAD + b"Connection: close\r\nX-Long: "
    raw = head + b"a" * (size - len(head) - 4) + b"\r\n\r\n"
    with connected(service) as connection:
        connection.sendall(raw[:cut])
        time.sleep(0.2)
        connection.sendall(raw[cut:])
        assert int(read_all(connection).split()[1]) == status


def test_trailers_are_no_headers(service: Service) -> None:
    with connected(service) as connection:
        trailer = f"Authorization: Bearer {service.token}\r\n".encode()
        connection.sendall(
            CHUNKED.replace(b"Authorization", b"X-Other") + b"0\r\n" + trailer + b"Connection: close\r\n\r\n"
        )
        assert read_answer(connection).startswith(b"HTTP/1.1 401 ")


def test_a_slow_head_is_ended(service: Service) -> None:
    with honest_poller(service), connected(service) as connection:
        began = time.monotonic()
        received = b""
        connection.settimeout(0.5)
        for number in range(120):
            try:
                connection.sendall(HEAD[number % len(HEAD) : number % len(HEAD) + 1] if number < len(HEAD) else b"a")
                received = connection.recv(65536)
                break
            except TimeoutError:
                pass
        assert time.monotonic() - began >= HEAD_S - 1
        status, body = problem(received)
        assert (status, body["retriable"]) == (408, True)


def test_a_slow_body_is_ended_at_the_deadline(service: Service) -> None:
    head = (
        f"PUT /v1/clusters/default/client-quotas/user=slow HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.token}"
        "\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    )
    with honest_poller(service), connected(service) as connection:
        connection.sendall(head.encode())
        began = time.monotonic()
        status, body = problem(read_answer(connection))
        assert time.monotonic() - began >= DEADLINE_S - 1
        assert (status, body["retriable"]) == (408, True)
    # The connection of a client that was answered and still owes its body ends.
    with connected(service) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        received = read_all(connection)
        assert received.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nconnection: close\r\n" in received


def test_an_idle_connection_is_kept_for_its_time(service: Service) -> None:
    with connected(service) as connection:
        for _ in range(2):
            connection.sendall(GET)
            assert read_answer(connection).startswith(b"HTTP/1.1 200 ")
            time.sleep(HEAD_S + 2)
        connection.sendall(GET)
        assert read_answer(connection).startswith(b"HTTP/1.1 200 ")
        began = time.monotonic()
        assert connection.recv(1) == b""
        assert time.monotonic() - began >= IDLE_S - 1


def test_silent_connections_are_closed_and_the_soft_limit_of_descriptors_is_none(service: Service) -> None:
    soft, hard = psutil.Process(service.pid).rlimit(psutil.RLIMIT_NOFILE)
    assert soft == min(hard, 65_536)
    with honest_poller(service, longest_s=5.0), ExitStack() as stack:
        silent = [stack.enter_context(connected(service)) for _ in range(2_000)]
        found = scrape(service)
        assert found("http_connections", state="head") > 1_000
        assert found("http_connections_limit") == 12_000 or soft < 12_500
        assert httpx.get(f"{service.url}/livez", trust_env=False, timeout=60).status_code == 200
        for connection in silent:
            assert connection.recv(1) == b""
    assert scrape(service)("http_connections_closed_total", reason="head_timeout") >= 2_000


def test_at_the_cap_connections_without_a_head_go_first_and_the_probe_is_answered(small: Service) -> None:
    with ExitStack() as stack, httpx.Client(base_url=small.url, trust_env=False, timeout=60) as kept:
        assert kept.get("/livez").status_code == 200
        idle = next(iter(kept._transport._pool.connections))  # type: ignore[attr-defined]  # the one that must stay
        silent = [stack.enter_context(connected(small)) for _ in range(1_000)]
        for _ in range(20):
            assert httpx.get(f"{small.url}/livez", trust_env=False, timeout=60).status_code == 200
        assert kept.get("/livez").status_code == 200
        assert next(iter(kept._transport._pool.connections)) is idle  # type: ignore[attr-defined]
        assert silent[0].recv(1) == b""
        found = scrape(small)
        assert found.total("http_connections") <= CAP + 128 + 1
        assert found("http_connections_limit") == CAP
        assert found("http_connections_closed_total", reason="cap") >= 1_000 - CAP - 128


def test_at_the_cap_of_concurrent_requests_probes_are_answered_and_other_requests_are_refused(small: Service) -> None:
    head = (
        f"PUT /v1/clusters/default/client-quotas/user=slow HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {small.token}"
        "\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    )
    with ExitStack() as stack:
        for _ in range(CAP):
            stack.enter_context(connected(small)).sendall(head.encode())
        deadline = time.monotonic() + 60
        while True:
            answer = httpx.get(f"{small.url}/v1/clusters", trust_env=False, timeout=60)
            if answer.status_code == 503:
                break
            assert time.monotonic() < deadline
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["retry-after"]
        assert httpx.get(f"{small.url}/livez", trust_env=False, timeout=60).status_code == 200


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_an_upgrade_is_not_taken_and_the_request_answered(service: Service, protocol: str) -> None:
    body = b'{"quotas":{"producer_byte_rate":7}}'
    raw = (
        f"PUT /v1/clusters/default/client-quotas/user=upgrade-{protocol} HTTP/1.1\r\nHost: x\r\n"
        f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Authorization: Bearer {service.token}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    with connected(service) as connection:
        for piece in (raw, raw[:-5]):
            connection.sendall(piece)
            if piece is not raw:
                time.sleep(0.1)
                connection.sendall(raw[-5:])
            assert read_answer(connection).startswith(b"HTTP/1.1 200 "), piece
        # The connection is as good as any.
        connection.sendall(GET)
        assert read_answer(connection).startswith(b"HTTP/1.1 200 ")


def test_pipelined_requests_are_answered_in_order_and_only_so_many(service: Service) -> None:
    with connected(service) as connection:
        close = GET.replace(b"Host", b"Connection: close\r\nHost")
        connection.sendall(GET * 50 + b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n" + close)
        received = read_all(connection)
        assert statuses(received) == [200] * 50 + [401, 200]
    # What is refused waits for the answers before.
    with connected(service) as connection:
        connection.sendall(GET + b"no http\r\n\r\n")
        received = read_all(connection)
        assert statuses(received) == [200, 400]
    with honest_poller(service), ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(connected(service))
            connection.sendall(GET * 7_000)
            received = read_all(connection)
            assert statuses(received)[-1] == 400
            assert set(statuses(received)[:-1]) == {200}


def test_nothing_of_it_fills_the_log(service: Service) -> None:
    text = service.log.read_text()
    assert "Traceback" not in text
    assert len(text.splitlines()) < 200
    assert "connections closed in the last" in text
