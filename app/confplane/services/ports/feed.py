"""The trail as the feed reads it: committed changes in their order. Implemented by ``confplane.audit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from confplane.services.ports.trail import HistoryPlace


@dataclass(frozen=True, slots=True)
class FeedEntity:
    """One entity of a change, with its content before and after; the values of secrets are None."""

    entity_id: str
    path: str
    """The full path of the znode."""
    version_read: int | None
    czxid_read: int | None
    version: int | None
    remade: int | None
    """As in :class:`~confplane.services.ports.trail.Outcome`."""
    keys: Sequence[str]
    """The keys whose values differ."""
    before: Mapping[str, str | None]
    after: Mapping[str, str | None]
    op: str | None = None
    """The first op, of a change that gave no key another value: MOVE, DISCARD or REENCODE."""
    revision: int | None = None
    """The revision of an external state, if it is not that of the change's place."""


@dataclass(frozen=True, slots=True)
class FeedChange:
    """A committed change, or a put-back (:data:`~confplane.services.ports.trail.PUT_BACK`)."""

    place: HistoryPlace
    time_ms: int
    kind: str
    principal: str
    behalf_of: str | None
    reason: str | None
    ticket: str | None
    entities: Sequence[FeedEntity]
    revert_at_ms: int | None = None
    """Of a temporary change: the time of its end."""
    ends: UUID | None = None
    """The temporary change that this one ends."""


class UnsettledWrite(NamedTuple):
    """A change without an outcome, and an entity that it may have written."""

    change_id: UUID
    path: str
    """The full path of the znode."""


class FeedTrail(Protocol):
    """The trail. Every call raises ``UnavailableError`` if Postgres is unavailable."""

    async def changes(self, cluster: str, after: HistoryPlace, until: int, size: int) -> list[FeedChange]:
        """Return the changes of the place's incarnation after a place, in order.

        Args:
            cluster: The cluster.
            after: The place.
            until: The revision up to which changes are returned.
            size: The greatest number of changes.
        """

    async def late(
        self, cluster: str, place: HistoryPlace, since: datetime, after: HistoryPlace, size: int
    ) -> list[FeedChange]:
        """Return external changes up to a place that were recorded at a time or later, in order.

        A reader that has reached the place may not have been given them: their notifications may come after it.

        Args:
            cluster: The cluster.
            place: The place.
            since: The time; a day before the last change up to the place, if that is later.
            after: Only changes after this place.
            size: The greatest number of changes.
        """

    async def put_backs(self, cluster: str, since: datetime, after: UUID, size: int) -> list[FeedChange]:
        """Return external writes to a Kafka cluster that were undone, ordered by change id; their revision is 0.

        Args:
            cluster: The cluster.
            since: Only those that were recorded at this time or later.
            after: Only those with a later change id.
            size: The greatest number of changes.
        """

    async def unsettled_writes(self, cluster: str, ids: Collection[str], since: datetime) -> list[UnsettledWrite]:
        """Return the writes that changes without an outcome may have made.

        Args:
            cluster: The cluster.
            ids: The entities.
            since: Only changes with ids of this time or later.
        """
