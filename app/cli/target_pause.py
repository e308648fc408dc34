"""``confplane target pause`` and ``confplane target resume``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from app.cli import callers
from app.services.target.state import TargetService
from app.wiring import opened

if TYPE_CHECKING:
    from app.settings import Settings


def run(settings: Settings, cluster: str, reason: str, *, paused: bool) -> int:
    """Pause or resume the observation of a cluster, print the result, and return the exit code."""
    return callers.run(_change(settings, cluster, reason, paused=paused), "Not done")


async def _change(settings: Settings, cluster: str, reason: str, *, paused: bool) -> int:
    async with opened(settings, cluster) as parts:
        service = TargetService(parts.runner, parts.stores[cluster])
        target = await (service.pause if paused else service.resume)(callers.caller(reason))
    if paused:
        typer.echo(
            f"Cluster {cluster} does not follow the Kafka cluster {target.cluster_id} any more: its copy stays as it"
            " is. `confplane target resume` ends this"
        )
    else:
        typer.echo(f"Cluster {cluster} follows the Kafka cluster {target.cluster_id}")
    return callers.DONE
