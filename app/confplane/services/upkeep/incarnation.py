"""The check that ZooKeeper is the one that the trail describes, and was not restored to an earlier state.

A restored ZooKeeper uses revisions again, so what the trail knows about them is wrong from then on. Its zxid alone does
not show the restore: after an election it begins a new epoch. Two things show it:

- Another incarnation in ``/confplane/incarnation`` than in Postgres, or none.
- Fewer creations and deletions below ``/confplane/commits`` than Postgres knows, or an earlier last one than the last
  commit in the trail: each commit creates a marker there.

Each process checks each connection to ZooKeeper before its first write, and before it leads. The leader stores the
position of the store in Postgres every minute, and the last state of Postgres in the node. So a Postgres that lacks a
change that the node names was restored, which is a warning.

A restored store stays rejected until ``confplane adopt-store`` accepts its state (services/recorder/adoption.py). The
rejection is stored, because the restored store may pass the last known position before another process checks it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import ConfplaneError, CorruptZnodeError, UnavailableError, WriteOutcome
from confplane.services.background import BackgroundService, BackgroundTask
from confplane.services.operator_warnings import OperatorWarning
from confplane.services.ports.cluster_states import Incarnation
from confplane.services.ports.trail import FIRST_INCARNATION

if TYPE_CHECKING:
    from confplane.services.ports.incarnation import IncarnationStore, StorePosition, StorePositions, TrailState

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0
PUBLISH_INTERVAL_S = 60.0
_RETRY_S: Final = 0.5
"""Seconds until another check after one that a store did not answer, as at the start."""
_CALL_S: Final = 10.0
_WRAP: Final = 1 << 32


def restored(trail: TrailState, found: StorePosition) -> str | None:
    """Return the reason why a store is a restored one, or None."""
    return _other_incarnation(trail, found) or (trail.store and trail.store.rejected) or _earlier(trail, found)


def _other_incarnation(trail: TrailState, found: StorePosition) -> str | None:
    known, incarnation = trail.store, found.incarnation
    if known is None:
        return None
    if incarnation is None:
        return "its znode /confplane/incarnation is missing"
    if (incarnation.number, incarnation.id) != (known.number, known.id):
        return f"it is of incarnation {incarnation.number}, and the trail is of another one, {known.number}"
    return None


def _earlier(trail: TrailState, found: StorePosition) -> str | None:
    known = trail.store
    if known is not None and (found.cversion - known.cversion) % _WRAP >= _WRAP // 2:
        return "it had fewer commits than are known"
    last = max(trail.last_commit, 0 if known is None else known.pzxid)
    if found.pzxid < last:
        return f"its last commit is at revision {found.pzxid}, and one at revision {last} is known"
    return None


def lost_changes(cluster: str, lost: Incarnation) -> OperatorWarning:
    """Return the warning that Postgres lacks the newest change that an incarnation names."""
    text = (
        f"Postgres lacks change {lost.newest_change}, which it had on timeline {lost.timeline}: it was"
        " restored to an earlier moment, or a standby without the change was promoted. Revoked tokens and removed"
        " grants may be back, so API tokens created before are rejected, no change request is applied, and no temporary"
        " change ends by itself. Check tokens, grants, requests and temporary changes, and then run"
        " `confplane tokens confirm`, or `confplane tokens invalidate --issued-before TIME`"
    )
    return OperatorWarning(text).about(cluster)


class IncarnationCheck(BackgroundService):
    """Checks the connections of one cluster.

    Args:
        store: The cluster, started.
        positions: The positions of stores in Postgres.
    """

    def __init__(self, store: IncarnationStore, positions: StorePositions) -> None:
        self._store = store
        self._positions = positions
        self._background = BackgroundTask(self._run, name=f"incarnation-{store.name}")
        self._task: asyncio.Task[tuple[TrailState, StorePosition]] | None = None
        self._published_at = float("-inf")
        self._lost: Incarnation | None = None
        self._fault: str | None = None
        """The reason why the last check in the background failed."""
        store.check_connections(self.ensure)

    async def ensure(self, deadline: float) -> None:
        """Check the current connection, unless it was checked.

        Raises:
            UnavailableError: A store is unavailable; nothing was changed.
        """
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                while not self._store.checked:
                    await self._shared_check()
        except TimeoutError:
            raise UnavailableError(
                f"Cluster {self._store.name}: the connection to ZooKeeper could not be checked in time",
                outcome=WriteOutcome.NOT_APPLIED,
            ) from None
        except CorruptZnodeError as error:
            raise UnavailableError(error.detail, outcome=WriteOutcome.NOT_APPLIED) from None

    def warnings(self) -> list[OperatorWarning]:
        """Return warnings for operators."""
        found = [] if self._lost is None else [lost_changes(self._store.name, self._lost)]
        if self._fault is not None and not self._store.checked:
            text = "the connection to ZooKeeper could not be checked for a restored store, so nothing is written"
            found.append(OperatorWarning(text, f"{text}: {self._fault}").about(self._store.name))
        return found

    async def _run(self) -> None:
        while True:
            pause = INTERVAL_S
            try:
                await self.round()
                self._fault = None
            except ConfplaneError as error:
                pause, self._fault = _RETRY_S, error.detail
                logger.debug("Cluster %s: the check of the store has to wait: %s", self._store.name, error.detail)
            except Exception:
                logger.exception("Cluster %s: the check of the store failed", self._store.name)
            # Processes that were started together should not all query at once.
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - no secret

    async def round(self) -> None:
        """Check a new connection, and restored stores again; as the leader, store the positions if they are due.

        Raises:
            UnavailableError: A store is unavailable.
        """
        if not self._store.checked:
            await self.ensure(time.monotonic() + _CALL_S)
        elif self._store.restored:
            await self._shared_check()
            return
        if self._lost is not None:
            await self._shared_check()
        if self._store.leadership.held and time.monotonic() - self._published_at >= PUBLISH_INTERVAL_S:
            await self.publish()

    async def publish(self) -> None:
        """Store the position of the store in Postgres, and the state of Postgres in the store.

        Raises:
            UnavailableError: A store is unavailable.
        """
        trail, found = await self._shared_check()
        if not self._store.accepted or found.incarnation is None:
            return
        await self._positions.save(self._store.name, found.incarnation, found)
        if self._lost is None:
            now = replace(found.incarnation, newest_change=trail.newest_change, timeline=trail.timeline)
            if now != found.incarnation:
                await self._store.write_incarnation(now, found.version, time.monotonic() + _CALL_S)
        self._published_at = time.monotonic()

    async def _shared_check(self) -> tuple[TrailState, StorePosition]:
        """Check once for all callers: of two concurrent checks the earlier could end later, with an older result."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._check(), name=f"check of {self._store.name}")
            # Retrieves the error, because every caller may be gone.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Stop, also a check that callers began."""
        await super().stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _check(self) -> tuple[TrailState, StorePosition]:
        name, deadline = self._store.name, time.monotonic() + _CALL_S
        # Postgres first: what ZooKeeper shows afterwards is not older.
        trail = await self._positions.read(name)
        found = await self._store.read_position(deadline)
        reason = restored(trail, found)
        if reason is None and trail.store is None:
            if found.incarnation is None:
                first = Incarnation(FIRST_INCARNATION, uuid.uuid4().hex, trail.newest_change, trail.timeline)
                await self._store.write_incarnation(first, found.version, deadline)
                found = await self._store.read_position(deadline)
            if found.incarnation is None:
                raise UnavailableError(f"Cluster {name}: the incarnation was not written")
            await self._positions.save(name, found.incarnation, found)
            # Another process may have been first.
            trail = await self._positions.read(name)
            reason = restored(trail, found)
        if reason is not None:
            if not self._store.restored:
                logger.error("Cluster %s: ZooKeeper was restored, or another one answers: %s", name, reason)
            if _other_incarnation(trail, found) is None:
                await self._positions.reject(name, trail.store, reason)
            self._store.reject(found.connection, reason)
        elif found.incarnation is not None:
            if self._store.restored:
                logger.warning("Cluster %s: the state of the restored store was accepted", name)
            await self._check_postgres(found.incarnation)
            self._store.accept(found.connection, found.incarnation.number)
        return trail, found

    async def _check_postgres(self, incarnation: Incarnation) -> None:
        """Check that Postgres has the newest change that the leader knew. If not, it was restored."""
        newest = incarnation.newest_change
        lost = newest is not None and not await self._positions.has(self._store.name, newest)
        if lost and newest is not None and await self._positions.distrust(newest):
            lost = False  # its tokens were confirmed, or revoked
        if lost and self._lost is None:
            logger.error(
                "Cluster %s: Postgres lacks change %s, so it was restored: API tokens are rejected",
                self._store.name,
                newest,
            )
        self._lost = incarnation if lost else None
