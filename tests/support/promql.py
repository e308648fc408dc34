"""The forms of PromQL that the alerts of the chart have, evaluated on scraped metrics by Prometheus's rules.

An expression is rewritten to Python and evaluated on :class:`Vector`. A form that no alert has is an error. Source of
the rules: promql/engine.go, functions.go and quantile.go of Prometheus.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Labels = frozenset[tuple[str, str]]
    Samples = list[tuple[float, float]]

_SELECTOR: Final = re.compile(r"\b(confplane_\w+)(\{[^}]*\})?(?:\[(\d+)([smhd])\])?")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_NAME: Final = "__name__"
_LOOKBACK_S: Final = 300.0
"""Prometheus's default: a series without a sample for so long has no value."""


class Vector(dict["Labels", float]):
    """Values by labels, with PromQL's operators."""

    __hash__ = None
    on: Sequence[str] | None = None
    """The labels by which elements of a left operand match those of this right one; None: all."""

    def _matched(self, other: Any) -> list[tuple[Labels, float, float]]:
        if not isinstance(other, Vector):
            return [(labels, value, other) for labels, value in self.items()]
        others = {_only(labels, other.on): value for labels, value in other.items()}
        assert len(others) == len(other), "several elements match one"
        keys = ((labels, value, _only(labels, other.on)) for labels, value in self.items())
        return [(labels, value, others[key]) for labels, value, key in keys if key in others]

    def _filtered(self, other: Any, holds: Callable[[float, float], bool]) -> Vector:
        return Vector({labels: value for labels, value, limit in self._matched(other) if holds(value, limit)})

    def __gt__(self, other: Any) -> Vector:
        return self._filtered(other, operator.gt)

    def __eq__(self, other: object) -> Vector:  # type: ignore[override]  # PromQL's comparison is a filter
        return self._filtered(other, operator.eq)

    def __ne__(self, other: object) -> Vector:  # type: ignore[override]  # as above
        return self._filtered(other, operator.ne)

    def __and__(self, other: Vector) -> Vector:
        return self._filtered(other, lambda _value, _other: True)

    def __sub__(self, other: Vector) -> Vector:  # unless
        return Vector({labels: value for labels, value in self.items() if labels not in other})

    def __rmul__(self, factor: float) -> Vector:
        return Vector({_only(labels): factor * value for labels, value in self.items()})

    def __rsub__(self, minuend: float) -> Vector:
        return Vector({_only(labels): minuend - value for labels, value in self.items()})

    def __abs__(self) -> Vector:
        return Vector({_only(labels): abs(value) for labels, value in self.items()})


def _only(labels: Labels, names: Sequence[str] | None = None) -> Labels:
    return frozenset(pair for pair in labels if (pair[0] in names if names is not None else pair[0] != _NAME))


