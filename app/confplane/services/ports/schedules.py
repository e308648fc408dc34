"""Schedules: how far each temporary change is. Implemented by ``confplane.audit``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from confplane.domain.enums import StrEnum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from confplane.services.ports.access import AccessChange


class EntityKey(NamedTuple):
    """A key of an entity."""

    entity_id: str
    key: str


Fallbacks = dict[EntityKey, str | None]
"""Stored values to return to; None: no value."""


class ScheduleState(StrEnum):
    """The state of a temporary change."""

    ACTIVE = "active"
    """The change is in force."""
    ENDING = "ending"
    """Its end has begun: no other change replaces its fallbacks any more."""
    ENDED = "ended"
    """All of its keys have their earlier values, or are covered by another temporary change that returns to them."""
    ENDED_PARTLY = "ended-partly"
    """As ended, except for keys that were changed otherwise in the meantime and were kept."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A committed temporary change."""

    change_id: UUID
    cluster: str
    principal: str
    reason: str | None
    entity_ids: tuple[str, ...]
    revert_at: datetime
    state: ScheduleState = ScheduleState.ACTIVE
    fallbacks: Fallbacks = field(default_factory=dict, repr=False)
    """The fallbacks that changes below passed on at their ends. Any other fallback is the value before the change."""
    end_id: UUID | None = None
    """The change that restored values; None if no value had to be written."""
    end_revision: int | None = None
    """The revision of that change."""
    kept: tuple[EntityKey, ...] = ()
    error: str | None = None
    """The reason why the last attempt to end it failed."""
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SchedulePause:
    """A pause of all ends in a cluster."""

    principal: str
    reason: str
    since: datetime


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """The schedules of a cluster that have not ended."""

    pause: SchedulePause | None = None
    due: Sequence[UUID] = ()
    """The changes whose ends are due or have begun, in the order of their times."""
    active: int = 0
    overdue: int = 0
    """The schedules whose end was due before a given time."""


class EndAttempts(NamedTuple):
    """The changes that were made to end a temporary change."""

    committed: UUID | None
    open: bool
    """True if one of them has no outcome yet."""


class ScheduleStore(Protocol):
    """The schedules of all clusters. Every call raises ``UnavailableError`` if Postgres is unavailable."""

    async def register(self, cluster: str, *, everything: bool = False) -> None:
        """Add the committed temporary changes that are missing: of the last day, or all."""

    async def status(self, cluster: str, now: datetime, late: datetime, most: int) -> ScheduleStatus:
        """Return the schedules that have not ended, with so many due changes at most."""

    async def find(self, cluster: str, change_id: UUID) -> Schedule | None:
        """Return a schedule; None if the cluster has no such committed temporary change."""

    async def list(
        self, cluster: str, *, ended: bool, before: UUID | None, most: int, entity_id: str | None = None
    ) -> list[Schedule]:
        """Return schedules, the newest change first: those that have ended, or those that have not.

        Args:
            cluster: The cluster.
            ended: Which of them.
            before: Only changes with lower ids.
            most: Maximum number.
            entity_id: Only changes of this entity.
        """

    async def states(self, change_ids: Sequence[UUID]) -> dict[UUID, ScheduleState]:
        """Return the states of those of the changes that are temporary."""

    async def begin(self, cluster: str, change_id: UUID) -> Schedule | None:
        """Begin or continue to end a change, and return it; None if it has ended. The fallbacks are final then."""

    async def attempts(self, change_id: UUID) -> EndAttempts:
        """Return the attempts to end a change."""

    async def delay(self, change_id: UUID, error: str) -> None:
        """Store the reason why an end is delayed."""

    async def pass_on(self, ending: Schedule, passed: Mapping[UUID, Fallbacks]) -> bool:
        """Pass the fallbacks of a change on to the changes above it, to all of them or to none.

        Returns:
            False if the end of a change above has begun, or the change itself has ended.
        """

    async def finish(self, ended: Schedule, end_id: UUID | None, kept: Sequence[EntityKey]) -> bool:
        """End a change, whose fallbacks are passed on. Return False if its end has no outcome in the trail yet."""

    async def pause(self, cluster: str, pause: SchedulePause, change: AccessChange) -> SchedulePause:
        """Pause all ends in a cluster, and return the pause, which may be an earlier one.

        The row of the audit trail is written together with the pause, or not at all.
        """

    async def resume(self, cluster: str, change: AccessChange) -> bool:
        """Remove the pause, and write the row of the audit trail; False if there is none."""

    async def paused(self, cluster: str) -> SchedulePause | None:
        """Return the pause of a cluster."""
