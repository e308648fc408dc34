"""A collector of traces on loopback: keeps the spans that it gets by OTLP over HTTP."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.receiver import receiving

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator

    from opentelemetry.sdk.trace import ReadableSpan

    from tests.support.receiver import ReceivedRequest, Receiver

ACCEPTED: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
REFUSED: Final = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class SentSpan(NamedTuple):
    """A span as it left the process; ids are hexadecimal, and empty without a parent."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    facts: dict[str, Any]


def settings_for(receiver: Receiver, **more: str) -> dict[str, str]:
    """Return the environment of a service that sends its traces to a receiver, several times a second."""
    return {
        "CONFPLANE_TRACING": "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url(""),
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        **more,
    }


def accepted(_: ReceivedRequest) -> bytes:
    return ACCEPTED


@contextmanager
def collecting() -> Iterator[Receiver]:
    """Run a collector in a thread, for tests without an event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="collector")
    thread.start()

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    receiving_here = receiving()
    receiver: Receiver = run(receiving_here.__aenter__())
    receiver.respond = accepted
    try:
        yield receiver
    finally:
        run(receiving_here.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def sent(requests: Iterable[ReceivedRequest]) -> list[SentSpan]:
    """Return the spans of requests."""
    return [
        SentSpan(
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            {each.key: _value(each.value) for each in span.attributes},
        )
        for request in requests
        for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def finished(spans: Iterable[ReadableSpan]) -> Iterator[SentSpan]:
    """Return the spans of an exporter that keeps them in memory."""
    for span in spans:
        context, parent = span.context, span.parent
        assert context is not None
        yield SentSpan(
            span.name,
            f"{context.trace_id:032x}",
            f"{context.span_id:016x}",
            "" if parent is None else f"{parent.span_id:016x}",
            dict(span.attributes or {}),
        )


def tree(spans: Iterable[SentSpan], parent_id: str) -> dict[str, Any]:
    """Return the names of the spans below one, each with the names below it. Statements of Postgres are left out."""
    spans = [each for each in spans if "db.system.name" not in each.facts]
    return {each.name: tree(spans, each.span_id) for each in spans if each.parent_id == parent_id}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return [_value(each) for each in found.values] if kind == "array_value" else found
