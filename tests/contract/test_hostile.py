"""Input that no schema describes: bytes on the wire, odd headers, endless queries, deep and huge bodies.

Whatever is sent, the answer is an error of the client's, as a problem, and the service goes on.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import string
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx
import pytest

from tests.contract.api import PROBLEM_MEMBERS
from tests.support.metrics import scrape
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from tests.support.service import Service

BASE = "/v1/clusters/default"
MAX_BODY = 8 * 1024 * 1024


def _exchange(service: Service, raw: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send raw bytes and read one answer to its end: status, headers by lower-case name, body."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S) as connection:
        connection.sendall(raw)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, body


def _request(
    service: Service, method: str, target: str, *headers: bytes, body: bytes | None = None
) -> tuple[int, dict[str, str], bytes]:
    lines = [
        f"{method} {target} HTTP/1.1".encode("latin-1"),
        b"Host: localhost",
        b"Connection: close",
        f"Authorization: Bearer {service.token}".encode(),
        *headers,
    ]
    if body is not None:
        lines += [b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
    return _exchange(service, b"\r\n".join(lines) + b"\r\n\r\n" + (body or b""))


def _refused(answer: tuple[int, dict[str, str], bytes]) -> int:
    """Check that an answer is a problem of the client's, and return its status."""
    status, headers, body = answer
    assert 400 <= status < 500, (status, body[:500])
    assert headers["content-type"] == "application/problem+json", body[:500]
    problem = json.loads(body)
    assert problem.keys() >= PROBLEM_MEMBERS
    assert problem["status"] == status
    return status


@pytest.mark.parametrize(
    "target",
    [
        "/%00",
        "/v1/clusters/%00/client-quotas",
        "/v1/clusters/%FF/client-quotas",
        "/v1/clusters/../../etc/passwd",
        "/v1//clusters",
        "/v1/clusters/",
        f"{BASE}/client-quotas/",
        f"{BASE}/client-quotas/user=%00",
        f"{BASE}/client-quotas/user=%FF",
        f"{BASE}/client-quotas/user=%C3%28",
        f"{BASE}/client-quotas/user=~00",
        f"{BASE}/client-quotas/user=~ED~A0~80",
        f"{BASE}/client-quotas/user=..",
        f"{BASE}/client-quotas/user=a/../user=b",
        f"{BASE}/client-quotas/user=a%2Feffective",
        f"{BASE}/client-quotas/user=a;x=y",
        f"{BASE}/client-quotas/user=a%",
        f"{BASE}/client-quotas/user=%zz",
        f"{BASE}/client-quotas/{'a' * 60_000}",
        f"{BASE}/client-quotas/{'user=a,' * 5_000}",
        f"{BASE}/client-quotas?user=%FF",
        f"{BASE}/client-quotas?user=%00",
        f"{BASE}/client-quotas?user=a&user=b",
        f"{BASE}/client-quotas?{'x=1&' * 10_000}",
        f"{BASE}/client-quotas?pageSize={'9' * 5_000}",
        f"{BASE}/client-quotas?pageSize=1e3",
        f"{BASE}/client-quotas?pageSize=-0",
        f"{BASE}/client-quotas?pageToken={'A' * 8_000}",
        f"{BASE}/client-quotas?pageToken=%F0%9F%98%80",
        f"{BASE}/client-quotas?pageToken=____",
        f"{BASE}/client-quotas?id={'user=' + 'a' * 50_000 + '%2F'}",
        f"{BASE}/client-quotas?consistency=Strong",
        f"{BASE}/client-quotas/user=a?view=%C3%A9",
        f"{BASE}/client-quotas/user=a?reason={'r' * 1_025}",
        f"{BASE}/audit?since=0000-01-01T00:00:00Z",
        f"{BASE}/audit?since=9999-12-31T23:59:59-23:59",
        f"{BASE}/audit?until=0001-01-01T00:00:00%2B23:59",
        f"{BASE}/audit?until=253402300800",
        f"{BASE}/audit?pageToken={'f' * 36}",
        f"{BASE}/audit/{'0' * 32}",
        f"{BASE}/audit/%7B00000000-0000-0000-0000-000000000000%7D",
        f"{BASE}/registrations?id=user%3Da%00",
        f"{BASE}/nothing",
        "/v1/clusters/default%2Fclient-quotas",
        "/v1/clusters/default%2fclient-quotas",
        "/v1/clusters/default%2Fclient-quotas%2Fuser=a",
        "/v1/clusters%2Fdefault/client-quotas",
        "/v1%2Fclusters",
        "/v1%2Fwhoami",
        f"{BASE}%2Faudit",
        f"{BASE}/client-quotas%2Fuser=a",
        f"{BASE}/client-quotas%2fuser=a/effective",
    ],
    ids=lambda target: target[:60],
)
def test_odd_targets(service: Service, target: str) -> None:
    assert _refused(_request(service, "GET", target)) in {400, 404}


