"""``confplane freeze`` and ``confplane thaw``: stop the writes to a cluster's configs, and allow them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from app.cli import callers
from app.services.changes.freeze import FreezeService
from app.wiring import opened

if TYPE_CHECKING:
    from app.settings import Settings


def freeze(settings: Settings, cluster: str, reason: str) -> int:
    """Freeze a cluster, print the result, and return the exit code."""
    return callers.run(_change(settings, cluster, reason, frozen=True), "The freeze failed")


def thaw(settings: Settings, cluster: str, reason: str) -> int:
    """Thaw a cluster, print the result, and return the exit code."""
    return callers.run(_change(settings, cluster, reason, frozen=False), "The thaw failed")


async def _change(settings: Settings, cluster: str, reason: str, *, frozen: bool) -> int:
    async with opened(settings, cluster) as parts:
        service = FreezeService(parts.runner)
        change = service.freeze if frozen else service.thaw
        result = await change(parts.stores[cluster], reason, callers.caller(reason))
    if result.change_id is not None:
        done = "frozen" if frozen else "thawed"
        typer.echo(f"Cluster {cluster} is {done} as of revision {result.revision} (change {result.change_id})")
    elif result.after is not None:
        typer.echo(f"Cluster {cluster} was frozen for that reason already, {result.after}")
    else:
        typer.echo(f"Cluster {cluster} was not frozen; nothing to do")
    return callers.DONE
