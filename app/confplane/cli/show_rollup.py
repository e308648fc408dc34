"""``confplane rollups show``: the current result of a rollup."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from confplane.audit import Database, PostgresRollups
from confplane.cli import callers
from confplane.domain.errors import NotFoundError
from confplane.domain.numbers import plain_number
from confplane.services.reads.rollups import csv_of, item_of, never_run, row_of, selection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from confplane.domain.rollups import Rollup
    from confplane.services.ports.rollups import Place, RollupRun
    from confplane.services.reads.rollups import RollupSelection
    from confplane.settings import Settings

_PAGE: Final = 1_000
_SORTED_PAGE: Final = 100_000
"""Rows of a page in another order than that of the run: each page sorts all rows."""
_WIDTH: Final = 200
"""Line length of output that does not go to a terminal."""


@dataclass(frozen=True, slots=True)
class RollupShowOptions:
    """The options of the command."""

    filters: Mapping[str, str] = field(default_factory=dict)
    """Column -> the value of the rows that are shown."""
    conditions: Sequence[str] = ()
    """Other conditions on these rows, such as ``affected >= 10``."""
    order: str | None = None
    limit: int | None = None
    """Maximum number of rows; None for all."""
    form: Literal["table", "json", "csv"] = "table"


def run(settings: Settings, cluster: str, rollup: Rollup, options: RollupShowOptions) -> int:
    """Print the matching rows, up to the limit, and return the exit code."""
    return callers.run(_show(settings, cluster, rollup, options), "Not shown")


async def _show(settings: Settings, cluster: str, rollup: Rollup, options: RollupShowOptions) -> int:
    if cluster not in settings.clusters:
        raise NotFoundError(
            f"The settings have no cluster {cluster!r}; they have: {', '.join(sorted(settings.clusters))}"
        )
    wanted, limit = selection(rollup, options.filters, options.conditions, options.order), options.limit
    database = Database(settings.postgres.dsn.get_secret_value(), pool_size=settings.postgres.pool_size)
    try:
        results = PostgresRollups(database)
        found = await results.run(cluster, rollup.name)
        if found is None:
            typer.echo(never_run(cluster, rollup.name), err=True)
            return callers.FAILED
        items = [item async for item in _rows(results, found, wanted, None if limit is None else limit + 1)]
    finally:
        await database.close()
    shown = items if limit is None else items[:limit]
    is_data = options.form != "table"
    if options.form == "csv":
        typer.echo(csv_of(rollup, shown), nl=False)
    elif options.form == "json":
        for item in shown:
            # Not orjson, because JSONB returns doubles beyond 64 bits as whole numbers.
            typer.echo(json.dumps(item_of(rollup, item), ensure_ascii=False, separators=(",", ":")))
    else:
        _print(rollup, shown)
    if rollup.scope:
        typer.echo(f"{rollup.scope}.", err=is_data)
    kinds = {item.get("kind") for item in shown}
    for kind, text in rollup.kinds.items():
        if kind in kinds:
            typer.echo(f"{kind}: {text}.", err=is_data)
    more = "; there are more, see --limit" if len(items) > len(shown) else ""
    typer.echo(
        f"{len(shown)} of {found.rows} rows{more}. As of {found.as_of:%Y-%m-%d %H:%M:%S} UTC, run {found.id} by"
        f" {found.principal}{_began(found)}",
        err=is_data,
    )
    return callers.DONE


def _began(found: RollupRun) -> str:
    """Return the place from which a run read the trail, if that is not the trail's beginning."""
    if found.folded is None:
        return ""
    return f"; changes up to revision {found.folded} by the fold of run {found.previous}"


async def _rows(
    results: PostgresRollups, run: RollupRun, wanted: RollupSelection, most: int | None
) -> AsyncIterator[dict[str, Any]]:
    after: Place | None = None
    left = most
    largest = _SORTED_PAGE if wanted.order else _PAGE
    while left is None or left > 0:
        size = largest if left is None else min(largest, left)
        page = await results.rows(wanted.query(run.id, size, after))
        if page is None:
            raise NotFoundError(f"Run {run.id} was replaced and dropped meanwhile; try again")
        items, after = page
        for item in items:
            yield item
        if after is None:
            return
        left = None if left is None else left - len(items)


def _print(rollup: Rollup, items: list[dict[str, Any]]) -> None:
    console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in rollup.columns:
        table.add_column(column.name, overflow="fold", justify="right" if column.is_number else "left")
    for item in items:
        table.add_row(*map(_cell, row_of(rollup, item).values()))
    console.print(table)


def _cell(value: Any) -> Text:
    # Rendered as text: names may look like markup.
    if value is None:
        return Text("-", style="dim")
    if isinstance(value, list):
        return Text(" ".join(value))
    if isinstance(value, float):
        return Text(plain_number(value))
    return Text(str(value).lower() if isinstance(value, bool) else str(value))