@pytest.mark.parametrize(
    "target",
    [
        f"{BASE}/audit?key=%F0%9F%98%80",
        f"{BASE}/client-quotas?user=%F0%9F%98%80%2F%0A",
        f"{BASE}/audit?since=0001-01-01T00:00:00Z",
        f"{BASE}/audit?principal=%EF%BF%BF&until=9999-12-31T23:59:59.999999999Z",
    ],
)
def test_odd_targets_that_are_sound(service: Service, target: str) -> None:
    status, _, body = _request(service, "GET", target)
    assert status == 200, body


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/v1/clusters/default%2Fclient-quotas:alter"),
        ("POST", "/v1/clusters/default%2Fclient-quotas"),
        ("PUT", f"{BASE}%2Fclient-quotas%2Fuser=slash"),
        ("PUT", f"{BASE}%2Fclient-quotas/user=slash"),
        ("DELETE", f"{BASE}/client-quotas%2Fuser=slash"),
        ("POST", f"{BASE}%2Fregistrations:clear"),
    ],
)
def test_an_encoded_slash_reaches_no_operation(service: Service, method: str, target: str) -> None:
    body = b'{"quotas":{"producer_byte_rate":1}}'
    assert _refused(_request(service, method, target, body=body)) == 404
    assert _request(service, "GET", f"{BASE}/client-quotas/user=slash")[0] == 404


@pytest.mark.parametrize("facet", ["client-quotas", "client-configs"])
@pytest.mark.parametrize("header", ['If-Match: "a"', "If-Match: *", "If-None-Match: *", 'if-none-match: "a"'])
def test_conditional_headers_are_not_ignored(service: Service, facet: str, header: str) -> None:
    answer = _request(service, "POST", f"{BASE}/{facet}:alter", header.encode(), body=b'{"entries":[]}')
    assert _refused(answer) == 400
    problem = json.loads(answer[2])
    assert "`etag`" in problem["detail"]
    assert problem["errors"][0]["pointer"] == header.partition(":")[0].title()
    assert _request(service, "POST", f"{BASE}/{facet}:alter", body=b'{"entries":[]}')[0] == 200
    assert _request(service, "POST", f"{BASE}/{facet}:describe", header.encode(), body=b'{"components":[]}')[0] == 200


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PATCH", "TRACE", "PROPFIND", "POST"])
def test_methods_that_are_not_there(service: Service, method: str) -> None:
    status, headers, body = _request(service, method, f"{BASE}/audit")
    assert status == 405
    assert headers["allow"] == "get"
    if method != "HEAD":
        assert _refused((status, headers, body)) == 405
        assert json.loads(body)["detail"] == "This path takes GET and no other method"


