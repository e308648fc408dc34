"""Responses of many megabytes: repeated names, the bytes in flight, clients that leave, and describes of everything."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.metrics import scrape
from tests.support.stores import content
from tests.support.waiting import PATIENCE_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kazoo.client import KazooClient

    from tests.support.service import Service

BASE = "/v1/clusters/default"
DESCRIBE = f"{BASE}/configs:describe"
BROKERS = 130
"""Brokers whose configs with synonyms and documentation take some 12 MB: more than sockets buffer."""


@pytest.fixture(scope="module")
def service_options() -> dict[str, Any]:
    return {"settings": {"CONFPLANE_HTTP__REQUEST_DEADLINE_MS": "60000"}}


@pytest.fixture(scope="module")
def http(service: Service) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {service.token}"}
    with httpx.Client(base_url=service.url, headers=headers, trust_env=False, timeout=PATIENCE_S) as client:
        yield client


def brokers(ids: Any, *keys: str) -> dict[str, Any]:
    named: dict[str, Any] = {"configurationKeys": list(keys)} if keys else {}
    return {
        "resources": [{"resourceType": "BROKER", "resourceName": str(each), **named} for each in ids],
        "includeSynonyms": True,
        "includeDocumentation": True,
    }


def unread(service: Service, body: dict[str, Any]) -> socket.socket:
    """Send a describe whose response nobody reads yet."""
    content_ = json.dumps(body).encode()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(PATIENCE_S)
    connection.connect(("127.0.0.1", service.port))
    head = (
        f"POST {DESCRIBE} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {service.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content_)}\r\n\r\n"
    )
    connection.sendall(head.encode() + content_)
    return connection


def _in_flight_above(service: Service, size: int) -> bool:
    return scrape(service)("response_bytes_in_flight") >= size


def test_a_resource_that_is_named_a_thousand_times_has_one_result(http: httpx.Client) -> None:
    answer = http.post(DESCRIBE, json=brokers([7] * 999 + [8]))
    assert answer.status_code == 200
    assert [each["resourceName"] for each in answer.json()["results"]] == ["7", "8"]
    assert len(answer.content) < 1_000_000
    # Each mention may name keys of its own.
    mentions = [
        brokers([7], "background.threads"),
        brokers([8], "background.threads"),
        brokers([7], "log.retention.ms"),
    ]
    body = {"resources": [mention["resources"][0] for mention in mentions]}
    first, second = http.post(DESCRIBE, json=body).json()["results"]
    assert [each["name"] for each in first["configs"]] == ["background.threads", "log.retention.ms"]
    assert [each["name"] for each in second["configs"]] == ["background.threads"]
    body["resources"].append(brokers([7])["resources"][0])
    assert len(http.post(DESCRIBE, json=body).json()["results"][0]["configs"]) > 200


def test_an_entity_that_is_named_a_thousand_times_has_one_result(http: httpx.Client) -> None:
    entities = [{"entityType": "user", "entityName": name} for name in ["a"] * 999 + ["b", "a"]]
    answer = http.post(f"{BASE}/entity-configs:describe", json={"entities": entities})
    assert [each["entityName"] for each in answer.json()["entities"]] == ["a", "b"]


def test_a_response_above_the_share_of_a_principal_is_too_large(http: httpx.Client) -> None:
    answer = http.post(DESCRIBE, json=brokers(range(1_000)))
    assert answer.status_code == 413
    assert "ask for fewer entities" in answer.json()["detail"]
    assert http.post(DESCRIBE, json=brokers(range(1_000), "background.threads")).status_code == 200


def test_one_caller_has_a_share_of_the_bytes_in_flight(service: Service, http: httpx.Client) -> None:
    whole = len(http.post(DESCRIBE, json=brokers(range(BROKERS))).content)
    with ExitStack() as stack:
        for expected in (whole - 100, 2 * whole - 200):
            stack.enter_context(unread(service, brokers(range(BROKERS))))
            wait_for(partial(_in_flight_above, service, expected))
        refused = http.post(DESCRIBE, json=brokers(range(BROKERS)))
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert "is receiving from this process" in refused.json()["detail"]
        scraped = scrape(service)
        assert scraped("response_bytes_in_flight") <= 32 * 2**20
        assert scraped("responses_refused_total", reason="principal") > 0
        # Polls, reads of one entity and small responses do not wait.
        assert http.get("/livez").status_code == 200
        assert http.get(f"{BASE}/client-quotas/user=nobody").status_code == 404
        assert http.get(f"{BASE}/client-configs/user=nobody/effective").status_code == 200
        assert http.post(DESCRIBE, json=brokers([1], "background.threads")).status_code == 200
    wait_for(lambda: scrape(service)("response_bytes_in_flight") == 0)
    assert http.post(DESCRIBE, json=brokers(range(BROKERS))).status_code == 200


def test_work_for_a_client_that_left_ends(service: Service) -> None:
    def left() -> float:
        route = f"{DESCRIBE.replace('default', '{cluster}')}"
        return scrape(service).get("http_requests_total", method="POST", route=route, status="499") or 0

    before = left()

    def leave() -> bool:
        unread(service, brokers(range(250))).close()
        return left() > before

    wait_for(leave)


def test_a_describe_of_everything_is_sent_in_pieces_and_is_whole(
    service: Service, http: httpx.Client, zk: KazooClient
) -> None:
    names = [f"{number:04d}{'x' * 200}" for number in range(3_000)]
    zk.ensure_path("/config/users")
    for start in range(0, len(names), 500):
        transaction = zk.transaction()
        for name in names[start : start + 500]:
            transaction.create(f"/config/users/streamed{name}", content(producer_byte_rate="1"))
        assert all(isinstance(each, str) for each in transaction.commit())
    zk.create("/config/users/streamed-broken", b"junk")
    for path in (*(f"users/streamed{name}" for name in names), "users/streamed-broken"):
        zk.create(
            "/config/changes/config_change_",
            b'{"version":2,"entity_path":"' + path.encode() + b'"}',
            sequence=True,
            makepath=True,
        )
    body = {"components": [{"entityType": "user", "matchType": "ANY"}], "strict": True}

    def whole() -> httpx.Response | None:
        answer = http.post(f"{BASE}/client-quotas:describe", json=body)
        described = answer.json()
        found = {each["entity"][0]["entityName"] for each in described["entries"]}
        return answer if found >= {f"streamed{name}" for name in names} and described["skipped"] else None

    answer = wait_for(whole)
    assert len(answer.content) > 512 * 1024
    assert answer.headers["transfer-encoding"] == "chunked"
    described = answer.json()
    ids = [each["entity"][0]["entityName"] for each in described["entries"]]
    assert ids == sorted(ids)
    assert len(ids) == len(set(ids))
    assert described["skipped"] == ["/config/users/streamed-broken"]
    assert described["errorCode"] == 0
    assert scrape(service)("response_bytes_in_flight") == 0

    lines = http.post(f"{BASE}/client-quotas:describe", json=body, headers={"Accept": "application/x-ndjson"})
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert lines.headers["transfer-encoding"] == "chunked"
    assert lines.content.endswith(b"}\n")
    *entries, rest = map(json.loads, lines.content.splitlines())
    assert {**rest, "entries": entries} == described


@pytest.mark.parametrize("facet", ["client-quotas", "client-configs"])
@pytest.mark.parametrize("accept", [None, "*/*", "application/json, application/x-ndjson", "application/x-ndjson;q=0"])
def test_a_describe_is_json_unless_lines_are_preferred(http: httpx.Client, facet: str, accept: str | None) -> None:
    body = {"components": [{"entityType": "user", "matchType": "EXACT", "match": "lines"}], "strict": True}
    answer = http.post(f"{BASE}/{facet}:describe", json=body, headers={} if accept is None else {"Accept": accept})
    assert answer.headers["content-type"] == "application/json"
    assert "Accept" in answer.headers["vary"]
    assert answer.json()["entries"] == []
    lines = http.post(f"{BASE}/{facet}:describe", json=body, headers={"Accept": "application/x-ndjson"})
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert lines.text.count("\n") == 1
    assert {**json.loads(lines.text), "entries": []} == answer.json()
