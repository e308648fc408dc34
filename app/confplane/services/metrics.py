"""Metrics of a process, and the spans of its traces.

Each part returns its own metrics on request; telemetry.py renders those of all parts.

Parts count events in plain numbers where the events occur: an addition costs almost nothing on a path that runs
thousands of times per second. Returning samples does not query a store. Labels never contain names from clients:
entities, principals, paths as sent.

A step of a change, or of a round of a Kafka cluster, is a span (:func:`span`) if traces are on (tracing.py). The facts
of a span are names of clusters and types, counts, ids of changes and outcomes, never entities or values.
"""

from __future__ import annotations

from bisect import bisect_left
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from uuid import UUID

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds of histograms of durations, in seconds."""
ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Bounds of histograms of rows in one statement."""


class Histogram:
    """Counts of values. Each value counts for the lowest bound that is not below it.

    Attributes:
        counts: One count for each bound, and one for the values above the last bound.
        total: The sum of the values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def include(self, other: Histogram) -> None:
        """Add the counts of another histogram with the same bounds."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    @property
    def count(self) -> int:
        """The number of values counted."""
        return sum(self.counts)


class Sample(NamedTuple):
    """One number. The module telemetry.py describes its name."""

    name: str
    value: float | Histogram
    labels: tuple[str, ...] = ()


def of_cluster(name: str, metrics: Iterable[Sample]) -> Iterator[Sample]:
    """Return the metrics with the name of their cluster as the first label."""
    for sample in metrics:
        yield sample._replace(labels=(name, *sample.labels))


class MetricsSource(Protocol):
    """A part that has metrics."""

    def metrics(self) -> Iterable[Sample]:
        """Return the current metrics; never waits."""


class MetricsRenderer(Protocol):
    """The metrics of a process, in the formats that Prometheus scrapes."""

    def render(self, *, openmetrics: bool) -> tuple[bytes, str]:
        """Return the metrics and their content type, in OpenMetrics or in Prometheus' text format."""


# ---------------------------------------------------------------- spans


REQUEST_ID: Final[ContextVar[str | None]] = ContextVar("request_id", default=None)
CHANGE_ID: Final[ContextVar[UUID | None]] = ContextVar("change_id", default=None)
"""The ids of the request and the change under way, for the lines of the log."""


class StepSpan(Protocol):
    """One step, while it runs."""

    recorded: bool
    """False if facts that cost time to find are of no use."""

    def set(self, **facts: Any) -> None:
        """Add facts that are known after the start."""


class _NoSpan:
    """The span of every step while traces are off."""

    recorded = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def set(self, **facts: Any) -> None:
        """Do nothing."""


class Tracing:
    """The traces of this process."""

    begin: ClassVar[Callable[[str, Mapping[str, Any]], AbstractContextManager[StepSpan]] | None] = None
    """Begins a span with its name and its facts. None while traces are off."""
    ids: ClassVar[Callable[[], Mapping[str, str]]] = dict
    """Returns the ids of the current trace and span for the log, if there is one."""


_NO_SPAN: Final = _NoSpan()


def span(name: str, **facts: Any) -> AbstractContextManager[StepSpan]:
    """Return the span of a step, which is a child of the span around it."""
    begin = Tracing.begin
    return _NO_SPAN if begin is None else begin(name, facts)