@pytest.mark.parametrize(
    ("header", "statuses"),
    [
        (b"If-Match: " + b'"a",' * 3_000 + b'"a"', {404, 412, 200}),
        (b"If-Match: " + b'"' * 5_000, {400}),
        (b"If-None-Match: \xff", {400}),
        (b"If-None-Match: ,", {400}),
        (b"X-Request-Id: \xe9 spaces and <tags>", {200}),
        (b"X-Request-Id: " + b"a" * 10_000, {200}),
        (b"Confplane-Min-Revision: -1", {400}),
        (b"Confplane-Min-Revision: 1e3", {400}),
        (b"Confplane-Min-Revision: \xb2", {400}),
        (b"Confplane-Min-Revision: " + b"9" * 5_000, {400}),
        (b"Confplane-Wait-Applied: -1", {400}),
        (b"Confplane-Wait-Applied: " + b"9" * 5_000, {400}),
        (b"Idempotency-Key: k", {200}),
        (b"Content-Length: 0", {200}),
        (b"Accept: \xff/\xff;q=x", {200}),
        (b"Cookie: " + b"a=b; " * 3_000, {200}),
    ],
    ids=lambda value: value[:40].decode("latin-1") if isinstance(value, bytes) else None,
)
def test_odd_headers(service: Service, header: bytes, statuses: set[int]) -> None:
    body = b'{"quotas":{"producer_byte_rate":1}}'
    assert _request(service, "PUT", f"{BASE}/client-quotas/user=headers", body=body)[0] == 200
    for target in (f"{BASE}/client-quotas/user=headers", f"{BASE}/client-quotas"):
        answer = _request(service, "GET", target, header)
        if answer[0] >= 400:
            _refused(answer)
        if target.endswith("headers") and not header.startswith(b"If-Match"):
            assert answer[0] in statuses, answer
        assert len(answer[1]["x-request-id"]) <= 128


@pytest.mark.parametrize(
    "authorization",
    [b"", b"Bearer", b"Bearer ", b"Basic YTpi", b"bearer \xff", b"Bearer " + b"x" * 20_000, b"Bearer a b"],
)
def test_odd_tokens(service: Service, authorization: bytes) -> None:
    head = b"GET /v1/whoami HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    assert _refused(_exchange(service, head + b"Authorization: " + authorization + b"\r\n\r\n")) == 401
    assert _refused(_exchange(service, head + b"\r\n")) == 401


BODIES = {
    "deep-lists": b"[" * 100_000,
    "deep-objects": b'{"a":' * 100_000,
    "deep-within": b'{"entries":' + b"[" * 40 + b"]" * 40 + b"}",
    "huge-integer": b'{"entries":' + b"9" * 1_000_000 + b"}",
    "huge-exponent": b'{"entries":1e' + b"9" * 10_000 + b"}",
    "bom": b'\xef\xbb\xbf{"entries":[]}',
    "utf-16": '{"entries":[]}'.encode("utf-16"),
    "latin-1": b'{"entries":["\xe9"]}',
    "unknown-member": b'{"entries":[],"\xf0\x9f\x98\x80":1}',
    "long-name": b'{"entries":[],"' + b"x" * 100_000 + b'":1}',
    "many-entries": b'{"entries":[' + b"0," * 200_000 + b"0]}",
    "above-the-most-entries": b'{"entries":[' + b'{"entity":[],"ops":[]},' * 10_000 + b'{"entity":[],"ops":[]}]}',
    "long-entity-name": b'{"entries":[{"entity":[{"entityType":"user","entityName":"'
    + b"x" * 1_000_000
    + b'"}],"ops":[{"key":"producer_byte_rate","value":1,"remove":false}]}]}',
    "long-type": b'{"entries":[{"entity":[{"entityType":"' + b"x" * 100_000 + b'","entityName":"a"}],"ops":[]}]}',
}


