"""``confplane import kip5``: import of a legacy znode of KIP-5 as the default of all brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from confplane.cli import callers
from confplane.domain.global_config import ImportDecision
from confplane.services.kips.global_config import plan_import, run_import
from confplane.wiring import open_cluster

if TYPE_CHECKING:
    from confplane.services.kips.global_config import ImportPlan
    from confplane.settings import Settings

_WORDS = {
    ImportDecision.IMPORT: "goes to the cluster default",
    ImportDecision.SAME: "is the cluster default already",
    ImportDecision.KEPT: "not imported",
    ImportDecision.STAYS: "must stay in server.properties",
    ImportDecision.UNKNOWN: "unknown, not imported",
    ImportDecision.REFUSED: "refused",
}
_HIDDEN = "(hidden)"


def run(settings: Settings, cluster: str, path: str, *, apply: bool, overwrite: bool) -> int:
    """Show the effect of an import, import if ``apply``, and return the exit code."""
    return callers.run(_import(settings, cluster, path, apply=apply, overwrite=overwrite), "Not imported")


async def _import(settings: Settings, cluster: str, path: str, *, apply: bool, overwrite: bool) -> int:
    async with open_cluster(settings, cluster) as parts:
        served = parts.clusters.get(cluster)
        caller = callers.caller(f"import of {path}")
        plan = await plan_import(parts.alter, served, path, caller, overwrite=overwrite)
        _show(plan)
        wanted = sum(entry.decision is ImportDecision.IMPORT for entry in plan.entries)
        refused = sum(entry.decision is ImportDecision.REFUSED for entry in plan.entries)
        if plan.obstacle is not None:
            raise plan.obstacle
        if plan.edit is None:
            typer.echo("There is nothing to import")
        elif not apply:
            typer.echo(f"Nothing was written; --apply writes what goes to the cluster default ({wanted}) as one change")
        else:
            result = await run_import(parts.alter, served, plan, caller)
            if result is not None:
                typer.echo(
                    f"{wanted} written to the cluster default at revision {result.revision} (change {result.change_id})"
                    f"; {path} is left as it is"
                )
    if refused:
        typer.echo(f"{refused} refused, see above", err=True)
    return callers.FAILED if refused else callers.DONE


def _show(plan: ImportPlan) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("Key", "Value", "What becomes of it"):
        table.add_column(heading, overflow="fold")
    for entry in plan.entries:
        fate = _WORDS[entry.decision] + (f": {entry.reason}" if entry.reason else "")
        # Rendered as text: values are not rich's markup.
        table.add_row(Text(entry.key), Text(_HIDDEN if entry.value is None else entry.value), Text(fate))
    if plan.entries:
        Console().print(table)
    for warning in plan.warnings:
        typer.echo(f"Warning: {warning}", err=True)
