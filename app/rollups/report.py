"""One HTML page of all current results, with pictures, that is read without a network.

It holds no script at all: the charts are drawn here, and stand in the page as images. Names in a cluster are what its
users chose, so every text is escaped.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from app.pages import inline, render
from app.rollups.charts import summary, svg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from app.rollups.charts import Picture

ROWS: Final = 25
"""Of each result that are shown as they are."""

_STYLE: Final = inline("report.css")


@dataclass(frozen=True, slots=True)
class Result:
    """A rollup's current run; without one it was never run.

    Attributes:
        name: The rollup's.
        question: What it answers.
        rows: Each with the columns by name. They are read once, however many there are.
        as_of: The moment that they tell of; None where it was never run.
        run_id: Of the run.
        count: How many rows there are.
    """

    name: str
    question: str
    rows: Iterable[Mapping[str, Any]] = ()
    as_of: datetime | None = None
    run_id: str = ""
    count: int = 0


def page(cluster: str, results: Sequence[Result], *, made: datetime) -> str:
    """Return the page.

    Args:
        cluster: The cluster's name.
        results: In the order in which they are shown.
        made: When it is made, UTC.
    """
    return render(
        "report.html", style=_STYLE, cluster=cluster, results=results, made=made, summarized=_summarized, drawn=_drawn
    )


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a section shows of its rows."""

    facts: Sequence[str]
    pictures: Sequence[Picture]
    first: Sequence[Mapping[str, Any]]
    """The rows that are shown as they are."""


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
