"""Dropping: each process drops the markers of its own changes, a minute after their outcomes were written.

An outcome that was written may be lost with a crash of Postgres, and then the marker alone tells how the change ended.
So Postgres is asked before a marker goes, in a way that makes what it answers durable. Where it has no outcome any more
the marker stays until the leader has settled the change by it, and the new outcome has been there for a minute as well
(app/services/upkeep/reconcile.py).
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from app.domain.errors import UnavailableError
from app.services.background import Background

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from app.services.upkeep.reconcile import OpenChanges, ReconciledStore

logger = logging.getLogger(__name__)

PERIOD_S: Final = 10.0


class Dropper:
    """Drops the released markers of one cluster.

    Args:
        store: The cluster.
        changes: The trail, asked for the outcomes.
    """

    def __init__(self, store: ReconciledStore, changes: OpenChanges) -> None:
        self._store = store
        self._changes = changes
        self._background = Background(self._run, name=f"markers-{store.name}")

    def start(self) -> None:
        """Begin, in the background; the store was started."""
        self._background.start()

    async def stop(self) -> None:
        """Stop; markers not yet dropped stay, and are the leader's to sweep."""
        await self._background.stop()

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
        """Drop the markers whose time has come by ``now``, on the clock of ``time.monotonic()``; return how many.

        Raises:
            UnavailableError: A store is away. The markers are tried again.
        """
        return await self._store.markers.drop_released(now, self._lasting)

    async def _lasting(self, change_ids: Sequence[UUID]) -> set[UUID]:
        marked = await self._changes.marked(change_ids)
        return {change.change_id for change in marked if change.committed and change.lasts}
