"""The trail as the feed reads it: committed changes in their order. Implemented by ``confplane.audit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from confplane.domain.change_requests import RequestEventType
    from confplane.services.ports.trail import HistoryPlace

REQUEST: Final = "request"
"""The kind of an event of a change request."""
LAST_NUMBER: Final = (1 << 63) - 1
"""No event of a request has a number above it."""


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
    complete: bool = False
    """True if ``before`` may not be what consumers have: the event then has all keys of ``after``, and no other key is
    left. So it is with several external writes as one change, of which another process may have shown each, and with
    the first change after a load of the mirror (:func:`~confplane.services.feed.merge.with_complete_states`)."""


def is_complete(writes: int | None, version: int | None) -> bool:
    """Return True if an external change has to be :attr:`FeedEntity.complete`.

    Args:
        writes: The number of its writes; None: it is not known.
        version: The version that it left; None for a deletion.
    """
    return writes != 1 or version is None


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """A change request, as an event of the feed has it."""

    id: UUID
    number: int
    """The number of the event among those of all requests of the cluster. Each event that Postgres shows has a higher
    number than all that it showed before."""
    type: RequestEventType | None
    """None for an event of a newer release: this one does not know its kind or its state, and shows it to nobody."""
    state: str
    """The state after the event."""
    kind: str
    author: str
    """The principal of the first author."""
    revision: int
    entity_ids: Sequence[str]
    comment: str | None
    """The comment of the caller, or the reason of the event."""
    applied: HistoryPlace | None = None
    """Of an applied request: the place of its change. ``END_OF_HISTORY`` if the trail does not have it yet."""


@dataclass(frozen=True, slots=True)
class FeedChange:
    """A committed change, a put-back (:data:`~confplane.services.ports.trail.PUT_BACK`), or an event of a request.

    The last two have no place: only the change id counts.
    """

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
    request: FeedRequest | None = None
    """The request of an event of the kind :data:`REQUEST`; the change id is that of the event."""


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
        self, cluster: str, place: HistoryPlace, since: datetime, after: HistoryPlace, size: int, *, above: int
    ) -> tuple[list[FeedChange], HistoryPlace | None]:
        """Return external changes up to a place or above a revision that were recorded at a time or later, in order.

        Of an entity the last one, which is complete; none if the place is after a later change of this service to it.
        Also return the place after which the next changes begin; None: there are no more.

        A reader that has reached the place may not have been given them: their notifications may come after it. A
        mirror that was loaded at the revision may have those above it: a deletion has the revision at which the
        recorder found it, and a state that a change of this service replaced has that before this change.

        Args:
            cluster: The cluster.
            place: The place.
            since: The time; a day before the last change up to the place, if that is later.
            after: Only changes after this place.
            size: The greatest number of changes to read, of which some are not returned.
            above: The revision.
        """

    async def put_backs(self, cluster: str, since: datetime, after: UUID, size: int) -> list[FeedChange]:
        """Return external writes to a Kafka cluster that were undone, ordered by change id; their revision is 0.

        Args:
            cluster: The cluster.
            since: Only those that were recorded at this time or later.
            after: Only those with a later change id.
            size: The greatest number of changes.
        """

    async def requests(self, cluster: str, after: int, until: int, size: int) -> list[FeedChange]:
        """Return events of change requests by their numbers.

        Args:
            cluster: The cluster.
            after: Only events with higher numbers.
            until: The highest number.
            size: The greatest number of events.
        """

    async def newest_request(self, cluster: str) -> int:
        """Return the number of the newest event of a request; 0 if there is none."""

    async def unsettled_writes(self, cluster: str, ids: Collection[str], since: datetime) -> list[UnsettledWrite]:
        """Return the writes that changes without an outcome may have made.

        Args:
            cluster: The cluster.
            ids: The entities.
            since: Only changes with ids of this time or later.
        """
