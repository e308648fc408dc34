"""Thousands of hostile requests: forged identities, other callers' Idempotency-Keys, odd spellings, foreign origins."""

from __future__ import annotations

import itertools
import json
import random
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from confplane.security import api_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

BASE: Final = "/v1/clusters/default"
HIDDEN: Final = f"{BASE}/client-quotas/user=alice"
KEY: Final = "the-admins-key"
EVIL: Final = "https://evil.example"
CONNECTIONS: Final = 8
_ALTER: Final = json.dumps(
    {
        "entries": [
            {
                "entity": [{"entityType": "user", "entityName": "alice"}],
                "ops": [{"key": "producer_byte_rate", "value": 4_711_815}],
            }
        ]
    }
)
"""The body of the admin's request under :data:`KEY`."""


@dataclass
class Storm:
    """The answers to hostile requests."""

    statuses: Counter[int] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)
    """Answers with a planted secret, a replay for somebody else, or a permission for a foreign origin."""
    faults: list[str] = field(default_factory=list)
    """Answers with a status of 500 or above."""


def blow(port: int, requests: Iterable[bytes], secrets: Iterable[bytes], *, pause_s: float = 0) -> Storm:
    """Send requests over a few connections; return a summary of their answers.

    Args:
        port: The port of the service on loopback.
        requests: Whole HTTP/1.1 requests.
        secrets: Texts that must not appear in any answer.
        pause_s: Seconds between two requests of a connection.
    """
    storm, planted, left, lock = Storm(), tuple(secrets), iter(requests), threading.Lock()

    def send() -> None:
        connection = socket.create_connection(("127.0.0.1", port), timeout=120)
        while True:
            with lock:
                request = next(left, None)
            time.sleep(pause_s)
            if request is None:
                connection.close()
                return
            try:
                connection.sendall(request)
                head, body = _answer(connection)
            except OSError:
                head, body = b"", b""
            if not head:  # the listener closes a connection over a malformed request
                connection.close()
                connection = socket.create_connection(("127.0.0.1", port), timeout=120)
                continue
            _check(storm, request, head, body, planted)
            if b"connection: close" in head.lower():
                connection.close()
                connection = socket.create_connection(("127.0.0.1", port), timeout=120)

    threads = [threading.Thread(target=send, daemon=True) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    return storm


def _answer(connection: socket.socket) -> tuple[bytes, bytes]:
    received = b""
    while b"\r\n\r\n" not in received:
        chunk = connection.recv(65536)
        if not chunk:
            return b"", b""
        received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    [length] = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")] or [b"0"]
    while len(body) < int(length):
        body += connection.recv(65536)
    return head, body


def _check(storm: Storm, request: bytes, head: bytes, body: bytes, planted: Iterable[bytes]) -> None:
    status = int(head[9:12])
    storm.statuses[status] += 1
    shown = f"{request[:300]!r} -> {head[:300]!r} {body[:300]!r}"
    if status >= 500:
        storm.faults.append(shown)
    low = head.lower()
    foreign = b"access-control-allow-origin" in low and EVIL.encode() in request
    if foreign or b"idempotency-replayed" in low or any(secret in head or secret in body for secret in planted):
        storm.leaks.append(shown)


def raw(method: str, target: str, headers: Mapping[str, str], body: str = "") -> bytes:
    """Return one request."""
    lines = [f"{method} {target} HTTP/1.1", "Host: x", *(f"{name}: {value}" for name, value in headers.items())]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body.encode())}"]
    return "\r\n".join([*lines, "", body]).encode("utf-8", "surrogateescape")


def admins_request(token: str) -> bytes:
    """Return the request that the admin makes once under :data:`KEY`."""
    return raw(
        "POST", f"{BASE}/client-quotas:alter", {"Authorization": f"Bearer {token}", "Idempotency-Key": KEY}, _ALTER
    )


def requests(number: int, forgeries: Iterable[bytes], outsider: str, *, seed: int) -> Iterator[bytes]:
    """Yield hostile requests, in an order of the seed.

    Args:
        number: How many.
        forgeries: Forged access tokens.
        outsider: The token of a caller without any grant.
        seed: Chooses the order.
    """
    plain = f"Bearer {outsider}"
    made = list(_identities(forgeries)) + list(_spellings(plain)) + list(_keys(plain)) + list(_origins(plain))
    random.Random(seed).shuffle(made)  # noqa: S311 - an order, no secret
    yield from itertools.islice(itertools.cycle(made), number)