@pytest.mark.parametrize("facet", ["client-quotas", "client-configs"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_odd_bodies(service: Service, facet: str, body: bytes) -> None:
    assert _refused(_request(service, "POST", f"{BASE}/{facet}:alter", body=body)) in {400, 413}


UNREAD = {
    "too-large": ("/client-quotas:alter", {}, 413),
    "too-large-put": ("/client-quotas/user=a", {}, 413),
    "unknown-token": ("/client-quotas:alter", {"Authorization": "Bearer x"}, 401),
    "no-json": ("/client-quotas:alter", {"Content-Type": "text/plain"}, 415),
    "nowhere": ("/nothing", {}, 404),
    "encoded-slash": ("%2Fclient-quotas", {}, 404),
    "no-such-method": ("/audit", {}, 405),
}
"""Requests that are refused before all of their body is read."""


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
@pytest.mark.parametrize(("path", "headers", "status"), UNREAD.values(), ids=UNREAD.keys())
def test_a_refusal_reaches_a_client_that_is_still_sending(
    service: Service, path: str, headers: dict[str, str], status: int, connection: str
) -> None:
    body = b"x" * (4 * MAX_BODY)  # far more than the buffers of both sockets take
    sent = {"Authorization": f"Bearer {service.token}", "Content-Type": "application/json", **headers}
    method = "PUT" if path.endswith("user=a") else "POST"
    # A client that sends all of a body before it reads, as most do.
    plain = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
    with contextlib.closing(plain):
        for _ in range(1 if connection == "close" else 2):
            plain.request(method, BASE + path, body, {**sent, "Connection": connection})
            answer = plain.getresponse()
            assert answer.status == status
            assert json.loads(answer.read())["status"] == status
    pieces = (body[start : start + 65536] for start in range(0, len(body), 65536))
    for content in (body, pieces):
        response = httpx.request(
            method,
            f"{service.url}{BASE}{path}",
            content=content,
            headers={**sent, "Connection": connection},
            trust_env=False,
            timeout=120,
        )
        assert response.status_code == status


def test_a_refused_client_is_not_asked_for_its_body(service: Service) -> None:
    head = f"POST {BASE}/client-quotas:alter HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port), timeout=120) as connection:
        connection.sendall(head.encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_a_body_that_is_declared_too_large_is_not_asked_for(service: Service) -> None:
    head = (
        f"PUT {BASE}/client-quotas/user=a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.token}\r\n"
        f"Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: {9 * 1024 * 1024}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", service.port), timeout=120) as connection:
        connection.sendall(head.encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")


def _chunked(token: str) -> bytes:
    return (
        f"POST {BASE}/client-quotas:alter HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode()


def _closed(service: Service, reason: str) -> float:
    return scrape(service)("http_connections_closed_total", reason=reason)


def test_a_body_of_many_small_chunks_is_refused_and_one_of_larger_chunks_is_read(service: Service) -> None:
    before = _closed(service, "small_chunks")
    answer = _exchange(service, _chunked(service.token) + b"1\r\n \r\n" * 2_000)
    assert _refused(answer) == 413
    assert "in larger chunks" in json.loads(answer[2])["detail"]
    assert _closed(service, "small_chunks") == before + 1
    body = json.dumps({"entries": []}).encode()
    pieces = [b"1\r\n \r\n" * 1_000, b"40\r\n" + b" " * 64 + b"\r\n", b"%x\r\n%s\r\n" % (len(body), body), b"0\r\n\r\n"]
    raw = _chunked(service.token).replace(b"Host", b"Connection: close\r\nHost") + b"".join(
        [pieces[0], pieces[1] * 2_000, *pieces[2:]]
    )
    assert _exchange(service, raw)[0] in {200, 400}


def test_small_chunks_of_a_caller_without_a_valid_token_are_not_read(service: Service) -> None:
    answer = _exchange(service, _chunked("unknown") + b"1\r\n \r\n" * 2_000)
    assert _refused(answer) in {401, 413}


@pytest.mark.parametrize(("path", "headers", "status"), UNREAD.values(), ids=UNREAD.keys())
def test_a_refusal_does_not_wait_for_the_body_and_is_the_last_answer(
    service: Service, path: str, headers: dict[str, str], status: int
) -> None:
    sent = {"Authorization": f"Bearer {service.token}", "Content-Type": "application/json", **headers}
    length = f"Content-Length: {4 * MAX_BODY}" if status == 413 else "Transfer-Encoding: chunked"
    method = "PUT" if path.endswith("user=a") else "POST"
    lines = [f"{method} {BASE}{path} HTTP/1.1", "Host: x", length, *(f"{name}: {sent[name]}" for name in sent)]
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S) as connection:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        assert received.startswith(f"HTTP/1.1 {status} ".encode())
        assert received.count(b"\r\nconnection: close\r\n") == 1
        connection.sendall(b"x" * MAX_BODY)  # no reset that could have destroyed the answer
        with pytest.raises(ConnectionError):  # and no reading without end
            _send_on(connection)


def _send_on(connection: socket.socket) -> None:
    for _ in range(100):
        connection.sendall(b"x" * MAX_BODY)


def test_a_refused_body_that_was_received_leaves_the_connection_open(service: Service) -> None:
    head = f"POST {BASE}/client-quotas:alter HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
    refused = f"{head}Connection: {{}}\r\n\r\n{{{{}}}}"
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S) as connection:
        connection.sendall((refused.format("keep-alive") + refused.format("close")).encode())
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    assert received.count(b"HTTP/1.1 401 ") == 2


def test_a_time_whose_plus_became_a_space_is_refused_with_the_remedy(service: Service) -> None:
    answer = _request(service, "GET", f"{BASE}/audit?since=2026-01-31T12:00:00+01:00")
    assert _refused(answer) == 400
    assert "a + is written %2B" in json.loads(answer[2])["detail"]
    assert _request(service, "GET", f"{BASE}/audit?since=2026-01-31T12:00:00%2B01:00")[0] == 200


def test_a_value_that_fills_the_transaction_is_too_large(service: Service) -> None:
    body = json.dumps({"configs": {"metric.reporters": "x" * 950_000}}).encode()
    assert _refused(_request(service, "PUT", f"{BASE}/configs/broker=0", body=body)) == 413


def test_a_name_that_would_fill_the_transaction_is_refused_for_its_length(service: Service) -> None:
    entity = [{"entityType": "user", "entityName": "x" * 950_000}]
    body = json.dumps({"entries": [{"entity": entity, "ops": [{"key": "producer_byte_rate", "value": 1}]}]}).encode()
    answer = _request(service, "POST", f"{BASE}/client-quotas:alter", body=body)
    assert _refused(answer) == 400
    assert "2000 at most" in json.loads(answer[2])["detail"]


LONG = "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=4_000))  # noqa: S311 - no secret


@pytest.mark.parametrize(
    "names", [{"user": LONG}, {"user": "\u00e9" * 340}, {"user": LONG[:1_500], "client-id": LONG[1_500:2_000]}]
)
def test_an_id_that_no_index_takes_is_refused_before_any_write(service: Service, names: dict[str, str]) -> None:
    entity = [{"entityType": kind, "entityName": name} for kind, name in names.items()]
    body = json.dumps({"entries": [{"entity": entity, "ops": [{"key": "producer_byte_rate", "value": 1}]}]}).encode()
    answer = _request(service, "POST", f"{BASE}/client-quotas:alter", body=body)
    assert _refused(answer) == 400
    assert "2000 at most" in json.loads(answer[2])["detail"]
    entity_id = ",".join(f"{kind}={quote(name).replace('%', '~')}" for kind, name in names.items())
    report = b'{"softwareName":"a","softwareVersion":"1","appliedRevision":"1","refused":[]}'
    for target, content in (
        (f"client-quotas/{entity_id}", b'{"quotas":{"producer_byte_rate":1}}'),
        (f"client-configs/{entity_id}", b'{"configs":{"acks":"1"}}'),
        (f"client-configs/{entity_id}/instances/i-1", report),
    ):
        answer = _request(service, "PUT", f"{BASE}/{target}", body=content)
        assert _refused(answer) == 400, target
        assert "2000 at most" in json.loads(answer[2])["detail"], target


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /livez HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
    ],
)
def test_what_is_no_http_is_refused_with_a_problem_and_counted(service: Service, raw: bytes) -> None:
    def counted() -> float:
        return scrape(service).get("http_requests_total", method="other", route="unmatched", status="400") or 0

    before = counted()
    answer = _exchange(service, raw)
    assert _refused(answer) == 400
    assert json.loads(answer[2])["requestId"] == answer[1]["x-request-id"]
    assert answer[1]["connection"] == "close"
    assert counted() == before + 1


def test_a_target_above_the_bound_of_a_head_is_too_long(service: Service) -> None:
    assert _refused(_request(service, "GET", f"/livez?{'x' * 65_536}")) == 414


def test_the_service_goes_on_after_all_of_it(service: Service) -> None:
    assert _request(service, "GET", f"{BASE}/client-quotas")[0] == 200
    assert "Traceback" not in service.log.read_text()


def test_a_client_that_hangs_up_during_its_body_is_not_a_server_error(service: Service) -> None:
    before = len(service.log.read_text())
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S) as connection:
        connection.sendall(
            f"PUT {BASE}/client-quotas/user=gone?view=full HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {service.token}\r\nContent-Type: application/json\r\n"
            'Content-Length: 100\r\n\r\n{"quotas":'.encode()
        )
    # Told of that before it is asked the next.
    for _ in range(20):
        assert httpx.get(f"{service.url}/livez", trust_env=False).status_code == 200
    assert "Traceback" not in service.log.read_text()[before:]
