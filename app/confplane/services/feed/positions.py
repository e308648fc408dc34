"""Positions in the feed of a cluster, and their tokens: the ids of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from confplane.domain.base64url import decode_base64url, encode_base64url
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.services.ports.feed import LAST_NUMBER
from confplane.services.ports.trail import END_OF_HISTORY, HistoryPlace

if TYPE_CHECKING:
    from collections.abc import Sequence

_PARTS: Final = 5
LONGEST: Final = 4_096
"""Characters of a token: a place in a snapshot has the id of an entity."""
_END_MS: Final = 253_402_300_800_000
"""The end of the year 9999, after which there are no dates."""


class SnapshotPlace(NamedTuple):
    """A place in a snapshot: the states of all facets before this one were delivered, and of this one up to an id."""

    facet: FacetName
    entity_id: str


class FeedPosition(NamedTuple):
    """A position: everything up to its place was delivered."""

    place: HistoryPlace
    time_ms: int
    """A time at which the place was reached. External changes that were found since may have lower places."""
    snapshot: SnapshotPlace | None = None
    """The place in a snapshot of which the rest comes before the changes after the position; None without a rest."""
    requests: int | None = None
    """The number of the last event of a change request that was delivered. None: the consumer does not ask for them."""

    def past(self, other: FeedPosition) -> FeedPosition:
        """Return the position after everything up to both positions."""
        requests = None if self.requests is None else max(self.requests, other.requests or 0)
        return FeedPosition(max(self.place, other.place), other.time_ms, requests=requests)


def encode(cluster: str, position: FeedPosition) -> str:
    """Return the token of a position."""
    place, snapshot = position.place, position.snapshot
    # Without events of requests it is the token of earlier releases, which serve together with this one in an upgrade.
    time = str(position.time_ms) if position.requests is None else f"{position.time_ms}.{position.requests}"
    text = f"{place.incarnation}@{place.revision}@{place.change_id.hex}@{time}@{cluster}"
    if snapshot is not None:
        text = f"{text}\n{snapshot.facet.value}\n{snapshot.entity_id}"
    return encode_base64url(text.encode())


def decode(cluster: str, token: str, pointer: str) -> FeedPosition:
    """Return the position of a token.

    Raises:
        InvalidRequestError: The token is not one that this API gave, or is that of another cluster.
    """
    parts, snapshot = _parts(token)
    numbers = (*parts[:2], *parts[3].split(".", 1)) if len(parts) == _PARTS else ()
    if numbers and all(part.isascii() and part.isdigit() for part in numbers):
        try:
            incarnation, revision, time_ms, *requests = map(int, numbers)
            place = HistoryPlace(incarnation, revision, UUID(parts[2]))
        except ValueError:
            pass
        else:
            position = FeedPosition(place, time_ms, snapshot, requests[0] if requests else None)
            most = END_OF_HISTORY
            valid = place.incarnation <= most.incarnation and place.revision <= most.revision
            if (
                valid
                and (position.requests or 0) <= LAST_NUMBER
                and position.time_ms < _END_MS
                and encode(parts[4], position) == token
            ):
                if parts[4] != cluster:
                    raise InvalidRequestError(
                        f"{pointer} is a position of another cluster than {cluster}. Use one of this cluster",
                        pointer=pointer,
                    )
                return position
    raise InvalidRequestError(f"{pointer} is not a position that this API gave", pointer=pointer)


def _parts(token: str) -> tuple[Sequence[str], SnapshotPlace | None]:
    if len(token) > LONGEST:
        return (), None
    try:
        text, *place = decode_base64url(token).decode().split("\n", 2)
        snapshot = SnapshotPlace(FacetName(place[0]), place[-1]) if place else None
    except ValueError:
        return (), None
    return text.split("@", _PARTS - 1), snapshot
