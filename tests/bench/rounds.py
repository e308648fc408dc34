"""Alternating rounds, and the table that comes of them.

The machine is shared and its speed drifts, so ours and the reference are measured in turn, A B A B, and compared pair
by pair: the ratio is the median of the pairs' ratios, and its spread is their range.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

progress = Console(stderr=True, highlight=False)
"""The console for progress; standard output gets the table alone."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: a figure, its reference from the same run, and the ratio of the two."""

    name: str
    unit: str
    ours: Sequence[float]
    reference_name: str = ""
    reference: Sequence[float] = ()
    goal: str = "information"
    decimals: int = 0
    less_is_better: bool = False

    @property
    def ratios(self) -> list[float]:
        """Pair by pair, above 1 where ours is better."""
        pairs = zip(self.ours, self.reference, strict=True)
        # Memory may not grow at all.
        if self.less_is_better:
            return [reference / ours if ours else float("inf") for ours, reference in pairs]
        return [ours / reference for ours, reference in pairs]

    def row(self) -> list[str]:
        """Return the cells."""
        if not self.reference:
            return [self.name, self._amount(self.ours), "", "", self.goal]
        ratios = self.ratios
        return [
            self.name,
            self._amount(self.ours),
            f"{self._amount(self.reference)}, {self.reference_name}",
            f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})",
            self.goal,
        ]

    def _amount(self, values: Sequence[float]) -> str:
        return f"{statistics.median(values):,.{self.decimals}f} {self.unit}"


Sample = tuple[float, ...]
"""The figures of one measurement; the first is shown as progress."""


def alternate(name: str, rounds: int, *sides: Callable[[int], Sample], decimals: int = 0) -> list[list[Sample]]:
    """Measure the sides in turn, so many rounds, and return each side's samples. A side is told the round's number."""
    found: list[list[Sample]] = [[] for _ in sides]
    for number in range(1, rounds + 1):
        for samples, side in zip(found, sides, strict=True):
            samples.append(side(number))
        shown = " | ".join(f"{samples[-1][0]:,.{decimals}f}" for samples in found)
        progress.print(f"  {name}, round {number} of {rounds}: {shown}", soft_wrap=True)
    return found


def summary(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile of some times, in milliseconds."""
    ordered = sorted(seconds)
    return statistics.median(ordered) * 1000, ordered[len(ordered) * 99 // 100] * 1000


def column(samples: Sequence[Sample], index: int = 0) -> list[float]:
    """Return one value of each sample."""
    return [sample[index] for sample in samples]


def rates(
    name: str, ours: Sequence[Sample], reference_name: str, reference: Sequence[Sample], goal: str = "information"
) -> Iterator[Figure]:
    """Yield the rate of some requests and the processor time of one, from what ``tests.bench.world.loaded`` returns."""
    yield Figure(name, "/s", column(ours), reference_name, column(reference), goal)
    spent = column(ours, 1), reference_name, column(reference, 1)
    yield Figure(f"{name}: CPU time of the server", "µs", *spent, less_is_better=True)


def percentiles(
    name: str,
    ours: Sequence[Sample],
    reference_name: str = "",
    reference: Sequence[Sample] = (),
    goals: tuple[str, str] = ("information", "information"),
    *,
    decimals: int = 1,
) -> Iterator[Figure]:
    """Yield the median and the 99th percentile of some times, from samples that begin with those of :func:`summary`."""
    for index, (what, goal) in enumerate(zip(("median", "99th percentile"), goals, strict=True)):
        sides = column(ours, index), reference_name, column(reference, index)
        yield Figure(f"{name}, {what}", "ms", *sides, goal, decimals, less_is_better=True)


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as a table in Markdown."""
    rows = [["Figure", "Confplane", "Reference", "Ratio (range)", "Goal"], ["---", "---:", "---:", "---:", "---"]]
    rows += [figure.row() for figure in figures]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
