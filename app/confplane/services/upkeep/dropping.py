"""Dropping: each process drops the markers of its own changes, a minute after their outcomes were written.

An outcome that was written may be lost with a crash of Postgres, and then the marker alone shows how the change ended.
So Postgres is asked before a marker is dropped, by a query that makes its results durable. If Postgres has no
outcome any more, the marker remains until the leader has settled the change by it, and for another minute after the new
outcome (services/upkeep/reconcile.py).
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import UnavailableError
from confplane.services.background import BackgroundService, BackgroundTask
from confplane.services.upkeep.reconcile import lasts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from confplane.services.ports.open_changes import OpenChanges
    from confplane.services.ports.store import ClusterStore

logger = logging.getLogger(__name__)

PERIOD_S: Final = 10.0


class Dropper(BackgroundService):
    """Drops the released markers of one cluster, in the background; the leader sweeps what is left after a stop.

    Args:
        store: The cluster.
        changes: The trail, queried for the outcomes.
    """

    def __init__(self, store: ClusterStore, changes: OpenChanges) -> None:
        self._store = store
        self._changes = changes
        self._background = BackgroundTask(self._run, name=f"markers-{store.name}")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            try:
                await self.drop(time.monotonic())
            except UnavailableError as error:
                logger.debug("Cluster %s: dropping markers has to wait: %s", self._store.name, error.detail)
            except Exception:
                logger.exception("Cluster %s: dropping markers failed", self._store.name)

    async def drop(self, now: float) -> int:
        """Drop the markers due by ``now``, on the clock of ``time.monotonic()``; return their number.

        Raises:
            UnavailableError: A store is unavailable. The markers are tried again.
        """
        return await self._store.markers.drop_released(now, self._lasting)

    async def _lasting(self, change_ids: Sequence[UUID]) -> set[UUID]:
        if not self._store.accepted:
            # Another count of removals would hide that the store was restored.
            raise UnavailableError(f"Cluster {self._store.name}: the store is not accepted")
        marked = await self._changes.marked(change_ids)
        return {change.change_id for change in marked if change.committed and lasts(change)}
