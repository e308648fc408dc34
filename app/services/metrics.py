"""Metrics of a process. Each part returns its own when asked; app/telemetry.py renders those of all parts.

Parts count in plain numbers, where things happen: an addition costs a path that is asked thousands of times a second
next to nothing. Returning samples asks no store for anything. Labels never hold what a client names: entities,
principals, paths as they were sent.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds for what a request waits for."""
ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Bounds for what shares a statement."""


class Histogram:
    """Counts values by the first bound that they are not above.

    Attributes:
        counts: One for each bound, and one for what is above the last.
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
        """Count all that another one has counted; of the same bounds."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self.counts)


class Sample(NamedTuple):
    """One number, under a name that app/telemetry.py explains."""

    name: str
    value: float | Histogram
    labels: tuple[str, ...] = ()


def of_cluster(name: str, metrics: Iterable[Sample]) -> Iterator[Sample]:
    """Return metrics as those of a cluster: with its name as their first label."""
    for sample in metrics:
        yield sample._replace(labels=(name, *sample.labels))


class Measured(Protocol):
    """A part that has metrics."""

    def metrics(self) -> Iterable[Sample]:
        """Return them as they are now; never waits."""
