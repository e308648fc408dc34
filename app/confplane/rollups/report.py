"""One HTML page of all current results, with pictures, readable without a network.

The page has no script at all: the charts are drawn here, and are images in the page. Names in a cluster are chosen by
its users, so every text is escaped. For each result, the page lists the most notable rows.
"""

from __future__ import annotations

import base64
import heapq
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.rollups import ROLLUPS
from confplane.pages import inline, render
from confplane.rollups.cells import cells
from confplane.rollups.charts import svg
from confplane.rollups.summaries import Summary, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from confplane.rollups.cells import Cell, Links
    from confplane.rollups.charts import Picture


_KINDS: Final = {kind: place for place, kind in enumerate(ROLLUPS["integrity"].kinds)}


@dataclass(frozen=True, slots=True)
class _Order:
    """The order of a rollup's rows by their significance.

    Attributes:
        weight: Row -> numbers, larger for more notable rows.
        description: The order, in words.
        group: The column whose values have different units. Each value gets its share of the rows.
    """

    weight: Callable[[Mapping[str, Any]], tuple[float, ...]]
    description: str
    group: str | None = None


_ORDERS: Final[dict[str, _Order]] = {
    "activity": _Order(
        lambda row: (row["rejected_keys"] + row["open_keys"] + row["reverted_keys"], row["committed_keys"]),
        "with the most keys that were refused, are open or were set back",
    ),
    "compare": _Order(
        lambda row: (row["same_effective"] is not True, row["kind"] != "differs"),
        "that differ in effect before those that do not",
    ),
    "compatibility": _Order(lambda row: (-len(row["common_configs"]),), "that support the fewest configs"),
    "drift": _Order(
        lambda row: (row["rank"] > 1, row["total"] - row["entities"]), "with the rarest values of the most entities"
    ),
    "impact": _Order(lambda row: (row["affected"], row["overridden"]), "whose change the most would see"),
    "integrity": _Order(
        lambda row: (not row["pending"], -_KINDS.get(row["kind"], 0)), "that will not go away, the worst kinds first"
    ),
    "quotas": _Order(
        lambda row: (not row["entity_id"], row["unreadable"], _or_less(row["value"])),
        "of all clients, those that can't be read, and the largest quotas",
        "config_key",
    ),
    "usage": _Order(
        lambda row: (not row["budget"], _or_less(row["throttled_share"]), row["peak"]),
        "of all clients, and those throttled most",
        "config_key",
    ),
}


def _or_less(value: float | None) -> float:
    return -1.0 if value is None else value


