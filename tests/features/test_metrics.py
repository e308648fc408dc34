"""``/metrics``: open to all, counts what happens on every way in, and names nothing that a client names."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from confplane.api.request_context import CLIENT_CLOSED_REQUEST
from confplane.client import ProblemError
from confplane.domain.entities import Entity
from confplane.telemetry import METRICS, PREFIX
from tests.support.metrics import Scraped, scrape
from tests.support.stores import kafka_writes
from tests.support.waiting import until_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service

QUOTAS: Final = "/v1/clusters/{cluster}/client-quotas"
ONE: Final = f"{QUOTAS}/{{id}}"
NAME: Final = "a-name-that-only-this-test-has"


async def scraped(service: Service) -> Scraped:
    return await asyncio.to_thread(scrape, service)


async def scraped_when(service: Service, holds: Callable[[Scraped], object]) -> Scraped:
    found: list[Scraped] = []

    def holding() -> object:
        found[:] = [scrape(service)]
        return holds(found[0])

    await until_thread(holding, why=lambda: found[0].text)
    return found[0]


def answered(found: Scraped, method: str, route: str, status: int) -> float:
    return found.get("http_requests_total", method=method, route=route, status=str(status)) or 0


async def test_requests_are_counted_on_both_ways_to_the_handlers(service: Service, client: ConfplaneClient) -> None:
    """Past the router, as polls are answered, and through it; also what never gets to a route."""
    alice = Entity.of(user="alice")
    await client.put("client-quotas", alice, {"producer_byte_rate": 1})
    before = await scraped(service)
    for _ in range(3):
        await client.get("client-quotas", alice)
    await client.request("GET", "client-quotas/user=alice", params={"view": "full"})
    await client.request("GET", "client-quotas")
    with pytest.raises(ProblemError):
        await client.get("client-quotas", Entity.of(user="nobody"))
    async with httpx.AsyncClient(base_url=service.url, trust_env=False, timeout=60) as http:
        assert (await http.get("/v1/clusters/default/client-quotas/user=alice")).status_code == 401
        assert (await http.get("/v1/whoami")).status_code == 401
        assert (await http.delete("/livez")).status_code == 405
        assert (await http.get("/openapi.json")).status_code == 200
    now = await scraped(service)

    def more(method: str, route: str, status: int) -> float:
        return answered(now, method, route, status) - answered(before, method, route, status)

    assert more("GET", ONE, 200) == 4
    assert more("GET", ONE, 404) == 1
    assert more("GET", QUOTAS, 200) == 1
    assert more("GET", "unmatched", 401) == 2
    assert more("DELETE", "/livez", 405) == 1
    assert more("GET", "/metrics", 200) == 1
    assert now("http_request_duration_seconds_count", method="GET", route=ONE) >= 5
    assert now("http_requests_in_flight") == 1, "the one that asks"


@pytest.mark.parametrize("query", ["", "?reason=cut"], ids=["past the router", "through it"])
async def test_a_client_that_hangs_up_during_a_body_is_answered_499(service: Service, query: str) -> None:
    before = answered(await scraped(service), "PUT", ONE, CLIENT_CLOSED_REQUEST)
    _, writer = await asyncio.open_connection("127.0.0.1", service.port)
    head = f"PUT /v1/clusters/default/client-quotas/user=cut{query} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
    head += f"Content-Type: application/json\r\nAuthorization: Bearer {service.token}\r\n\r\n{{"
    writer.write(head.encode())
    await writer.drain()
    await scraped_when(service, lambda found: found("http_requests_in_flight") == 2)
    writer.close()
    found = await scraped_when(service, lambda found: answered(found, "PUT", ONE, CLIENT_CLOSED_REQUEST) == before + 1)
    assert found("http_requests_in_flight") == 1


async def test_how_writes_end_is_counted_by_kafkas_errors(service: Service, client: ConfplaneClient) -> None:
    def results(found: Scraped) -> dict[tuple[str, str], float]:
        return {
            (labels["outcome"], labels["error"]): found(name.removeprefix(PREFIX), **labels)
            for name, labels in found
            if name == f"{PREFIX}alter_results_total" and labels["facet"] == "client-quotas"
        }

    bob = Entity.of(user="bob")
    before = await scraped(service)
    await client.put("client-quotas", bob, {"producer_byte_rate": 1})
    await client.put("client-quotas", bob, {"producer_byte_rate": 1})
    await client.request(
        "PUT", f"client-quotas/{bob.id}", json={"quotas": {"producer_byte_rate": 5}}, params={"validateOnly": "true"}
    )
    entry = {"entity": [{"entityType": "user", "entityName": "bob"}], "ops": [{"key": "nonsense", "value": 1}]}
    with pytest.raises(ProblemError):
        await client.request("POST", "client-quotas:alter", json={"entries": [entry]})
    key = str(uuid.uuid4())
    for _ in range(2):
        await client.put("client-quotas", bob, {"producer_byte_rate": 2}, idempotency_key=key)
    now = await scraped(service)
    known, found = results(before), results(now)
    assert {each: number - known.get(each, 0) for each, number in found.items() if number != known.get(each)} == {
        ("applied", "NONE"): 2,
        ("unchanged", "NONE"): 1,
        ("validated", "NONE"): 1,
        ("not_applied", "INVALID_REQUEST"): 1,
    }

    def more(name: str, **labels: str) -> float:
        return now(name, **labels) - (before.get(name, **labels) or 0)

    assert more("transaction_duration_seconds_count", cluster="default", result="committed") == 2
    assert (more("idempotent_requests_total", how="first"), more("idempotent_requests_total", how="replayed")) == (1, 1)
    assert more("group_commit_rows_sum", kind="intents") == 1
    assert more("group_commit_rows_sum", kind="claimed_intents") == 1
    assert more("group_commit_rows_sum", kind="outcomes") == 2
    assert more("mirror_revision", cluster="default") > 0
    assert (now("changes_in_flight"), now("transactions_in_flight", cluster="default")) == (0, 0)


async def test_the_state_of_all_parts_is_reported(service: Service, zk: KazooClient) -> None:
    found = await scraped_when(service, lambda found: found.get("leader", cluster="default"))
    assert (found.state("session_state"), found.state("mirror_state")) == ("connected", "fresh")
    assert found("session_transitions_total", cluster="default", state="connected") == 1
    assert (found("ready"), found("stopping"), found("postgres_up")) == (1, 0, 1)
    assert found("mirror_stale_seconds", cluster="default") == 0
    assert found("mirror_loads_total", cluster="default") >= 1
    assert (found("open_changes", cluster="default"), found("oldest_open_change_seconds", cluster="default")) == (0, 0)
    assert (found("brokers_registered", cluster="default"), found("frozen", cluster="default")) == (0, 0)
    assert (found("outcomes_kept"), found("outcomes_differing_total")) == (0, 0)
    assert (found("outcomes_unknown_total"), found("internal_errors_total")) == (0, 0)
    limit = found("notifications_limit", cluster="default")
    entities = found("entities", cluster="default", tree="/config")
    kafka_writes(zk, "users/written-by-a-broker", b'{"version":1,"config":{"consumer_byte_rate":"1"}}')
    kafka_writes(zk, "users/broken", b"nonsense")
    later = await scraped_when(service, lambda now: now("entities", cluster="default", tree="/config") == entities + 2)
    assert later("notifications", cluster="default") == found("notifications", cluster="default") + 2 < limit
    assert later("unreadable_znodes", cluster="default") == found("unreadable_znodes", cluster="default") + 1
    assert later("mirror_revision", cluster="default") > found("mirror_revision", cluster="default")
    recorded = await scraped_when(service, lambda now: now.get("recorder_lag_seconds", cluster="default") is not None)
    assert recorded("recorder_refused_entities", cluster="default") == 0


async def test_no_name_of_a_client_comes_out(service: Service, client: ConfplaneClient) -> None:
    entity = Entity.of(user=NAME, client_id=NAME)
    await client.put("client-quotas", entity, {"producer_byte_rate": 1})
    await client.get("client-quotas", entity)
    body: dict[str, Any] = {
        "components": [{"entityType": "user", "matchType": "exact", "match": NAME}],
        "resolveEntity": True,
        "supportedConfigs": ["acks"],
        "clientInformation": {"softwareName": NAME, "softwareVersion": NAME},
    }
    await client.request("POST", "client-configs:describe", json=body)
    for path in (f"/{NAME}", f"/v1/clusters/{NAME}", f"/v1/clusters/default/configs/topic={NAME}"):
        with pytest.raises(ProblemError):
            await client.request("GET", path)
    found = await scraped_when(
        service, lambda found: found("registrations_held") and not found("registrations_pending")
    )
    assert NAME not in found.text
    assert service.token not in found.text
    assert found.total("http_requests_total", route="/v1/clusters/{cluster}/client-configs:describe", status="200")
    allowed = {"le", "version", "generation", "implementation", "major", "minor", "patchlevel"}
    allowed |= {label for metric in METRICS.values() for label in metric.labels}
    assert {label for _, labels in found for label in labels} <= allowed


async def test_it_is_open_and_comes_in_two_formats(service: Service) -> None:
    async with httpx.AsyncClient(base_url=service.url, trust_env=False) as http:
        plain = await http.get("/metrics")
        assert (plain.status_code, plain.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert {PREFIX + name for name in METRICS} <= Scraped(plain.text).families.keys()
        prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
        for accept in (prometheus, "application/openmetrics-text; version=nonsense", "Application/OpenMetrics-Text"):
            answer = await http.get("/metrics", headers={"Accept": accept})
            assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
            families = text_string_to_metric_families(answer.text)  # type: ignore[no-untyped-call]
            assert PREFIX + "leader" in {family.name for family in families}
        for accept in ("", ";;;", "text/plain; version=9.x", "image/png"):
            answer = await http.get("/metrics", headers={"Accept": accept})
            assert (answer.status_code, answer.headers["content-type"]) == (200, plain.headers["content-type"])
        assert "process_resident_memory_bytes" in plain.text
