"""One HTML page of all current results, with pictures, readable without a network.

The page has no script at all: the charts are drawn here, and are images in the page. Names in a cluster are chosen by
its users, so every text is escaped. For each result, the page lists the most notable rows.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.rollups import ROLLUPS
from confplane.pages import inline, render
from confplane.rollups.cells import cells
from confplane.rollups.charts import svg
from confplane.rollups.notable_rows import NotableRows
from confplane.rollups.summaries import Summary, summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from confplane.rollups.cells import Cell, Links
    from confplane.rollups.charts import Picture

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
