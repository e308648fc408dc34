"""Traces by OpenTelemetry: the only module of ours that imports it, loaded if the setting ``tracing`` is on.

The spans of our own steps come from :func:`confplane.services.metrics.span`. Those of requests, statements and requests
to issuers come from OpenTelemetry's instrumentation of ASGI, SQLAlchemy and httpx. That of FastAPI is the one of ASGI
within FastAPI's own middleware, which most requests do not pass (api/routing/paths.py). FastAPI itself loads
OpenTelemetry's API, but neither its SDK nor an exporter.

What leaves the process is on a list: names of attributes whose values are never from a client. Events and descriptions
are left out, because texts of errors may quote values. Spans are sent by a thread, from a queue with a limit; if the
collector does not answer, the oldest are dropped.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

# Before the import of any instrumentation, which reads it: today's names of attributes instead of those of 2021.
os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http,database")

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.instrumentation.sqlalchemy import SQLAlchemyInstrumentor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.util.http import sanitize_method

import confplane
from confplane.services.metrics import REQUEST_ID, Tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_log: Final = logging.getLogger(__name__)

STOP_S: Final = 3.0
"""Seconds that a stop waits for the last spans."""
_PREFIX: Final = "confplane."
_LISTED: Final = 32
"""The greatest number of ids in an attribute."""
_SENT: Final = frozenset(
    {
        "db.namespace",
        "db.operation.name",
        "db.query.text",  # without parameters
        "db.system.name",
        "error.type",
        "http.request.method",
        "http.response.status_code",
        "http.route",
        "url.scheme",
    }
)
_PEER: Final = frozenset({"server.address", "server.port"})
"""Attributes of requests by this process; in a request to it, they are the client's header Host."""
_UNTRACED: Final = "/livez,/readyz,/metrics"
_STATEMENTS: Final = "opentelemetry.instrumentation.sqlalchemy"
_STOPPED: Final = {"lifespan.shutdown.complete", "lifespan.shutdown.failed"}
_MUTED: Final = ("opentelemetry.exporter", "opentelemetry.sdk._shared_internal")
"""Loggers with a line for each batch that is not sent; ours has one for each outage."""


class OtelTracing:
    """The traces of a process.

    Args:
        exporter: Sends spans; by default by OTLP over HTTP, as the variables ``OTEL_*`` say.
    """

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        for name in _MUTED:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        if "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
            os.environ.setdefault("OTEL_SERVICE_NAME", "confplane")
        self._exporter = _Exporter(exporter or OTLPSpanExporter())
        self._provider = TracerProvider(
            resource=Resource.create({"service.version": confplane.__version__}), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("confplane", confplane.__version__)

    def start(self) -> None:
        """Begin to trace: steps, requests to issuers, and the statements of engines that are created from now on."""
        HTTPXClientInstrumentor().instrument(tracer_provider=self._provider)
        # Its list of supported releases ends before 2.1, with which it works (tests/features/test_tracing.py).
        SQLAlchemyInstrumentor().instrument(tracer_provider=self._provider, skip_dep_check=True)
        Tracing.begin, Tracing.ids = self._begin, _ids

    def traced(self, app: ASGIApp) -> ASGIApp:
        """Return an application with a span for each request. The end of its lifespan stops the traces."""
        return OpenTelemetryMiddleware(
            _NamedSpans(app, self.stop),
            excluded_urls=_UNTRACED,
            default_span_details=lambda scope: (sanitize_method(scope["method"]), {}),
            tracer_provider=self._provider,
            exclude_spans=["receive", "send"],
        )

    def stop(self) -> None:
        """Send the last spans, for a few seconds at most."""
        Tracing.begin, Tracing.ids = None, dict
        HTTPXClientInstrumentor().uninstrument()
        SQLAlchemyInstrumentor().uninstrument()
        stopping = threading.Thread(target=self._provider.shutdown, name="stop of traces", daemon=True)
        stopping.start()
        stopping.join(STOP_S)
        if stopping.is_alive():
            self._exporter.shutdown()  # ends the waits between its attempts
            _log.warning("The last spans were not sent within %g seconds", STOP_S)

    @contextmanager
    def _begin(self, name: str, facts: Mapping[str, Any]) -> Iterator[_Step]:
        with self._tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as span:
            step = _Step(span)
            step.set(**facts)
            try:
                yield step
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise


class _Step:
    """Implements :class:`confplane.services.metrics.StepSpan`."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self.recorded = span.is_recording()

    def set(self, **facts: Any) -> None:
        for name, fact in facts.items():
            value = [str(each) for each in fact[:_LISTED]] if isinstance(fact, list) else fact
            known = isinstance(value, bool | int | list)
            self._span.set_attribute(f"{_PREFIX}{name}", value if known else str(value))


class _NamedSpans:
    """Names the span of a request after its route, which is known at its response, and adds the request's id."""

    def __init__(self, app: ASGIApp, stop: Callable[[], None]) -> None:
        self._app = app
        self._stop = stop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        span = trace.get_current_span()

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = scope.get("route")
                path = "unmatched" if route is None else route.path.replace(":path}", "}")
                span.update_name(f"{sanitize_method(scope['method'])} {path}")
                span.set_attribute("http.route", path)
                span.set_attribute(f"{_PREFIX}request_id", REQUEST_ID.get() or "")
            elif message["type"] in _STOPPED:
                await asyncio.to_thread(self._stop)
            await send(message)

        await self._app(scope, receive, send_named)


class _Exporter(SpanExporter):
    """Sends what may leave the process, and logs an outage of the collector once."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        reduced = [_reduced(span) for span in spans if not _is_poll(span)]
        if not reduced:
            return SpanExportResult.SUCCESS
        result = self._exporter.export(reduced)
        if result is not SpanExportResult.SUCCESS and not self._failing:
            _log.warning("The collector of traces does not accept spans; they are dropped until it does")
        elif result is SpanExportResult.SUCCESS and self._failing:
            _log.info("The collector of traces accepts spans again")
        self._failing = result is not SpanExportResult.SUCCESS
        return result

    def shutdown(self) -> None:
        """Stop."""
        self._exporter.shutdown()


def _is_poll(span: ReadableSpan) -> bool:
    """Return True for a statement outside of a trace: background loops poll Postgres every few seconds."""
    scope = span.instrumentation_scope
    return span.parent is None and scope is not None and scope.name.startswith(_STATEMENTS)


def _reduced(span: ReadableSpan) -> ReadableSpan:
    attributes = span.attributes or {}
    sent = _SENT | _PEER if span.kind is SpanKind.CLIENT else _SENT
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes={key: each for key, each in attributes.items() if key in sent or key.startswith(_PREFIX)},
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _ids() -> dict[str, str]:
    """Return the ids of the current span, for the log."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}
