"""One HTML page of all current results, with pictures, readable without a network.

The page has no script at all: the charts are drawn here, and are images in the page. Names in a cluster are chosen by
its users, so every text is escaped.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from app.domain.rollups import ROLLUPS
from app.pages import inline, render
from app.rollups.charts import summary, svg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from app.rollups.charts import Picture

ROWS: Final = 25
"""Rows of each result that are listed."""

_INTEGRITY: Final = "integrity"
_STYLE: Final = inline("report.css")


@dataclass(frozen=True, slots=True)
class Result:
    """A rollup's current run; a rollup that never ran has none.

    Attributes:
        name: The rollup's name.
        question: The question that the rollup answers.
        rows: The rows, each with the columns by name, in the order in which they are listed. They are read once, in any
            number.
        as_of: The moment that the rows describe; None where the rollup never ran.
        run_id: The id of the run.
        count: The number of rows.
    """

    name: str
    question: str
    rows: Iterable[Mapping[str, Any]] = ()
    as_of: datetime | None = None
    run_id: str = ""
    count: int = 0

    @property
    def headline(self) -> str:
        """The result in one line."""
        if self.as_of is None:
            return "not run yet"
        found = f"{self.count:,} {'row' if self.count == 1 else 'rows'}"
        if self.name == _INTEGRITY:
            found = f"{self.count:,} {'mismatch' if self.count == 1 else 'mismatches'}" if self.count else "no mismatch"
        return f"{found}, as of {self.as_of:%Y-%m-%d %H:%M} UTC"

    @property
    def verdict(self) -> str:
        """The colour of the line: ``good`` or ``bad`` of ``integrity``, ``plain`` of results that are neither."""
        if self.name != _INTEGRITY or self.as_of is None:
            return "plain"
        return "bad" if self.count else "good"

    @property
    def command(self) -> str:
        """The command that runs the rollup."""
        return ROLLUPS[self.name].command


def page(cluster: str, results: Sequence[Result], *, made: datetime) -> str:
    """Return the page.

    Args:
        cluster: The cluster's name.
        results: The results, in the order of the page.
        made: The time of the page, UTC.
    """
    return render(
        "report.html",
        style=_STYLE,
        cluster=cluster,
        overview=sorted(results, key=lambda result: result.name != _INTEGRITY),
        results=results,
        made=made,
        summarized=_summarized,
        drawn=_drawn,
    )


@dataclass(frozen=True, slots=True)
class _Shown:
    """The listed rows of a section, and their summary."""

    facts: Sequence[str]
    pictures: Sequence[Picture]
    first: Sequence[Mapping[str, Any]]
    """The rows that are listed."""


def _summarized(result: Result) -> _Shown:
    first: list[Mapping[str, Any]] = []
    found = summary(result.name, _kept(result.rows, first))
    return _Shown(found.facts, found.pictures, first)


def _kept(rows: Iterable[Mapping[str, Any]], first: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Pass rows on, and keep the first ones."""
    remaining = iter(rows)
    for row in islice(remaining, ROWS):
        first.append(row)
        yield row
    yield from remaining


def _drawn(picture: Picture) -> str:
    return base64.b64encode(svg(picture).encode()).decode()
