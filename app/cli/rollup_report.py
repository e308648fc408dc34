"""``confplane rollups report``: one HTML page of all current results."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import typer

from app.audit import Database, PostgresRollups
from app.cli import callers
from app.domain.errors import NotFoundError
from app.domain.rollups import ROLLUPS
from app.rollups.report import Result, page
from app.services.ports.rollups import RowQuery
from app.services.reads.rollups import row_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from app.services.ports.rollups import Place, RollupRun
    from app.settings import Settings

_PAGE: Final = 5_000


def run(settings: Settings, cluster: str, output: Path) -> int:
    """Write the page, and return the exit code."""
    return callers.run(_report(settings, cluster, output), "Not written")


async def _report(settings: Settings, cluster: str, output: Path) -> int:
    if cluster not in settings.clusters:
        raise NotFoundError(
            f"The settings have no cluster {cluster!r}; they have: {', '.join(sorted(settings.clusters))}"
        )
    database = Database(settings.postgres.dsn.get_secret_value(), pool_size=settings.postgres.pool_size)
    try:
        results = PostgresRollups(database)
        sections = [await _result(results, cluster, name) for name in ROLLUPS]
        # Rows are read while the page is made, so that they are never all in memory.
        text = await asyncio.to_thread(page, cluster, sections, made=datetime.now(UTC))
    finally:
        await database.close()
    try:
        output.write_text(text, encoding="utf-8")  # noqa: ASYNC240 - the loop has no other work
    except OSError as error:
        typer.echo(f"Not written: {output}: {error.strerror}", err=True)
        return callers.FAILED
    shown = [each.name for each in sections if each.as_of is not None]
    typer.echo(f"{output}: {', '.join(shown) or 'nothing was run yet'}")
    return callers.DONE


async def _result(results: PostgresRollups, cluster: str, name: str) -> Result:
    question, found = ROLLUPS[name].question, await results.run(cluster, name)
    if found is None:
        return Result(name, question)
    rows = (row_of(ROLLUPS[name], row) for row in _rows(results, found, asyncio.get_running_loop()))
    return Result(name, question, rows, found.as_of.astimezone(UTC), str(found.id), found.rows or 0)


def _rows(results: PostgresRollups, found: RollupRun, loop: asyncio.AbstractEventLoop) -> Iterator[dict[str, Any]]:
    """Yield all rows of a run; runs in another thread than the loop's."""
    after: Place | None = None
    while True:
        query = RowQuery(found.id, _PAGE, after=after)
        answer = asyncio.run_coroutine_threadsafe(results.rows(query), loop).result()
        if answer is None:
            raise NotFoundError(f"Run {found.id} was replaced and dropped meanwhile; try again")
        rows, after = answer
        yield from rows
        if after is None:
            return
