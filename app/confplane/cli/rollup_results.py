"""``confplane rollups show`` and ``report``: the current results."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import typer

from confplane.audit import Database, PostgresRollups
from confplane.cli import callers
from confplane.cli.output import echo, escape, print_table
from confplane.domain.errors import ConcurrentChangeError, NotFoundError
from confplane.domain.numbers import plain_number
from confplane.domain.rollups import ROLLUPS
from confplane.rollups.cells import Links
from confplane.rollups.charts import png
from confplane.rollups.report import RollupResult, page, section
from confplane.services.ports.rollups import JobRuns, RowQuery, RunState
from confplane.services.reads.rollups import csv_of, item_of, never_run, row_of, selection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from pathlib import Path

    from confplane.domain.rollups import Rollup
    from confplane.rollups.report import Section
    from confplane.services.ports.rollups import Place, RollupRun
    from confplane.services.reads.rollups import RollupSelection
    from confplane.settings import Settings


_PAGE: Final = 1_000
_SORTED_PAGE: Final = 100_000
"""Rows of a page in another order than that of the run: each page sorts all rows."""


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


def show(settings: Settings, cluster: str, rollup: Rollup, options: RollupShowOptions) -> int:
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
            echo(never_run(cluster, rollup.name), err=True)
            return callers.FAILED
        items = [item async for item in _rows(results, found, wanted, None if limit is None else limit + 1)]
    finally:
        await database.close()
    shown = items if limit is None else items[:limit]
    is_data = options.form != "table"
    if options.form == "csv":
        text = csv_of(rollup, shown)
        typer.echo(escape(text.replace("\r", "")) if sys.stdout.isatty() else text, nl=False)  # a file has the values
    elif options.form == "json":
        for item in shown:
            # Not orjson, because JSONB returns doubles beyond 64 bits as whole numbers.
            echo(json.dumps(item_of(rollup, item), ensure_ascii=False, separators=(",", ":")))
    else:
        _print(rollup, shown)
    if rollup.scope:
        echo(f"{rollup.scope}.", err=is_data)
    kinds = {item.get("kind") for item in shown}
    for kind, text in rollup.kinds.items():
        if kind in kinds:
            echo(f"{kind}: {text}.", err=is_data)
    more = "; there are more, see --limit" if len(items) > len(shown) else ""
    echo(
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
    print_table(
        [column.name for column in rollup.columns],
        ([_cell(value) for value in row_of(rollup, item).values()] for item in items),
        right=[column.name for column in rollup.columns if column.is_number],
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return " ".join(value)
    if isinstance(value, float):
        return plain_number(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


_INTEGRITY: Final = "integrity"
_REPORT_PAGE: Final = 5_000


@dataclass(frozen=True, slots=True)
class RollupReportOptions:
    """The options of the command."""

    output: Path
    """The file of the page."""
    pictures: Path | None = None
    """The directory of the charts as PNG files."""
    base_url: str | None = None
    """The address of the service, for links."""


def report(settings: Settings, cluster: str, options: RollupReportOptions) -> int:
    """Write the page and the pictures, and return the exit code."""
    return callers.run(_report(settings, cluster, options), "Not written")


async def _report(settings: Settings, cluster: str, options: RollupReportOptions) -> int:
    if cluster not in settings.clusters:
        raise NotFoundError(
            f"The settings have no cluster {cluster!r}; they have: {', '.join(sorted(settings.clusters))}"
        )
    database = Database(settings.postgres.dsn.get_secret_value(), pool_size=settings.postgres.pool_size)
    try:
        results = PostgresRollups(database)
        runs, made = await results.runs(cluster), datetime.now(UTC)
        found = [await _result(results, name, runs.get(name, JobRuns(None, None)), made) for name in ROLLUPS]
        links = Links(options.base_url, cluster)
        # Rows are read while the sections are made, so that they are never all in memory.
        sections = await asyncio.to_thread(lambda: [section(each, links) for each in found])
    finally:
        await database.close()
    try:
        options.output.write_text(page(cluster, sections, made=made), encoding="utf-8")
        drawn = 0 if options.pictures is None else _draw(options.pictures, sections)
    except OSError as error:
        echo(f"Not written: {error.filename}: {error.strerror}", err=True)
        return callers.FAILED
    shown = [each.name for each in found if each.as_of is not None]
    echo(f"{options.output}: {', '.join(shown) or 'nothing was run yet'}")
    if options.pictures is not None:
        echo(f"{options.pictures}: {callers.pluralize(drawn, 'picture', 'pictures')}")
    return callers.DONE


def _draw(directory: Path, sections: Sequence[Section]) -> int:
    """Write all charts as PNG files, named after their titles, and return their number."""
    directory.mkdir(parents=True, exist_ok=True)
    pictures = [(each.result.name, picture) for each in sections for picture in each.pictures]
    for name, picture in pictures:
        path = directory / f"{name}-{picture.title.lower().replace(' ', '-')}.png"
        path.write_bytes(png(picture))
    return len(pictures)


async def _result(results: PostgresRollups, name: str, runs: JobRuns, now: datetime) -> RollupResult:
    question, found, failure = ROLLUPS[name].question, runs.current, _failure(runs)
    if found is None:
        return RollupResult(name, question, failure=failure)
    rows = (row_of(ROLLUPS[name], row) for row in _rows_of_run(results, found, asyncio.get_running_loop()))
    pending = await results.count(found.id, {"pending": True}) if name == _INTEGRITY else 0
    as_of = found.as_of.astimezone(UTC)
    return RollupResult(name, question, rows, as_of, str(found.id), found.rows or 0, pending, failure, now - as_of)


def _failure(runs: JobRuns) -> str:
    """Return the outcome of the last run in words if it was not complete, otherwise an empty text."""
    last = runs.latest
    if last is None or last.state not in {RunState.FAILED, RunState.LOST}:
        return ""
    why = last.error if last.state is RunState.FAILED else "its process ended before it was done"
    return f"the run of {last.started_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC failed: {why}"


def _rows_of_run(
    results: PostgresRollups, found: RollupRun, loop: asyncio.AbstractEventLoop
) -> Iterator[dict[str, Any]]:
    """Yield all rows of a run. This runs outside the event loop's thread."""
    after: Place | None = None
    while True:
        query = RowQuery(found.id, _REPORT_PAGE, after=after)
        answer = asyncio.run_coroutine_threadsafe(results.rows(query), loop).result()
        if answer is None:
            raise ConcurrentChangeError(f"Run {found.id} was replaced and dropped meanwhile; try again")
        rows, after = answer
        yield from rows
        if after is None:
            return
