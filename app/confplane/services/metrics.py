"""Metrics of a process. Each part returns its own on request; telemetry.py renders the metrics of all parts.

Parts count events in plain numbers where the events occur: an addition costs almost nothing on a path that runs
thousands of times per second. Returning samples does not query a store. Labels never contain names from clients:
entities, principals, paths as sent.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
