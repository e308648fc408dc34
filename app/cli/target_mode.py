"""``confplane target adopt`` and ``confplane target observe``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from app.cli import callers
from app.services.target.state import TargetService
from app.wiring import opened

if TYPE_CHECKING:
    from app.settings import Settings


def run(settings: Settings, cluster: str, reason: str, *, adopts: bool) -> int:
    """Change who writes client quotas, print the result, and return the exit code."""
    return callers.run(_change(settings, cluster, reason, adopts=adopts), "Not done")


async def _change(settings: Settings, cluster: str, reason: str, *, adopts: bool) -> int:
    async with opened(settings, cluster) as parts:
        service = TargetService(parts.runner, parts.stores[cluster])
        caller = callers.caller(reason)
        target = await (service.adopt(parts.target_states, caller) if adopts else service.observe(caller))
    if target.adopts:
        typer.echo(
            f"Cluster {cluster} takes client quotas from callers, and applies them to the Kafka cluster"
            f" {target.cluster_id}. `confplane target observe` ends this"
        )
    else:
        typer.echo(f"Cluster {cluster} takes no quotas from callers: it follows the Kafka cluster {target.cluster_id}")
    return callers.DONE
