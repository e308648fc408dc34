"""Results of rollups: read over the API, and printed as a table, as JSON or as CSV."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import typer

from confplane.cli.output import echo, escape, is_json, print_json, print_table, value_text
from confplane.cli.remote.session import DONE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.client import AsyncConfplane
    from confplane.domain.rollups import Rollup

_LARGEST_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class ResultQuery:
    """The selected rows of a rollup."""

    equal: Mapping[str, str]
    """Values of columns."""
    conditions: Sequence[str]
    """Other conditions, such as ``affected >= 10``."""
    order: str | None
    most: int | None
    """Maximum number of rows; None for all."""


async def list_rollups(client: AsyncConfplane) -> None:
    """Print all rollups with their runs."""
    items = (await client.rollups.list()).body["items"]
    if is_json():
        for item in items:
            print_json(item)
        return
    rows = []
    for item in items:
        run, last = item["run"], item["lastAttempt"]
        state = "-" if last is None else ": ".join(filter(None, (last["state"], last["error"])))
        as_of, number = ("-", "-") if run is None else (run["asOf"], str(run["rows"]))
        rows.append((item["name"], as_of, number, state, item["question"]))
    print_table(("ROLLUP", "AS OF", "ROWS", "LAST RUN", "QUESTION"), rows, right=("ROWS",))


async def read_result(
    client: AsyncConfplane, rollup: Rollup, query: ResultQuery
) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """Return the current run and its selected rows."""
    reading = {"filter": ",".join(query.conditions) or None, "order_by": query.order}
    size = _LARGEST_PAGE if query.most is None else min(query.most, _LARGEST_PAGE)
    pages = getattr(client.rollups, rollup.name)(query.equal, page_size=size, **reading).pages()
    run: Mapping[str, Any] = {}
    rows: list[Mapping[str, Any]] = []
    async for page in pages:
        run = page["run"]
        rows += page["items"]
        if query.most is not None and len(rows) >= query.most:
            return run, rows[: query.most]
    return run, rows


def print_result(
    rollup: Rollup,
    run: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    *,
    limit: int | None,
    form: Literal["table", "json", "csv"],
) -> int:
    """Print rows up to a limit, and the run. All rows but those are counted as further rows."""
    shown = rows if limit is None else rows[:limit]
    names = [column.name for column in rollup.columns]
    table = [[row[column.member] for column in rollup.columns] for row in shown]
    if form == "json":
        for row in shown:
            print_json(row)
    elif form == "csv":
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(names)
        writer.writerows([_text(value, "") for value in row] for row in table)
        found = text.getvalue()  # a file gets the values as they are
        typer.echo(escape(found.replace("\r", "")) if sys.stdout.isatty() else found, nl=False)
    else:
        numbers = [column.name for column in rollup.columns if column.is_number]
        print_table(names, ([_text(value, "-") for value in row] for row in table), right=numbers)
    is_data = form != "table"
    if rollup.scope:
        echo(f"{rollup.scope}.", err=is_data)
    kinds = {row.get("kind") for row in shown}
    for kind, text_of_kind in rollup.kinds.items():
        if kind in kinds:
            echo(f"{kind}: {text_of_kind}.", err=is_data)
    more = "; --limit ends the list" if len(rows) > len(shown) else ""
    folded = run["revisions"]["folded"]
    fold = "" if folded is None else f"; changes up to revision {folded} by the fold of run {run['previous']}"
    echo(
        f"{len(shown)} of {run['rows']} rows{more}. As of {run['asOf']}, run {run['id']} by {run['principal']}{fold}",
        err=is_data,
    )
    return DONE


def _text(value: Any, absent: str) -> str:
    if value is None:
        return absent
    return " ".join(value) if isinstance(value, list) else value_text(value)
