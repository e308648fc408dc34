"""Traces: the spans of a write and of the rounds of a Kafka cluster, what leaves the process, and absent collectors."""

from __future__ import annotations

import asyncio
import json
import signal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from confplane.domain.entities import Entity
from confplane.services.metrics import span
from confplane.services.ports.transactions import TransactionUnknown
from confplane.tracing import OtelTracing
from tests.support.adopting import alter, apply, opener
from tests.support.collector import ACCEPTED, REFUSED, accepted, finished, sent, settings_for, tree
from tests.support.kafka_double import KafkaDouble
from tests.support.receiver import receiving
from tests.support.waiting import until, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sized

    from tests.support.collector import SentSpan
    from tests.support.service import Service
    from tests.support.world import World

TRACE_ID: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT_ID: Final = "00f067aa0ba902b7"
CHANGE: Final[dict[str, Any]] = {"draft": {}, "intent": {}, "transaction": {}, "outcome": {}}
FAILS: Final = "does not accept spans"


class Recording:
    """The traces of this process."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._tracing = OtelTracing(self._exporter)
        self._tracing.start()

    def stop(self) -> list[SentSpan]:
        """Return the spans."""
        self._tracing.stop()
        return list(finished(self._exporter.get_finished_spans()))


@pytest.fixture
def recording() -> Iterator[Recording]:
    one = Recording()
    yield one
    one.stop()


async def put(service: Service, entity_id: str, **options: Any) -> httpx.Response:
    url = f"{service.url}/v1/clusters/default/client-quotas/{entity_id}"
    headers = {"Authorization": f"Bearer {service.token}", **options.pop("headers", {})}
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        return await client.put(url, headers=headers, **options)


async def test_a_write_is_one_trace_without_values(world: World) -> None:
    """The trace goes on from the client's, and its lines of the log have its ids."""
    traceparent = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}
    async with receiving() as receiver:
        receiver.respond = accepted
        settings = settings_for(receiver, CONFPLANE_LOG_FORMAT="json")
        async with world.service(settings=settings, module="confplane") as service:
            body = {"quotas": {"producer_byte_rate": 8675309}}
            answer = await put(service, "user=hidden-name", json=body, headers=traceparent)
            assert answer.status_code == 200, answer.text
            refused = {"quotas": {"secret-key": "secret-value"}}
            assert (await put(service, "user=hidden-name", json=refused)).status_code == 400
            anonymous = await put(service, "user=hidden-name", json=body, headers={**traceparent, "Authorization": ""})
            assert anonymous.status_code == 401
            await until(lambda: [each for each in sent(receiver.requests) if "unmatched" in each.name])
        spans = [each for each in sent(receiver.requests) if each.trace_id == TRACE_ID]
        [request] = [each for each in spans if each.facts.get("http.response.status_code") == 200]
        assert request.name == "PUT /v1/clusters/{cluster}/client-quotas/{id}"
        assert request.parent_id == PARENT_ID
        assert request.facts["confplane.request_id"] == answer.headers["x-request-id"]
        assert tree(spans, request.span_id) == {"authorize": {}, "change": CHANGE}
        [change] = [each for each in spans if each.name == "change"]
        change_id = answer.headers["confplane-change-id"]
        assert change.facts == {
            "confplane.cluster": "default",
            "confplane.change_id": change_id,
            "confplane.outcome": "applied",
        }
        [transaction] = [each for each in spans if each.name == "transaction"]
        assert transaction.facts == {"confplane.change_ids": [change_id], "confplane.outcome": "Committed"}
        [authorize] = [each for each in spans if each.name == "authorize"]
        assert authorize.facts["confplane.entity_types"] == ["user"]
        everything = b"".join(each.body for each in receiver.requests)
        assert b"client-quotas" in everything
        for text in ("hidden-name", "8675309", "127.0.0.1", "secret-key", "secret-value", service.token):
            assert text.encode() not in everything, text
    lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    [line] = [each for each in lines if '"unauthenticated"' in each["message"]]
    assert (line["trace_id"], line["request_id"]) == (TRACE_ID, anonymous.headers["x-request-id"])
    assert all(int(each["trace_id"], 16) for each in lines if "trace_id" in each), (
        "a line outside of requests has no trace"
    )


async def test_a_search_has_the_spans_of_its_statements_without_their_parameters(
    world: World, recording: Recording
) -> None:
    one = await world.replica()
    with span("search"):
        await one.trail(principal="User:somebody")
    spans = recording.stop()
    [search] = [each for each in spans if each.name == "search"]
    statements = [each.facts for each in spans if each.parent_id == search.span_id and "db.query.text" in each.facts]
    assert any("FROM intents" in facts["db.query.text"] for facts in statements)
    assert "User:somebody" not in str(spans)
    assert all(each.parent_id for each in spans if "db.query.text" in each.facts)


async def test_requests_to_an_issuer_pass_the_trace_on(recording: Recording) -> None:
    async with receiving() as receiver, httpx.AsyncClient(trust_env=False) as client:
        receiver.respond = accepted
        with span("caller"):
            await client.post(receiver.url("/token?code=hidden"), content=b"x")
    spans = recording.stop()
    [caller] = [each for each in spans if each.name == "caller"]
    [request] = [each for each in spans if each.parent_id == caller.span_id]
    assert receiver.requests[0].headers["traceparent"].startswith(f"00-{caller.trace_id}-{request.span_id}-")
    assert request.facts["server.port"] == receiver.port
    assert "hidden" not in str(spans)


