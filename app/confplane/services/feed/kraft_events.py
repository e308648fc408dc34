"""Events of a Kafka 4 cluster without a place among the revisions: what it did with values of this service.

There are two kinds. A put-back is an external write to the Kafka cluster that ``enforce`` undid, or that a queued
change overwrote; it never was a version of an entity here. An :class:`AppliedEvent` has apply statuses that changed.
Neither has an id or moves a position, so a put-back may come again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree
from confplane.services.background import BackgroundService, BackgroundTask
from confplane.services.kraft.apply.apply_status import ChangeApplyState
from confplane.services.znode_metadata import read_metadata

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from confplane.services.feed.events import FeedEvent
    from confplane.services.kraft.apply.apply_status import ApplyStatus
    from confplane.services.ports.feed import FeedChange, FeedTrail
    from confplane.services.ports.journal import JournalEntry

logger = logging.getLogger(__name__)

MOST_EVENTS: Final = 1_000
"""The greatest number of events that are kept for slower consumers."""
OVERLAP: Final = timedelta(minutes=1)
"""Put-backs that were recorded up to this long before a time count as recorded after it: clocks differ, and a row is
visible later than its time."""
_KEPT: Final = timedelta(minutes=15)
"""The age of the put-backs that are read when the feed begins, for consumers that come from another process."""
_PAGE: Final = 100
_ENTITIES: Final = 1_000
"""Entities of one event."""
_POLL_S: Final = 1.0
_SHARE: Final = 10
"""A poll of many entities is followed by a pause of this many times its duration."""
_NO_ID: Final = UUID(int=0)


@dataclass(eq=False, slots=True)
class AppliedEvent:
    """Apply statuses by entity id."""

    statuses: Mapping[str, ApplyStatus]


class ApplyStatuses(Protocol):
    """The apply statuses of one cluster's entities."""

    @property
    def applies(self) -> bool:
        """True if client changes are applied to a Kafka cluster."""

    def pending(self) -> list[str]:
        """Return the entities of the mirror with pending keys."""

    async def current(self, entity_ids: Collection[str]) -> dict[str, ApplyStatus]:
        """Return the apply statuses of entities; see ``ApplyWaiter``."""


class KraftEvents(BackgroundService):
    """The events of one cluster without a place. Does nothing unless client changes are applied to a Kafka cluster.

    Args:
        cluster: The name of the cluster.
        trail: The trail.
        statuses: The apply statuses.
        event: Returns the event of a put-back.
        publish: Called with the number of the first event of some new ones.

    Attributes:
        base: The number of the first event.
        events: The events, of which the oldest are dropped.
        since: Put-backs from this time on are among the events, unless they were dropped.
    """

    def __init__(
        self,
        cluster: str,
        trail: FeedTrail,
        statuses: ApplyStatuses,
        event: Callable[[FeedChange], FeedEvent | None],
        publish: Callable[[Sequence[FeedEvent | AppliedEvent], int], None],
    ) -> None:
        self._cluster = cluster
        self._trail = trail
        self._statuses = statuses
        self._event = event
        self._publish = publish
        self.base = 0
        self.events: list[FeedEvent | AppliedEvent] = []
        self.since = datetime.now(UTC)
        self._polled_at = self.since
        self._seen: dict[UUID, datetime] = {}
        self._pending: set[str] = set()
        self._known: dict[str, ApplyStatus] = {}
        self._complete = False
        self._background = BackgroundTask(self._run, name=f"kraft-events-{cluster}")

    @property
    def next_number(self) -> int:
        """The number of the next event."""
        return self.base + len(self.events)

    def misses(self, time_ms: int) -> bool:
        """Return True if only the trail may have the put-backs after a time."""
        return self._statuses.applies and datetime.fromtimestamp(time_ms / 1000, UTC) - OVERLAP < self.since

    def not_applied(self) -> Iterator[AppliedEvent]:
        """Yield the statuses of all entities that are not applied."""
        return _events({key: each for key, each in self._known.items() if each.state is not ChangeApplyState.APPLIED})

    def begin(self) -> None:
        """Read the pending entities of the mirror, which was loaded again."""
        self._pending = set(self._statuses.pending())

    def follow(self, entries: Iterable[JournalEntry]) -> None:
        """Note the pending entities among changed ones."""
        for entry in entries:
            if entry.tree is Tree.CONFIG:
                if entry.after is not None and read_metadata(entry.after.extra).pending_keys:
                    self._pending.add(entry.entity_id)
                else:
                    self._pending.discard(entry.entity_id)

    async def _run(self) -> None:
        self.since = self._polled_at = datetime.now(UTC) - _KEPT
        while True:
            began = time.monotonic()
            if self._statuses.applies or self._known:
                try:
                    await self.poll()
                except UnavailableError as error:
                    logger.debug("Cluster %s: events of the Kafka cluster have to wait: %s", self._cluster, error)
                except Exception:
                    logger.exception("Cluster %s: events of the Kafka cluster failed", self._cluster)
            await asyncio.sleep(max(_POLL_S, _SHARE * (time.monotonic() - began)))

    async def poll(self) -> None:
        """Append what is new.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        now, since = datetime.now(UTC), self._polled_at - OVERLAP
        found = [
            change
            async for change in put_backs(self._trail, self._cluster, since)
            if change.place.change_id not in self._seen
        ]
        changed = await self._changed()
        # Nothing is awaited from here on: a change that counts as seen is published.
        self._polled_at = now
        self._seen = {key: at for key, at in self._seen.items() if at >= since - OVERLAP}
        self._seen.update((change.place.change_id, now) for change in found)
        new: list[FeedEvent | AppliedEvent] = [*filter(None, map(self._event, found)), *_events(changed)]
        if not new:
            return
        number = self.next_number
        self.events += new
        self._publish(new, number)
        dropped = max(0, len(self.events) - MOST_EVENTS)
        del self.events[:dropped]
        self.base += dropped
        if dropped:
            # Put-backs may be among the dropped events.
            self.since = datetime.now(UTC)

    async def _changed(self) -> dict[str, ApplyStatus]:
        """Return the statuses that are not as they were known."""
        pending = set(self._pending)
        current = await self._statuses.current(pending | self._known.keys())
        changed = {
            key: each
            for key, each in current.items()
            if each != self._known.get(key) and (self._complete or each.state is not ChangeApplyState.APPLIED)
        }
        self._complete = True
        self._known = {key: each for key, each in current.items() if key in pending}
        return changed


async def put_backs(trail: FeedTrail, cluster: str, since: datetime) -> AsyncGenerator[FeedChange, None]:
    """Yield the put-backs that were recorded at a time or later.

    Raises:
        UnavailableError: Postgres is unavailable.
    """
    after = _NO_ID
    while True:
        changes = await trail.put_backs(cluster, since, after, _PAGE)
        for change in changes:
            yield change
        if len(changes) < _PAGE:
            return
        after = changes[-1].place.change_id


def _events(statuses: Mapping[str, ApplyStatus]) -> Iterator[AppliedEvent]:
    ids = list(statuses)
    for first in range(0, len(ids), _ENTITIES):
        yield AppliedEvent({key: statuses[key] for key in ids[first : first + _ENTITIES]})
