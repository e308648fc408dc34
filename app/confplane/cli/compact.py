"""``confplane compact``: removal of znodes that no longer hold a config."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from confplane.cli import callers
from confplane.cli.progress import bar
from confplane.services.upkeep.compact import CompactService
from confplane.wiring import open_cluster

if TYPE_CHECKING:
    from confplane.services.upkeep.compact import CompactResult
    from confplane.settings import Settings


def run(settings: Settings, cluster: str, *, older_than_s: float, apply: bool) -> int:
    """Show the znodes to remove, remove them if ``apply``, and return the exit code."""
    return callers.run(
        _compact(settings, cluster, older_than_s=older_than_s, apply=apply), "Not compacted", resumable=True
    )


async def _compact(settings: Settings, cluster: str, *, older_than_s: float, apply: bool) -> int:
    gone = failed = 0
    async with open_cluster(settings, cluster) as parts:
        service = CompactService(parts.runner, parts.stores[cluster])
        candidates = service.candidates()
        with bar("Empty znodes", len(candidates)) as advance:
            caller = callers.caller("confplane compact: empty, and not touched for a while")
            async for result in service.run(candidates, caller, older_than_s=older_than_s, apply=apply):
                if result is not None:
                    gone += len(result.entity_ids) * (result.error is None)
                    failed += result.error is not None
                    typer.echo(_line(result, apply=apply), err=result.error is not None)
                advance()
    znodes = callers.pluralize(gone, "empty znode", "empty znodes")
    typer.echo(f"{znodes} {'removed' if apply else 'can be removed'}; {len(candidates)} looked at")
    if gone and not apply:
        typer.echo("Nothing was removed; --apply removes, one change each")
    return callers.FAILED if failed else callers.DONE


def _line(result: CompactResult, *, apply: bool) -> str:
    names = " and ".join(result.entity_ids)
    if result.error is not None:
        return f"{names}: {result.error}"
    return f"{names}: removed (change {result.change_id})" if apply else f"{names}: can be removed"
