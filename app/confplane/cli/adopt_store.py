"""``confplane adopt-store``: acceptance of the state of a restored ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from confplane.audit import PostgresEntityStates, PostgresStorePositions
from confplane.cli import callers
from confplane.services.recorder.adoption import AdoptionService
from confplane.wiring import open_cluster, redaction

if TYPE_CHECKING:
    from confplane.settings import Settings


def run(settings: Settings, cluster: str, reason: str) -> int:
    """Adopt the store of a cluster, print the result, and return the exit code."""
    return callers.run(_adopt(settings, cluster, reason), "Not adopted", resumable=True)


async def _adopt(settings: Settings, cluster: str, reason: str) -> int:
    async with open_cluster(settings, cluster) as parts:
        store = parts.stores[cluster]
        service = AdoptionService(
            parts.runner,
            store,
            PostgresStorePositions(parts.database),
            PostgresEntityStates(parts.database),
            redaction(settings.clusters[cluster], store),
        )
        adoption = await service.adopt(callers.caller(reason))
    if adoption is None:
        typer.echo(f"The ZooKeeper of cluster {cluster} is the one that the trail knows; nothing to do")
        return callers.DONE
    differing = callers.pluralize(adoption.differing, "entity differs", "entities differ")
    typer.echo(
        f"The ZooKeeper of cluster {cluster} is adopted as incarnation {adoption.incarnation}, as of revision"
        f" {adoption.revision} (change {adoption.change_id}). {differing} from the last content in the trail, which has"
        " an external change of each"
    )
    return callers.DONE
