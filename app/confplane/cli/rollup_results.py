"""``confplane rollups report``, and ``rollups show`` on Postgres: the current results."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from confplane.audit import Database, PostgresRollups
from confplane.cli import callers
from confplane.cli.output import emit, print_error, say
from confplane.domain.errors import ConcurrentChangeError, NotFoundError
from confplane.domain.rollups import ROLLUPS
from confplane.files import open_output
from confplane.rollups.cells import Links
from confplane.rollups.charts import png
from confplane.rollups.report import RollupResult, page, section
from confplane.services.ports.rollups import JobRuns, RowQuery, RunState
from confplane.services.reads.rollups import item_of, rollup_run, row_of, selection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from confplane.cli.remote.rollup_reads import ResultQuery
    from confplane.domain.rollups import Rollup
    from confplane.rollups.report import Section
    from confplane.services.ports.rollups import Place, RollupRun
    from confplane.services.reads.rollups import RollupSelection
    from confplane.settings import Settings


_PAGE: Final = 1_000
_SORTED_PAGE: Final = 100_000
"""Rows of a page in another order than that of the run: each page sorts all rows."""


async def read_result(
    settings: Settings, cluster: str, rollup: Rollup, query: ResultQuery
) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    """Return the current run and its selected rows from Postgres, as the API does. Returns None if it was never run.

    Raises:
        NotFoundError: The settings have no such cluster.
        InvalidRequestError: The query is not valid.
        UnavailableError: Postgres is not available.
    """
    settings.cluster(cluster)
    wanted = selection(rollup, query.equal, query.conditions, query.order)
    database = Database(settings.postgres.dsn.get_secret_value(), pool_size=settings.postgres.pool_size)
    try:
        results = PostgresRollups(database)
        found = await results.run(cluster, rollup.name)
        if found is None:
            return None
        rows = [item_of(rollup, row) async for row in _rows(results, found, wanted, query.most)]
    finally:
        await database.close()
    return rollup_run(found), rows


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
            raise NotFoundError(f"Run {run.id} was replaced and dropped in the meantime. Try again.")
        items, after = page
        for item in items:
            yield item
        if after is None:
            return
        left = None if left is None else left - len(items)


_INTEGRITY: Final = "integrity"
_REPORT_PAGE: Final = 5_000


@callers.command("Not written")
async def report(
    settings: Settings, cluster: str, output: Path, pictures: Path | None = None, base_url: str | None = None
) -> int:
    """Write the page and the pictures, and return the exit code.

    Args:
        settings: The settings of the service.
        cluster: The cluster's name.
        output: The file of the page.
        pictures: The directory of the charts as PNG files.
        base_url: The address of the service, for links.
    """
    settings.cluster(cluster)
    database = Database(settings.postgres.dsn.get_secret_value(), pool_size=settings.postgres.pool_size)
    try:
        results = PostgresRollups(database)
        runs, made = await results.runs(cluster), datetime.now(UTC)
        found = [await _result(results, name, runs.get(name, JobRuns(None, None)), made) for name in ROLLUPS]
        links = Links(base_url, cluster)
        # Rows are read while the sections are made, so that they are never all in memory.
        sections = await asyncio.to_thread(lambda: [section(each, links) for each in found])
    finally:
        await database.close()
    place, drawn = output, 0
    try:
        with open_output(output) as file:
            file.write(page(cluster, sections, made=made))
        if pictures is not None:
            place = pictures
            drawn = _draw(pictures, sections)
    except OSError as error:
        return print_error(f"Not written: {place}: {error.strerror}", callers.FAILED)
    shown = [each.name for each in found if each.as_of is not None]
    emit(output=str(output), rollups=shown, pictures=drawn)
    say(f"{output}: {', '.join(shown) or 'nothing was run yet'}")
    if pictures is not None:
        say(f"{pictures}: {callers.pluralize(drawn, 'picture', 'pictures')}")
    return callers.DONE


def _draw(directory: Path, sections: Sequence[Section]) -> int:
    """Write all charts as PNG files, named after their titles, and return their number."""
    directory.mkdir(parents=True, exist_ok=True)
    pictures = [(each.result.name, picture) for each in sections for picture in each.pictures]
    for name, picture in pictures:
        path = directory / f"{name}-{picture.title.lower().replace(' ', '-')}.png"
        with open_output(path) as file:
            file.buffer.write(png(picture))
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
            raise ConcurrentChangeError(f"Run {found.id} was replaced and dropped in the meantime. Try again.")
        rows, after = answer
        yield from rows
        if after is None:
            return
