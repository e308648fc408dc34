"""``confplane freeze`` and ``confplane thaw``: stop the writes to a cluster's configs, and allow them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from confplane.cli import callers
from confplane.services.changes.freeze import FreezeService
from confplane.services.kraft.apply_status import ApplyWaiter
from confplane.services.kraft.quiesce import Quiescer
from confplane.wiring import open_cluster

if TYPE_CHECKING:
    from confplane.services.kraft.quiesce import QuiesceResult
    from confplane.settings import Settings


def freeze(settings: Settings, cluster: str, reason: str) -> int:
    """Freeze a cluster, print the result, and return the exit code."""
    return callers.run(_change(settings, cluster, reason, frozen=True), "The freeze failed")


def thaw(settings: Settings, cluster: str, reason: str) -> int:
    """Thaw a cluster, print the result, and return the exit code."""
    return callers.run(_change(settings, cluster, reason, frozen=False), "The thaw failed")


async def _change(settings: Settings, cluster: str, reason: str, *, frozen: bool) -> int:
    async with open_cluster(settings, cluster) as parts:
        service, store, caller = FreezeService(parts.runner), parts.stores[cluster], callers.caller(reason)
        if frozen:
            result, rest = await Quiescer(store, ApplyWaiter(store, parts.target_states)).freeze(
                service, reason, caller
            )
        else:
            result, rest = await service.thaw(store, reason, caller), None
    if result.change_id is not None:
        done = "frozen" if frozen else "thawed"
        typer.echo(f"Cluster {cluster} is {done} as of revision {result.revision} (change {result.change_id})")
    elif result.after is not None:
        typer.echo(f"Cluster {cluster} was frozen for that reason already, {result.after}")
    else:
        typer.echo(f"Cluster {cluster} was not frozen; nothing to do")
    if rest is not None:
        typer.echo(_shown(rest))
    return callers.DONE


def _shown(rest: QuiesceResult) -> str:
    if not rest.rested or rest.pending is None:
        return "No process said in time that it sends nothing to the Kafka cluster; a request may be under way"
    if not rest.pending:
        return "Nothing is sent to the Kafka cluster before the thaw; every change is applied"
    waits = callers.pluralize(rest.pending, "entity waits", "entities wait")
    return (
        f"Nothing is sent to the Kafka cluster before the thaw; {waits} for it, and `confplane drift list` names them"
    )
