"""One HTML page of all current results, with pictures, that is read without a network.

It holds no script at all: the charts are drawn here, and stand in the page as images. Names in a cluster are what its
users chose, so every text is escaped.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from app.rollups.charts import summary, svg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from app.rollups.charts import Picture

ROWS: Final = 25
"""Of each result that are shown as they are."""

_STYLE: Final = """
:root { color-scheme: light; }
body { font: 15px/1.5 Helvetica, Arial, sans-serif; color: #222; margin: 0 auto; max-width: 60rem; padding: 2rem 1rem; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.25rem; margin: 3rem 0 .25rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 0; }
.note { color: #666; font-size: .85rem; margin: 0 0 .5rem; }
nav a { margin-right: 1rem; } a { color: #3b6ea5; }
img { max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .8rem; }
th, td { border-bottom: 1px solid #ddd; padding: .2rem .6rem; text-align: left; vertical-align: top; }
td { max-width: 22rem; overflow-wrap: anywhere; } td.number { text-align: right; white-space: nowrap; }
.none { color: #aaa; }
"""


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
    return "\n".join(_page(cluster, results, made))


def _page(cluster: str, results: Sequence[Result], made: datetime) -> Iterator[str]:
    title = escape(f"Rollups of {cluster}")
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    # Even a text that slipped through would do nothing.
    yield (
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
    )
    yield f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>"
    yield f'<p class="note">Made {made:%Y-%m-%d %H:%M} UTC by Confplane.</p>'
    yield "<nav>" + " ".join(f'<a href="#{escape(each.name)}">{escape(each.name)}</a>' for each in results) + "</nav>"
    for each in results:
        yield from _section(each)
    yield "</body>\n</html>\n"


def _section(result: Result) -> Iterator[str]:
    yield f'<h2 id="{escape(result.name)}">{escape(result.name.capitalize())}</h2>\n<p>{escape(result.question)}</p>'
    if result.as_of is None:
        yield f'<p class="note">Not run yet: confplane rollups run {escape(result.name)}</p>'
        return
    yield (
        f'<p class="note">As of {result.as_of:%Y-%m-%d %H:%M:%S} UTC; {result.count:,} rows;'
        f" run {escape(result.run_id)}.</p>"
    )
    shown: list[Mapping[str, Any]] = []
    found = summary(result.name, _kept(result.rows, shown))
    for fact in found.facts:
        yield f"<p>{escape(fact)}</p>"
    for picture in found.pictures:
        yield _figure(picture)
    if shown:
        more = f"The first {len(shown)} of {result.count:,} rows" if result.count > len(shown) else "All rows"
        yield f'<details><summary>{more}</summary>\n<div class="wide">{_table(shown)}</div></details>'


def _kept(rows: Iterable[Mapping[str, Any]], first: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Pass rows on, and keep the first ones."""
    remaining = iter(rows)
    for row in islice(remaining, ROWS):
        first.append(row)
        yield row
    yield from remaining


def _figure(picture: Picture) -> str:
    image = base64.b64encode(svg(picture).encode()).decode()
    return (
        f'<h3>{escape(picture.title)}</h3>\n<p class="note">{escape(picture.caption)}</p>\n'
        f'<img alt="{escape(picture.title)}" src="data:image/svg+xml;base64,{image}">'
    )


def _table(rows: list[Mapping[str, Any]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "\n".join(f"<tr>{''.join(map(_cell, row.values()))}</tr>" for row in rows)
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def _cell(value: Any) -> str:
    if value is None:
        return '<td class="none">-</td>'
    if isinstance(value, (list, tuple)):
        return f"<td>{escape(' '.join(value))}</td>"
    if isinstance(value, float):
        return f'<td class="number">{value:,.6g}</td>'
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td class="number">{value}</td>'
    return f"<td>{escape(str(value))}</td>"
