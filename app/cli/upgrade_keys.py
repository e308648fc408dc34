"""``confplane upgrade-keys``: configs that Kafka renamed, written under their new names."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.cli import callers
from app.services.upkeep.renames import RenameService
from app.wiring import opened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app.domain.definitions import Kind
    from app.services.upkeep.renames import RenameResult
    from app.settings import Settings


def run(settings: Settings, cluster: str, *, apply: bool, table: Mapping[Kind, Mapping[str, str]] | None = None) -> int:
    """Show the entities that lack new names, write the names where ``apply``, and return the exit code.

    Args:
        settings: The settings, with the cluster.
        cluster: The cluster's name.
        apply: Write.
        table: Renames; None is the catalog's.
    """
    return callers.run(_upgrade(settings, cluster, apply=apply, table=table), "Not upgraded", resumable=True)


async def _upgrade(
    settings: Settings, cluster: str, *, apply: bool, table: Mapping[Kind, Mapping[str, str]] | None
) -> int:
    async with opened(settings, cluster) as parts:
        service = RenameService(parts.alter, parts.clusters.get(cluster), table)
        if not service.known:
            typer.echo("Kafka has renamed no config that can be dynamic; there is nothing to do")
            return callers.DONE
        lacking = service.lacking()
        failed = 0
        with _progress() as progress:
            task = progress.add_task("", total=len(lacking))
            async for result in service.run(lacking, callers.caller("renamed by Kafka"), apply=apply):
                failed += result.error is not None
                for line in _lines(result, apply=apply):
                    typer.echo(line, err=result.error is not None)
                progress.advance(task)
    typer.echo(
        f"{len(lacking) - failed} of {len(lacking)} topics and brokers {'done' if apply else 'would be written'}"
    )
    if lacking and not apply:
        typer.echo("Nothing was written; --apply writes, one change each. The old names stay until you delete them")
    return callers.FAILED if failed else callers.DONE


def _progress() -> Progress:
    """Return a bar on standard error, where that is a terminal; lines printed to a file still reach the file."""
    columns = (TextColumn("Topics and brokers"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, redirect_stdout=sys.stdout.isatty(), disable=not console.is_terminal)


def _lines(result: RenameResult, *, apply: bool) -> list[str]:
    if result.error is not None:
        return [f"{result.entity_id}: {result.error}"]
    verb = "written" if apply else "would be written"
    return [f"{result.entity_id}: {item.new} {verb} with the value of {item.old}" for item in result.renamed]