def _identities(forgeries: Iterable[bytes]) -> Iterator[bytes]:
    tokens = [token.decode("latin-1") for token in forgeries]
    others = [api_tokens.make() for _ in range(20)]
    odd = ["", "Bearer", "Bearer ", "Basic YWRtaW46YWRtaW4=", "Bearer a b", "bearer\tx", "Bearer " + "x" * 60_000]
    odd += ["Bearer ..", "Bearer e30.e30.e30", "Bearer confplane_", "Bearer User:admin", "Negotiate abc", "Bearer *"]
    for authorization in [f"Bearer {token}" for token in [*tokens, *others]] + odd:
        given = {"Authorization": authorization}
        yield raw("GET", HIDDEN, given)
        yield raw("PUT", HIDDEN, given, '{"quotas":{"producer_byte_rate":1}}')
    for header in ("X-Forwarded-User", "X-Remote-User", "Client-Cert", "Ssl-Client-Cert", "X-Forwarded-Client-Cert"):
        yield raw("GET", HIDDEN, {header: "User:admin"})
    yield (
        b"GET "
        + HIDDEN.encode()
        + b" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n"
    )


def _spellings(authorization: str) -> Iterator[bytes]:
    given = {"Authorization": authorization}
    hidden = ("user=alice", "user=%61lice", "user~3Dalice", "user=~61lice", "user=alice%2Cclient-id=x", "user%3Dalice")
    odd = ("user=alice/", "user=alice/effective", "user=alice%00", "user=ALICE", "user=alice;x=1", "./user=alice")
    more = ("user", "user=", "user=bob/../user=alice", "user=bob%2F..%2Fuser=alice", "%2e%2e/client-quotas/user=alice")
    for name in (*hidden, *odd, *more, "user=" + "a" * 5000, "user=%F0%9F%98%80", "user=~F0~9F~98~80", "topic=t"):
        for method in ("GET", "PUT", "DELETE"):
            body = '{"quotas":{"producer_byte_rate":1}}' if method == "PUT" else ""
            yield raw(method, f"{BASE}/client-quotas/{name}", given, body)
    for target in (
        *("//v1/clusters/default/client-quotas/user=alice", "/V1/clusters/default/client-quotas/user=alice"),
        *(
            f"{BASE}/client-quotas?user=alice",
            f"{BASE}/client-quotas?id=user%3Dalice",
            f"{BASE}/client-quotas?pageSize=9",
        ),
        *(f"{BASE}/audit?entity=user%3Dalice", f"{BASE}/audit", f"{BASE}/registrations", f"{BASE}/rollups/drift"),
        *("/v1/tokens", "/v1/grants", "/v1/audit", f"{BASE}/access?principal=User:admin", "/v1/clusters/other/audit"),
        *(f"{BASE}/configs/broker=0", f"{BASE}/configs/topic=secret/effective", f"{BASE}/global-config"),
        *("/v1/clusters/default", "/v1/clusters", "/readyz", "/metrics", "/v1/whoami"),
    ):
        yield raw("GET", target, given)
    for filtered in ('{"components":[]}', '{"components":[{"entityType":"user","matchType":"any"}],"strict":false}'):
        yield raw("POST", f"{BASE}/client-quotas:describe", given, filtered)
    named = '{"components":[{"entityType":"user","matchType":"exact","match":"alice"}],"resolveEntity":true}'
    yield raw("POST", f"{BASE}/client-configs:describe", given, named)
    for user in (
        "User:alice",
        "User:admin",
        "alice",
        "User:",
        "User:*",
        "Group:x",
        "User:\u0430lice",
        "User:" + "x" * 9000,
    ):
        yield raw("GET", HIDDEN, {**given, "Confplane-On-Behalf-Of": user})


def _keys(authorization: str) -> Iterator[bytes]:
    for key in (KEY, KEY.upper(), f"{KEY} ", f'"{KEY}"', "x" * 255, "x" * 256, "\u00e9"):
        given = {"Authorization": authorization, "Idempotency-Key": key}
        yield raw("POST", f"{BASE}/client-quotas:alter", given, _ALTER)
        yield raw("POST", f"{BASE}/client-quotas:alter?validateOnly=true", given, _ALTER)
        yield raw("PUT", HIDDEN, given, '{"quotas":{"producer_byte_rate":4711815}}')


def _origins(authorization: str) -> Iterator[bytes]:
    for origin in (
        EVIL,
        "null",
        "*",
        f"{EVIL}:443",
        f"https://portal.example.{EVIL[8:]}",
        "https://portal.example@evil",
    ):
        given = {"Origin": origin, "X-Evil": EVIL}
        yield raw("GET", HIDDEN, {**given, "Authorization": authorization})
        for method in ("PUT", "DELETE", "TRACE", "*"):
            asked = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": "authorization,x-evil"}
            yield raw("OPTIONS", HIDDEN, {**given, **asked})
