"""``confplane upgrade-keys``: writes configs that Kafka renamed under their new names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from confplane.cli import callers
from confplane.cli.progress import bar
from confplane.services.upkeep.renames import RenameService
from confplane.wiring import open_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.definitions import ConfigKind
    from confplane.services.upkeep.renames import RenameResult
    from confplane.settings import Settings


def run(
    settings: Settings, cluster: str, *, apply: bool, table: Mapping[ConfigKind, Mapping[str, str]] | None = None
) -> int:
    """Show the entities that lack new names, write the names if ``apply``, and return the exit code.

    Args:
        settings: The settings, with the cluster.
        cluster: The cluster's name.
        apply: Write.
        table: Renames; None is the catalog's.
    """
    return callers.run(_upgrade(settings, cluster, apply=apply, table=table), "Not upgraded", resumable=True)


async def _upgrade(
    settings: Settings, cluster: str, *, apply: bool, table: Mapping[ConfigKind, Mapping[str, str]] | None
) -> int:
    async with open_cluster(settings, cluster) as parts:
        service = RenameService(parts.alter, parts.clusters.get(cluster), table)
        if not service.known:
            typer.echo("Kafka has renamed no config that can be dynamic; there is nothing to do")
            return callers.DONE
        lacking = service.lacking()
        failed = 0
        with bar("Topics and brokers", len(lacking)) as advance:
            async for result in service.run(lacking, callers.caller("renamed by Kafka"), apply=apply):
                failed += result.error is not None
                for line in _lines(result, apply=apply):
                    typer.echo(line, err=result.error is not None)
                advance()
    typer.echo(
        f"{len(lacking) - failed} of {len(lacking)} topics and brokers {'done' if apply else 'would be written'}"
    )
    if lacking and not apply:
        typer.echo("Nothing was written; --apply writes, one change each. The old names stay until you delete them")
    return callers.FAILED if failed else callers.DONE


def _lines(result: RenameResult, *, apply: bool) -> list[str]:
    if result.error is not None:
        return [f"{result.entity_id}: {result.error}"]
    verb = "written" if apply else "would be written"
    return [f"{result.entity_id}: {item.new} {verb} with the value of {item.old}" for item in result.renamed]
