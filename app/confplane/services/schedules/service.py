"""Temporary changes for callers: their list, early ends, and pauses of all ends in a cluster."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.errors import InvalidRequestError, NotFoundError, UnavailableError
from confplane.services.access_admin.history import change_of
from confplane.services.changes.freeze import checked_reason
from confplane.services.ports.schedules import Schedule, SchedulePause

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from confplane.services.access import Access
    from confplane.services.changes.callers import Caller
    from confplane.services.clusters import Cluster
    from confplane.services.ports.schedules import ScheduleStore
    from confplane.services.schedules.ends import ScheduleEnder

logger = logging.getLogger(__name__)

SHORTEST_S = 60
LONGEST_DAYS: Final = 90


@dataclass(frozen=True, slots=True)
class SchedulesPage:
    """A page of schedules, and the pause of the cluster."""

    schedules: list[Schedule]
    cursor: UUID | None
    pause: SchedulePause | None


class ScheduleService:
    """Lists and ends temporary changes, and pauses their ends. One instance serves all clusters of a process.

    Every coroutine raises ``UnavailableError`` if Postgres is unavailable.

    Args:
        schedules: The schedules.
        ender: Ends one change.
        now: The clock.
    """

    def __init__(
        self, schedules: ScheduleStore, ender: ScheduleEnder, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._schedules = schedules
        self._ender = ender
        self._now = now

    def revert_at(self, expires_in_s: int | None, revert_at: datetime | None) -> datetime | None:
        """Return the time at which the changes of a request end, or None.

        Raises:
            InvalidRequestError: Both are given, or the time is too early or too late.
        """
        if expires_in_s is not None and revert_at is not None:
            raise InvalidRequestError("Give expiresIn or revertAt, not both", pointer="revertAt")
        if expires_in_s is None and revert_at is None:
            return None
        now = self._now()
        pointer = "revertAt" if expires_in_s is None else "expiresIn"
        left = timedelta(seconds=expires_in_s or 0) if revert_at is None else revert_at - now
        if not timedelta(seconds=SHORTEST_S) <= left <= timedelta(days=LONGEST_DAYS):
            raise InvalidRequestError(
                f"{pointer} is not from {SHORTEST_S} seconds to {LONGEST_DAYS} days in the future", pointer=pointer
            )
        return now + left

    async def page(
        self,
        cluster: str,
        access: Access,
        *,
        ended: bool,
        before: UUID | None,
        size: int,
        entity_id: str | None = None,
    ) -> SchedulesPage:
        """Return a page of the schedules whose entities the caller may describe, the newest change first.

        A page may be short, because hidden schedules are left out.

        Args:
            cluster: The cluster.
            access: The access of the caller.
            ended: Those that have ended, or those that have not.
            before: Only changes with lower ids.
            size: Maximum number.
            entity_id: Only changes of this entity.
        """
        await self._schedules.register(cluster)
        found = await self._schedules.list(cluster, ended=ended, before=before, most=size + 1, entity_id=entity_id)
        cursor = found[size - 1].change_id if len(found) > size else None
        visible = access.allowed(cluster, Operation.DESCRIBE_CONFIGS)
        shown = [each for each in found[:size] if all(entity in visible for entity in each.entity_ids)]
        return SchedulesPage(shown, cursor, await self._schedules.paused(cluster))

    async def end(self, cluster: Cluster, change_id: UUID, caller: Caller, *, validate_only: bool = False) -> Schedule:
        """End a temporary change now.

        Raises:
            ForbiddenError: The caller may not alter an entity of the change.
            UnavailableError: The trail does not have the outcome of the change yet, or Postgres is unavailable.
            NotFoundError: The cluster has no such temporary change of entities that the caller may describe.
            ConfplaneError: The end is delayed for this reason; the leader attempts it again.
        """
        with caller.preparing():
            await self._schedules.register(cluster.name)
            found = await self._schedules.find(cluster.name, change_id)
            visible = caller.access.allowed(cluster.name, Operation.DESCRIBE_CONFIGS)
            if found is None and await self._ender.is_recorded(cluster.name, change_id, visible):
                raise UnavailableError("The temporary change is recorded within seconds", retry_after_s=1)
        if found is None or not all(entity in visible for entity in found.entity_ids):
            raise NotFoundError(f"Cluster {cluster.name} has no temporary change {change_id}")
        for entity_id in found.entity_ids:
            caller.require(cluster.name, Operation.ALTER_CONFIGS, entity_id)
        if validate_only or found.ended_at is not None:
            return found
        reason = caller.reason or f"End of the temporary change {change_id}"
        return await self._ender.end(cluster, change_id, replace(caller, reason=reason))

    async def pause(self, cluster: str, reason: str, caller: Caller, *, validate_only: bool = False) -> SchedulePause:
        """Pause all ends in a cluster, and return the pause, which may be an earlier one.

        Raises:
            ForbiddenError: The caller may not freeze the cluster.
            InvalidRequestError: The reason can't be stored.
        """
        caller.require(cluster, Operation.FREEZE, ResourceType.CLUSTER)
        pause = SchedulePause(caller.principal, checked_reason(reason), self._now())
        if validate_only:
            return pause
        change = change_of(replace(caller, reason=pause.reason), "schedules-paused", f"schedules/{cluster}")
        paused = await self._schedules.pause(cluster, pause, change)
        logger.warning("Cluster %s: %s paused the ends of temporary changes", cluster, caller.principal)
        return paused

    async def resume(self, cluster: str, caller: Caller, *, validate_only: bool = False) -> None:
        """Remove the pause of a cluster, if there is one.

        Raises:
            ForbiddenError: The caller may not freeze the cluster.
        """
        caller.require(cluster, Operation.FREEZE, ResourceType.CLUSTER)
        if not validate_only:
            await self._schedules.resume(cluster, change_of(caller, "schedules-resumed", f"schedules/{cluster}"))
            logger.warning("Cluster %s: %s resumed the ends of temporary changes", cluster, caller.principal)