async def test_changes_that_share_a_transaction_have_its_span_in_the_trace_of_one(
    world: World, recording: Recording
) -> None:
    one = await world.replica()

    async def write(number: int) -> str | None:
        with span("caller"):
            return (await one.alter(Entity.of(user=f"u{number}"), producer_byte_rate=1)).change_id

    ids = await asyncio.gather(*map(write, range(12)))
    spans = recording.stop()
    changes = {each.facts["confplane.change_id"]: each for each in spans if each.name == "change"}
    assert changes.keys() == set(ids)
    assert len({each.trace_id for each in changes.values()}) == len(ids)
    shared = [each for each in spans if each.name == "transaction"]
    assert sorted(name for each in shared for name in each.facts["confplane.change_ids"]) == sorted(changes)
    assert len(shared) < len(ids)
    for each in shared:
        assert changes[each.facts["confplane.change_ids"][0]].trace_id == each.trace_id
    assert any(each.name == "wait" for each in spans)


async def test_a_lost_reply_has_the_span_of_its_settlement(
    world: World, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await world.replica()
    commit = one.store.commit

    async def lost(*arguments: Any) -> Any:
        await commit(*arguments)
        return TransactionUnknown()

    monkeypatch.setattr(one.store, "commit", lost)
    result = await one.alter(Entity.of(user="lost"), producer_byte_rate=1)
    assert result.error is None
    spans = recording.stop()
    [settle] = [each for each in spans if each.name == "settle"]
    assert settle.facts == {"confplane.outcome": "committed"}
    [change] = [each for each in spans if each.name == "change"]
    assert settle.parent_id == change.span_id
    assert change.facts["confplane.outcome"] == "applied"


async def test_the_rounds_of_a_kafka_cluster_have_their_steps(world: World, recording: Recording) -> None:
    kafka = KafkaDouble()
    async with opener(world, kafka) as opened:
        one = await opened()
        kafka.alter(Entity.of(user="outside"), {"producer_byte_rate": "1024"})
        await one.poll()
        await alter(one, Entity.of(user="inside"), producer_byte_rate=2048)
        assert await apply(one)
    spans = recording.stop()
    rounds = [(each.name, tree(spans, each.span_id)) for each in spans if not each.parent_id]
    assert ("observe", {"snapshot": {}, "write": CHANGE, "verify": {}}) in rounds
    assert ("apply", {"decide": {}, "intent": {}, "alter": {}, "verify": {}, "outcome": {}}) in rounds
    [observed] = [each for each in spans if each.name == "write" and each.facts["confplane.entities"] == 1]
    assert observed.facts["confplane.cluster"] == "default"


def _exceeds(some: Sized, count: int) -> bool:
    return len(some) > count


async def test_a_collector_that_refuses_is_reported_once(world: World) -> None:
    async with receiving() as receiver:
        receiver.respond = lambda _: REFUSED
        async with world.service(settings=settings_for(receiver)) as service:
            for number in range(3):
                known = len(receiver.requests)
                assert (await put(service, "user=a", json={"quotas": {"producer_byte_rate": number + 1}})).is_success
                await until(partial(_exceeds, receiver.requests, known))
            receiver.respond = lambda _: ACCEPTED
            assert (await put(service, "user=a", json={"quotas": {"producer_byte_rate": 9}})).is_success
            await until(lambda: "accepts spans again" in service.log.read_text())
        assert service.log.read_text().count(FAILS) == 1
        assert "Failed to export" not in service.log.read_text()


async def test_a_collector_that_does_not_answer_delays_neither_requests_nor_the_stop(world: World) -> None:
    async with receiving() as receiver:
        receiver.respond = lambda _: None
        settings = settings_for(receiver, OTEL_EXPORTER_OTLP_TIMEOUT="3600", OTEL_BSP_MAX_QUEUE_SIZE="2")
        settings["OTEL_BSP_MAX_EXPORT_BATCH_SIZE"] = "2"
        async with world.service(settings=settings, constants={"confplane.tracing.STOP_S": 0.1}) as service:
            for number in range(5):
                assert (await put(service, "user=b", json={"quotas": {"producer_byte_rate": number + 1}})).is_success
            await until(lambda: receiver.requests)
            assert await asyncio.to_thread(service.stop) in {0, -signal.SIGTERM}
            assert "The last spans were not sent" in service.log.read_text()


async def test_traces_without_their_packages_are_refused_at_the_start(world: World) -> None:
    program = world.directory / "without_opentelemetry.py"
    program.write_text(
        "import sys; sys.modules['opentelemetry.sdk'] = None; from confplane.cli.commands import main; main()"
    )
    service = world.make_service(settings={"CONFPLANE_TRACING": "true"}, module="without_opentelemetry")
    service.root = world.directory
    await asyncio.to_thread(service.start, wait_ready=False)
    await asyncio.to_thread(wait_for, lambda: not service.running)
    assert "install confplane[otel], or set tracing to false" in service.log.read_text()
