"""Changes without an outcome, and the changes of markers, in the trail. Implemented by ``confplane.audit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID


class ServerTimestamp(NamedTuple):
    """A time by Postgres's clock, in one run of the server."""

    at: datetime
    """The time by Postgres's clock."""
    server: str
    """The run of Postgres: a different text after a restart, a recovery from a crash, a restore or a failover."""


@dataclass(frozen=True, slots=True)
class OpenChange:
    """A change without an outcome."""

    change_id: UUID
    attempt: int
    """The number of the last attempt."""
    writers: frozenset[str]
    """The writer nodes named in its intents; one, unless an earlier version of this service made it."""
    age_s: float
    """Seconds since its first intent, by Postgres's clock."""


@dataclass(frozen=True, slots=True)
class MarkedChange:
    """The trail's knowledge of a change that has a marker."""

    change_id: UUID
    committed: bool | None
    """The outcome; None if there is none."""
    age_s: float | None
    """Seconds since the outcome, by Postgres's clock."""
    writers: frozenset[str]
    """The writer nodes named in its intents; empty if there is none."""


class OpenChanges(Protocol):
    """The reconciler's view of the trail. Every call raises ``UnavailableError`` if Postgres is unavailable."""

    async def new(
        self, cluster: str, since: ServerTimestamp | None, known: Sequence[UUID]
    ) -> tuple[list[OpenChange], ServerTimestamp]:
        """Return the open changes among those begun since a time (None: just now) and those known before.

        The second result is the next call's ``since``. So no change is missed, however late its row became visible.
        """

    async def old(self, cluster: str, before: UUID | None) -> tuple[list[OpenChange], UUID | None]:
        """Return open changes of the next step of a backward scan over all ids, and the next id, or None at the end."""

    async def marked(self, change_ids: Sequence[UUID]) -> list[MarkedChange]:
        """Return the trail's knowledge of changes. The outcomes in it are durable at the return."""