class NotableRows:
    """Keeps the most notable rows of a rollup.

    Args:
        name: The rollup.
        most: The number of rows to keep.
    """

    def __init__(self, name: str, most: int) -> None:
        self._order = _ORDERS[name]
        self._most = most
        self._heaps: dict[str, list[tuple[tuple[float, ...], int, Mapping[str, Any]]]] = {}
        self._seen = 0

    @property
    def description(self) -> str:
        """The order of the rows, in words that follow "rows"."""
        return self._order.description

    def passing(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield all rows, and keep the most notable ones."""
        for row in rows:
            self._seen += 1
            group = "" if self._order.group is None else row[self._order.group]
            heap = self._heaps.setdefault(group, [])
            # Of equally notable rows, the first ones are kept.
            entry = (self._order.weight(row), -self._seen, row)
            if len(heap) < self._most:
                heapq.heappush(heap, entry)
            elif entry[:2] > heap[0][:2]:
                heapq.heapreplace(heap, entry)
            yield row

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Return the kept rows group by group, the most notable row of each group first."""
        each = max(1, self._most // max(1, len(self._heaps)))
        found = [heapq.nlargest(each, heap) for _, heap in sorted(self._heaps.items())]
        return [row for heap in found for _, _, row in heap]


ROWS: Final = 25
"""Rows of each result that are listed."""

_INTEGRITY: Final = "integrity"
_OLD: Final = timedelta(days=2)
"""The age above which the headline shows it: a daily run was missed, as in the alert on ``integrity``."""
_STYLE: Final = inline("console.css", "report.css")


@dataclass(frozen=True, slots=True)
class RollupResult:
    """A rollup's current run; a rollup that never ran has none.

    Attributes:
        name: The rollup's name.
        question: The question that the rollup answers.
        rows: The rows, each with the columns by name, in the order in which they are listed. They are read once, and
            there may be any number.
        as_of: The moment that the rows describe; None if the rollup never ran.
        run_id: The id of the run.
        count: The number of rows.
        pending: Of ``integrity``, the number of mismatches that may go away by themselves.
        failure: The outcome of the last run in words if it was not complete, otherwise empty.
        age: The age of the moment; None if the rollup never ran.
    """

    name: str
    question: str
    rows: Iterable[Mapping[str, Any]] = ()
    as_of: datetime | None = None
    run_id: str = ""
    count: int = 0
    pending: int = 0
    failure: str = ""
    age: timedelta | None = None

    @property
    def headline(self) -> str:
        """The result in one line."""
        found = ["not run yet"]
        if self.as_of is not None:
            found = [f"{self._counted}, as of {self.as_of:%Y-%m-%d %H:%M} UTC"]
        if self._is_old and self.age is not None:
            found.append(f"{self.age.days} days old")
        return "; ".join([*found, *([self.failure] if self.failure else [])])

    @property
    def _counted(self) -> str:
        if self.name != _INTEGRITY:
            return f"{self.count:,} {'row' if self.count == 1 else 'rows'}"
        if not self.count:
            return "no mismatch"
        found = f"{self.count:,} {'mismatch' if self.count == 1 else 'mismatches'}"
        return f"{found}, {self.pending:,} of which may go away" if self.pending else found

    @property
    def _is_old(self) -> bool:
        return self.age is not None and self.age >= _OLD

    @property
    def status_class(self) -> str:
        """The CSS class of the line: ``good`` or ``bad`` for ``integrity``, ``plain`` for all other results.

        A failed last run of any rollup is ``bad``. Mismatches that may go away are neither, as for the gate and the
        alert. An old result is not ``good`` either.
        """
        if self.failure or (self.name == _INTEGRITY and self.count > self.pending):
            return "bad"
        is_good = self.name == _INTEGRITY and self.as_of is not None and not self.count and not self._is_old
        return "good" if is_good else "plain"

    @property
    def command(self) -> str:
        """The command that runs the rollup."""
        return ROLLUPS[self.name].command


@dataclass(frozen=True, slots=True)
class Section:
    """The part of the page about one result.

    Attributes:
        result: The result; its rows are read.
        facts: Sentences with the totals.
        pictures: The charts.
        columns: The names of the columns.
        rows: The cells of the listed rows.
        listed: The selection of these rows, in words.
        link: The address of all rows in the API; empty if the page has no links.
    """

    result: RollupResult
    facts: Sequence[str]
    pictures: Sequence[Picture]
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    listed: str
    link: str


def section(result: RollupResult, links: Links) -> Section:
    """Return the section of a result, and read its rows."""
    notable = NotableRows(result.name, ROWS)
    found = summary(result.name, notable.passing(result.rows)) if result.as_of is not None else Summary((), ())
    rows = notable.rows()
    listed = (
        "All rows"
        if len(rows) == result.count
        else f"{len(rows)} of {result.count:,} rows: those {notable.description}"
    )
    return Section(
        result,
        found.facts,
        found.pictures,
        list(rows[0]) if rows else (),
        [cells(result.name, row, links) for row in rows],
        listed,
        links.to(f"rollups/{result.name}"),
    )


def page(cluster: str, sections: Sequence[Section], *, made: datetime) -> str:
    """Return the page.

    Args:
        cluster: The cluster's name.
        sections: The sections, in the order of the page.
        made: The creation time of the page, UTC.
    """
    return render(
        "report.html",
        style=_STYLE,
        cluster=cluster,
        overview=sorted((each.result for each in sections), key=lambda result: result.name != _INTEGRITY),
        sections=sections,
        made=made,
        drawn=_drawn,
    )


def _drawn(picture: Picture) -> str:
    return base64.b64encode(svg(picture).encode()).decode()