class ScrapeSeries:
    """Scrapes of processes, each at a time in seconds."""

    def __init__(self) -> None:
        self._samples: defaultdict[Labels, Samples] = defaultdict(list)
        self._now = 0.0

    def add(self, text: str, at: float, instance: str = "one") -> ScrapeSeries:
        """Add a scrape of a process, not earlier than the last one; it becomes the time of queries."""
        self._now = at
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = frozenset({**sample.labels, _NAME: sample.name, "instance": instance}.items())
                self._samples[labels].append((at, sample.value))
        return self

    def query(self, text: str) -> Vector:
        """Evaluate an expression."""
        python = _SELECTOR.sub(self._call, text)
        python = re.sub(r"\b(sum|max) by \(([\w, ]+)\) \(", lambda m: f"{m[1]}_({m[2].split(', ')}, ", python)
        python = re.sub(r"\bmax\(", "max_([], ", python)
        python = re.sub(r"\bon \(([\w, ]+)\) (.*)", lambda m: f"on({m[1].split(', ')}, {m[2]})", python)
        # The weakest operator last. Vectors without elements are false.
        for name, sign in ((" and ", " & "), (" unless ", " - "), (" or on () ", " or ")):
            python = sign.join(f"({part})" for part in python.split(name))
        names = {
            "select": self._select, "on": _on, "sum_": _aggregation(sum), "max_": _aggregation(max), "abs": abs,
            "rate": lambda ranged: 1 / ranged[1] * _increases(*ranged), "increase": lambda ranged: _increases(*ranged),
            "histogram_quantile": _quantiles, "time": lambda: self._now,
            "max_over_time": _maxima, "absent": lambda vector: Vector() if vector else Vector({frozenset(): 1}),
        }  # fmt: skip
        found = eval(python, {"__builtins__": {}}, names)  # noqa: S307 - an expression of the chart
        assert isinstance(found, Vector), text
        return found

    @staticmethod
    def _call(selector: re.Match[str]) -> str:
        matchers = re.findall(r'(\w+)(!?=)"([^"]*)"', selector[2] or "")
        window = int(selector[3]) * _SECONDS[selector[4]] if selector[3] else None
        return f"select({selector[1]!r}, {matchers!r}, {window})"

    def _select(self, name: str, matchers: Iterable[tuple[str, str, str]], window: float | None) -> Any:
        """Return the newest values of a selector, or the samples of a range, its length and its end."""
        wanted = [(_NAME, "=", name), *matchers]
        found = {
            labels: samples
            for labels, samples in self._samples.items()
            if all((dict(labels).get(label, "") == value) == (how == "=") for label, how, value in wanted)
        }
        if window is None:
            newest = {labels: samples[-1] for labels, samples in found.items()}
            return Vector({labels: value for labels, (at, value) in newest.items() if at > self._now - _LOOKBACK_S})
        return found, window, self._now


def _on(names: Sequence[str], vector: Vector) -> Vector:
    vector.on = names
    return vector


def _aggregation(how: Callable[[Iterable[float]], float]) -> Callable[[Sequence[str], Vector], Vector]:
    def aggregate(by: Sequence[str], vector: Vector) -> Vector:
        groups: defaultdict[Labels, list[float]] = defaultdict(list)
        for labels, value in vector.items():
            groups[_only(labels, by)].append(value)
        return Vector({labels: how(values) for labels, values in groups.items()})

    return aggregate


def _maxima(ranged: tuple[dict[Labels, Samples], float, float]) -> Vector:
    found, window, end = ranged
    values = {labels: [value for at, value in samples if at > end - window] for labels, samples in found.items()}
    return Vector({_only(labels): max(some) for labels, some in values.items() if some})


def _increases(found: dict[Labels, Samples], window: float, end: float) -> Vector:
    """Return the increases of counters, which may begin again at 0, extrapolated to the range."""
    increases = Vector()
    for labels, every in found.items():
        samples = [sample for sample in every if sample[0] > end - window]
        if len(samples) > 1:
            (first_at, first), (last_at, last) = samples[0], samples[-1]
            resets = (before for (_, before), (_, after) in itertools.pairwise(samples) if after < before)
            raw, sampled = last - first + sum(resets), last_at - first_at
            pause = sampled / (len(samples) - 1)
            edges = [first_at - end + window, end - last_at]
            edges = [pause / 2 if edge >= 1.1 * pause else edge for edge in edges]
            if raw > 0:
                edges[0] = min(edges[0], sampled * first / raw)
            increases[_only(labels)] = raw * (sampled + sum(edges)) / sampled
    return increases


def _quantiles(quantile: float, buckets: Vector) -> Vector:
    """Return a quantile of each histogram, by linear interpolation in its bucket."""
    histograms: defaultdict[Labels, list[tuple[float, float]]] = defaultdict(list)
    for labels, count in buckets.items():
        others = frozenset(pair for pair in labels if pair[0] != "le")
        histograms[others].append((float(dict(labels)["le"]), count))
    found = Vector()
    for labels, bounds in histograms.items():
        bounds.sort()
        rank = quantile * bounds[-1][1]
        if rank:
            index = next(index for index, (_, count) in enumerate(bounds) if count >= rank)
            (below, under), (bound, count) = bounds[index - 1] if index else (0.0, 0.0), bounds[index]
            inside = 0.0 if math.isinf(bound) else (bound - below) * (rank - under) / (count - under)
            found[labels] = below + inside
    return found
