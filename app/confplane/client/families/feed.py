"""The changes of a cluster as they happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from confplane.client.core.calls import call, id_of
from confplane.client.core.operations import Family, S, operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confplane.client.core.calls import ApiCall
    from confplane.client.types import FeedBookmark, FeedEventData, FeedPage, FeedState
    from confplane.domain.entities import Entity

WAIT_S = 10
"""Seconds for which an iteration over the changes waits with each request."""

_MOST_SEEN = 10_000


class Feed(Family[S]):
    """The feed of a cluster."""

    @operation
    def poll(  # noqa: PLR0913 - one argument a filter
        self,
        *,
        after: str | None = None,
        snapshot: bool | None = None,
        wait_s: int | None = None,
        facet: str | None = None,
        entity_type: str | None = None,
        entity: Entity | str | None = None,
        user: str | None = None,
        prefix: str | None = None,
        key: str | None = None,
        principal: str | None = None,
        requests: Literal["include", "only"] | None = None,
    ) -> ApiCall[FeedPage]:
        """Read the events after a position, and the next position.

        Args:
            after: The position, or the ``id`` of the last event; None: from now on.
            snapshot: Without a position: the current states first, a part with each request.
            wait_s: Seconds to wait for a first event, 60 at most.
            facet: Only keys of this facet.
            entity_type: Only entities of this type.
            entity: Only this entity.
            user: Only this user and its client-ids.
            prefix: Only entities whose last name begins so.
            key: Only entities of which this key changed.
            principal: Only changes of this principal.
            requests: Events of change requests as well, or no others; None: none of them.
        """
        params = {
            "after": after,
            "snapshot": "true" if snapshot else None,
            "wait": None if wait_s is None else str(wait_s),
            "facet": facet,
            "entityType": entity_type,
            "entity": None if entity is None else id_of(entity),
            "user": user,
            "prefix": prefix,
            "key": key,
            "principal": principal,
            "requests": requests,
        }
        return call("GET", f"{self._base}/changes", params=params)


def snapshot_events(page: FeedPage) -> Iterator[FeedState | FeedBookmark]:
    """Yield the states of a page of a snapshot, and the bookmark at the snapshot's end."""
    part = page.get("snapshot")
    if part is not None:
        yield from part["states"]
        if "bookmark" in part:
            yield part["bookmark"]


class RepeatedEvents:
    """Finds the events without an id that an iteration has yielded before: several polls may return them."""

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}

    def is_new(self, event: FeedEventData) -> bool:
        """Return False for an event without an id that was given before."""
        if "id" in event:
            return True
        new = event["changeId"] not in self._seen
        self._seen[event["changeId"]] = None
        if len(self._seen) > _MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        return new
