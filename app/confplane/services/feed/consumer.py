"""One consumer of a feed: where it is, what it may see, and what comes next for it.

A consumer has no task, no query and no buffer of its own. The feed offers each new event to all consumers, and wakes
those that get it. A consumer whose position is below the ring reads the trail first, and before that the rest of its
snapshot.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from confplane.domain.entities import Entity
from confplane.domain.errors import ConfplaneError, UnauthenticatedError, UnavailableError
from confplane.services.cooperative_yielding import TimeSlice
from confplane.services.feed.events import FeedEvent
from confplane.services.feed.kraft_events import OVERLAP, AppliedEvent, put_backs
from confplane.services.feed.merge import LATE, with_requests
from confplane.services.feed.positions import FeedPosition
from confplane.services.feed.snapshot import read_page
from confplane.services.feed.stream import PAGE
from confplane.services.ports.trail import IMPORT, HistoryPlace
from confplane.services.reads.trail import visible
from confplane.services.requests.reader import may_see

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence

    from confplane.services.access import Access
    from confplane.services.feed.events import EventPart, FeedFilter
    from confplane.services.feed.positions import SnapshotPlace
    from confplane.services.feed.stream import ClusterFeed
    from confplane.services.kraft.apply.apply_status import ApplyStatus
    from confplane.services.ports.feed import FeedChange, FeedRequest
    from confplane.services.ports.history import TrailHistory

HEARTBEAT_S: Final = 15.0
_LATE_PAGE: Final = 1_000
"""External changes that one statement reads; each has one entity."""
_NO_ID: Final = UUID(int=0)
_OVERLAP_MS: Final = OVERLAP // timedelta(milliseconds=1)
_PATIENCE_S: Final = 5.0
"""Seconds to wait for the trail to be complete up to the ring."""
_POLL_S: Final = 0.25
PAGE_S: Final = 30.0
"""Seconds in which a consumer has to take one page of the trail or of a snapshot: others wait for its place."""


class FeedDelivery(NamedTuple):
    """Something to send to a consumer."""

    event: FeedEvent | None = None
    """A change, a reset, a put-back or the state of an entity. None: apply statuses, a bookmark or a heartbeat."""
    parts: Sequence[EventPart] = ()
    partial: bool = False
    position: FeedPosition | None = None
    """The position after it: its id. None for a put-back, and for an external change that may be below the consumer's
    position, which it must not move."""
    statuses: Mapping[str, ApplyStatus] | None = None
    """Apply statuses by entity id. With these there is no event."""
    bookmark: int | None = None
    """The revision up to which nothing is missing. None: there is no bookmark, or no later one than the last."""
    of_snapshot: bool = False
    """True for a state of the snapshot, and for the bookmark at its end."""


class FeedConsumer:
    """A consumer; created by :class:`~confplane.services.feed.hub.FeedHub`.

    Args:
        feed: The feed.
        history: The trail as a history, for its coverage.
        access: The rights of the consumer.
        wanted: The filter.
        replays: Bounds the consumers that read the trail.
        release: Called once at the end.
        statuses: The consumer also gets apply statuses.
        clock: Seconds of a clock that never goes back.

    Attributes:
        position: Everything up to it was delivered.
        reason: The reason why the stream ended.
    """

    __slots__ = (
        "_clock",
        "_feed",
        "_generation",
        "_history",
        "_kraft_next",
        "_kraft_since_ms",
        "_next",
        "_page_began",
        "_pending",
        "_release",
        "_replaying",
        "_replays",
        "_statuses",
        "_statuses_due",
        "_statuses_next",
        "_wake",
        "access",
        "position",
        "reason",
        "wanted",
    )

    def __init__(
        self,
        feed: ClusterFeed,
        history: TrailHistory,
        access: Access,
        wanted: FeedFilter,
        replays: asyncio.Semaphore,
        release: Callable[[FeedConsumer], None],
        *,
        statuses: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._page_began: float | None = None
        self._feed = feed
        self._history = history
        self._release: Callable[[FeedConsumer], None] | None = release
        self._wake: asyncio.Future[None] | None = None
        self._replays = replays
        self._replaying = False
        self._statuses = statuses
        self._statuses_due = statuses
        self._statuses_next = 0
        self._kraft_next = feed.kraft.next_number
        self._kraft_since_ms = time.time_ns() // 1_000_000 - _OVERLAP_MS
        self.access = access
        self.wanted = wanted
        self.reason: str | None = None
        self._attach(feed.last if wanted.requests is not None else feed.last._replace(requests=None))

    def _attach(self, position: FeedPosition) -> None:
        """Continue from a position, in the ring if it has everything after it."""
        feed = self._feed
        self.position = position
        self._generation = feed.generation
        self._next = feed.number_after(position)
        self._pending = self._next < feed.next_number
        feed.listen(self, self.wanted.subject)

    async def resume(self, position: FeedPosition) -> None:
        """Continue from a position that was checked.

        Raises:
            UnavailableError: The trail is not complete up to the ring yet, or too many consumers read it.
        """
        feed = self._feed
        if self.wanted.requests is None:
            position = position._replace(requests=None)
        elif position.requests is None:
            # The client asks for events of requests only now, and gets those from now on.
            position = position._replace(requests=feed.requests.number)
        self._kraft_next = feed.kraft.base
        self._kraft_since_ms = position.time_ms - _OVERLAP_MS
        if position.snapshot is not None or self._is_below(position) or feed.kraft.misses(position.time_ms):
            if self._replays.locked():
                raise UnavailableError(
                    "Too many consumers read the trail or a snapshot on this process. Send the request again",
                    retry_after_s=5,
                )
            await self._replays.acquire()
            self._replaying = True
            if position.place < feed.floor:
                await self._wait_for_trail(time.monotonic() + _PATIENCE_S)
        self._attach(position)

    def _is_below(self, position: FeedPosition) -> bool:
        """Return True if the ring does not have everything after a position."""
        return position.place < self._feed.floor or self._misses_requests(position, self._feed.floor_requests)

    @staticmethod
    def _misses_requests(position: FeedPosition, number: int) -> bool:
        """Return True if events of requests up to a number are asked for, and a position is before one of them."""
        return position.requests is not None and position.requests < number

    # -- called by the feed

    def offer(self, events: Sequence[FeedEvent], number: int) -> None:
        """Consider new events, of which the first has a number; wake the consumer if it gets one of them.

        Events of other entities than the only one that the consumer asks for are not offered.
        """
        if self._pending or self._generation != self._feed.generation:
            return
        try:
            within = visible(self.access, self._feed.cluster.name)
            for event in events:
                if self.wanted.select(event, within, self._may_see) is not None:
                    self._pending, self._next = True, number
                    self.wake()
                    return
                number += 1
        except ConfplaneError:
            self.end("credential-ended")
        self._next = number

    def offer_kraft(self, events: Sequence[FeedEvent | AppliedEvent], number: int) -> None:
        """Consider new events of a Kafka 4 cluster; wake the consumer if it gets one of them."""
        if self._kraft_next == number and not any(map(self._selected_of_kraft, events)):
            self._kraft_next += len(events)
        else:
            self.wake()

    def interrupt(self, last: FeedPosition) -> None:
        """Record that the ring begins again, after its last position."""
        if not (self._pending or self._replaying) and self._generation == self._feed.generation:
            self.position = self.position.past(last)
        self.wake()

    def check(self) -> None:
        """End the stream if the credential is no longer valid, the store was replaced, or a replay is too slow."""
        if self._page_began is not None and self._clock() - self._page_began > PAGE_S:
            self.end("slow-consumer")
            self._free_place()
        store = self._feed.cluster.store
        if store.restored or self.position.place.incarnation != store.incarnation:
            self.end("store-replaced")
            return
        try:
            self.access.check()
        except ConfplaneError:
            self.end("credential-ended")

    def end(self, reason: str) -> None:
        """End the stream after a last event with the reason."""
        if self.reason is None:
            self.reason = reason
            self.wake()

    def wake(self) -> None:
        """Continue a consumer that waits."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def close(self) -> None:
        """Free everything that the consumer holds."""
        self._feed.forget(self, self.wanted.subject)
        self._free_place()
        if self._release is not None:
            self._release(self)
            self._release = None

    def _free_place(self) -> None:
        """Let another consumer read the trail."""
        self._page_began = None
        if self._replaying:
            self._replaying = False
            self._replays.release()

    # -- called by the reader

    @property
    def idle(self) -> bool:
        """True if nothing is to be delivered now."""
        behind = self._generation != self._feed.generation or self._replaying
        of_kraft = self._statuses_due or self._kraft_next < self._feed.kraft.next_number
        return not (self._pending or behind or of_kraft or self.reason)

    async def deliveries(self, until: float | None = None) -> AsyncGenerator[FeedDelivery, None]:
        """Yield what is to be sent, until the stream ends.

        Args:
            until: Also end once nothing is to be sent and either an event with an id or the end of a snapshot was sent,
                or this time has passed, by ``time.monotonic()``; None: never. Events without an id may come with each
                of many polls.
        """
        feed, sent, bookmark = self._feed, False, self._feed.end
        heartbeat = time.monotonic() + HEARTBEAT_S * random.uniform(0.9, 1.0)  # noqa: S311 - no secret
        while self.reason is None:
            if not self.idle:
                async for delivery in self._available():
                    sent = sent or delivery.position is not None or delivery.of_snapshot
                    yield delivery
                continue
            now = time.monotonic()
            if until is not None and (sent or now >= until):
                return
            if now < heartbeat:
                await self._wait(min(heartbeat, until or heartbeat) - now)
                continue
            heartbeat = now + HEARTBEAT_S
            later, bookmark = feed.end > bookmark, max(bookmark, feed.end)
            yield FeedDelivery(bookmark=bookmark if later else None)

    async def _available(self) -> AsyncGenerator[FeedDelivery, None]:
        """Yield what can be sent now."""
        feed = self._feed
        if self._replaying or self._generation != feed.generation:
            async for delivery in self._replayed():
                yield delivery
        for delivery in self._of_kraft():
            yield delivery
        while self._pending and self.reason is None and self._generation == feed.generation:
            if self._next < feed.base:
                self.end("slow-consumer")
                return
            event = feed.ring[self._next - feed.base]
            self._next += 1
            self._pending = self._next < feed.next_number
            # As in _passed().
            passed = event.is_reset and self._pending and feed.ring[self._next - feed.base].is_reset
            # A process may have an event of a request behind other changes than the one that gave the position has.
            request = event.change.request
            passed = passed or (
                event.position.place <= self.position.place
                if request is None
                else not self._misses_requests(self.position, request.number)
            )
            self.position = self.position.past(event.position)
            found = None if passed else self._selected(event, self.position)
            if found is not None:
                yield found

    def _of_kraft(self) -> Iterator[FeedDelivery]:
        """Yield the events of a Kafka 4 cluster that can be sent now."""
        kraft = self._feed.kraft
        if self._statuses_due:
            self._statuses_due = False
            self._statuses_next = kraft.next_number
            yield from filter(None, map(self._selected_of_kraft, kraft.not_applied()))
        while self._kraft_next < kraft.next_number and self.reason is None:
            if self._kraft_next < kraft.base:
                self.end("slow-consumer")
                return
            event = kraft.events[self._kraft_next - kraft.base]
            superseded = isinstance(event, AppliedEvent) and self._kraft_next < self._statuses_next
            self._kraft_next += 1
            found = None if superseded else self._selected_of_kraft(event)
            if found is not None:
                yield found

    def _selected_of_kraft(self, event: FeedEvent | AppliedEvent) -> FeedDelivery | None:
        """Return an event of a Kafka 4 cluster as the consumer gets it now; None if it gets nothing of it."""
        if not isinstance(event, AppliedEvent):
            late = event.position.time_ms >= self._kraft_since_ms
            return self._selected(event, None) if late else None
        if not self._statuses:
            return None
        try:
            within = visible(self.access, self._feed.cluster.name)
        except ConfplaneError:
            self.end("credential-ended")
            return None
        found = {
            entity_id: status
            for entity_id, status in event.statuses.items()
            if (within is None or entity_id in within) and self.wanted.takes_status(Entity.from_id(entity_id))
        }
        return FeedDelivery(statuses=found) if found else None

    def raise_if_ended(self) -> None:
        """Refuse a page of a consumer whose stream ended.

        Raises:
            UnauthenticatedError: The credential is no longer valid.
            UnavailableError: The stream ended for another reason; the client asks again.
        """
        if self.reason is not None:
            self.access.check()
            raise UnavailableError(f"The feed ended ({self.reason}). Send the request again", retry_after_s=1)

    def resting_position(self) -> FeedPosition:
        """Return the position to continue from: after all events that are passed, whether they were sent or not."""
        return self.position.past(self._feed.last) if self.idle else self.position

    async def _wait(self, seconds: float) -> None:
        self._wake = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(seconds, self.wake)
        try:
            await self._wake
        finally:
            timer.cancel()
            self._wake = None

    def _selected(self, event: FeedEvent, position: FeedPosition | None) -> FeedDelivery | None:
        """Return an event as the consumer gets it now; None if it gets nothing of it."""
        try:
            selected = self.wanted.select(event, visible(self.access, self._feed.cluster.name), self._may_see)
        except ConfplaneError:
            self.end("credential-ended")
            return None
        return None if selected is None else FeedDelivery(event, *selected, position)

    def _may_see(self, request: FeedRequest) -> bool:
        return may_see(self.access, self._feed.cluster.name, request.author, request.entity_ids)

    async def _replayed(self) -> AsyncGenerator[FeedDelivery, None]:
        """Yield the rest of a snapshot, and what the trail has after the position, up to the ring."""
        if not self._replaying:
            # Missed notifications: all consumers read the trail, a few at a time.
            await self._replays.acquire()
            self._replaying = True
        begin = self.position._replace(snapshot=None)
        try:
            for part in (self._snapshot(self.position.snapshot), self._put_back(begin), self._trail()):
                async for delivery in part:
                    yield delivery
        except UnavailableError:
            self.end("trail-unavailable")
        self._free_place()
        self._attach(self.position)

    async def _snapshot(self, place: SnapshotPlace | None) -> AsyncGenerator[FeedDelivery, None]:
        """Yield the rest of a snapshot, and a bookmark at its end; nothing without a place in one.

        Raises:
            UnavailableError: The copy of tokens and grants is too old.
        """
        if place is None:
            return
        cluster, position, time_slice = self._feed.cluster, self.position, TimeSlice()
        while place is not None and self.reason is None:
            try:
                states, place = read_page(cluster, self.access, self.wanted, position, place)
            except UnauthenticatedError:
                self.end("credential-ended")
                return
            for state in self._page(
                FeedDelivery(event, event.parts, position=event.position, of_snapshot=True) for event in states
            ):
                assert state.position is not None  # noqa: S101 - for the type checker
                self.position = state.position
                yield state
            self.position = position._replace(snapshot=place)
            if time_slice.due:
                await time_slice.pause()
        if self.reason is None:
            yield FeedDelivery(bookmark=position.place.revision, of_snapshot=True)

    async def _trail(self) -> AsyncGenerator[FeedDelivery, None]:
        """Yield the changes of the trail, and the events of requests, after the position.

        Raises:
            UnavailableError: Postgres is unavailable, or the trail is not complete in time.
        """
        feed = self._feed
        ring: HistoryPlace | None = None
        while self._is_below(self.position) and self.reason is None:
            floor, name = feed.floor_requests, feed.cluster.name
            end = FeedPosition(feed.floor, self.position.time_ms, requests=floor)
            changes: list[FeedChange] = []
            if self.position.place < end.place:
                await self._wait_for_trail(time.monotonic() + _PATIENCE_S)
                if end.place != ring:
                    # The first part, or the ring begins at a later place now.
                    ring = end.place
                    async for delivery in self._late(self.position, ring.revision):
                        yield delivery
                changes = await feed.trail.changes(name, self.position.place, end.place.revision, PAGE)
            requests: list[FeedChange] = []
            number = self.position.requests
            if number is not None and number < floor:
                requests = await feed.trail.requests(name, number, floor, PAGE)
            complete = {"all_changes": len(changes) < PAGE, "all_requests": len(requests) < PAGE}
            for passed in self._page(self._passed(list(with_requests(changes, requests, **complete)))):
                yield passed
            if all(complete.values()) and self.reason is None:
                self.position = self.position.past(end._replace(time_ms=self.position.time_ms))

    def _page(self, deliveries: Iterable[FeedDelivery | None]) -> Iterator[FeedDelivery]:
        """Yield a page of the trail, and measure how long the consumer takes for it."""
        self._page_began = self._clock()
        for each in deliveries:
            if self.reason is not None:
                return
            if each is not None:
                yield each
        self._page_began = None

    def _passed(self, changes: Sequence[FeedChange]) -> Iterator[FeedDelivery]:
        """Yield what the consumer gets of some changes, and move its position past each of them."""
        for change, following in zip_longest(changes, changes[1:]):
            # Of several resets the last one counts: all before it is listed then.
            again = change.kind == IMPORT and following is not None and following.kind == IMPORT
            if change.request is None:
                after = self.position.past(FeedPosition(change.place, change.time_ms))
                event = None if again else self._feed.event(change)
            else:
                after = self.position.past(self.position._replace(requests=change.request.number))
                event = FeedEvent(after, change, ())
            found = None if event is None else self._selected(event, after)
            if self.reason is not None:
                return
            self.position = after
            if found is not None:
                yield found

    async def _put_back(self, position: FeedPosition) -> AsyncGenerator[FeedDelivery, None]:
        """Yield the put-backs of the trail after a position, if only the trail has them.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        feed = self._feed
        if not feed.kraft.misses(position.time_ms):
            return
        self._kraft_next = feed.kraft.next_number
        since = datetime.fromtimestamp(position.time_ms / 1000, UTC) - OVERLAP
        async with aclosing(put_backs(feed.trail, feed.cluster.name, since)) as changes:
            async for change in changes:
                event = feed.event(change)
                for found in self._page([None if event is None else self._selected(event, None)]):
                    yield found
                if self.reason is not None:
                    return

    async def _late(self, position: FeedPosition, above: int) -> AsyncGenerator[FeedDelivery, None]:
        """Yield external changes that neither the trail from a position up to the ring nor the ring may have.

        The process which gave the position may not have seen those before it: their notifications may come after it,
        and the trail has the revisions of the writes alone. The ring may lack those above the revision at which it
        begins: what the mirror had by then may be recorded at a later revision. They come before anything with an id,
        because another process has them in its ring, maybe below the next id.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        feed = self._feed
        since = datetime.fromtimestamp(position.time_ms / 1000, UTC) - LATE
        after: HistoryPlace | None = HistoryPlace(position.place.incarnation, 0, _NO_ID)
        while after is not None and self.reason is None:
            changes, after = await feed.trail.late(
                feed.cluster.name, position.place, since, after, _LATE_PAGE, above=above
            )
            events = filter(None, map(feed.event, [change for change in changes if change.entities]))
            for found in self._page(self._selected(event, None) for event in events):
                yield found

    async def _wait_for_trail(self, deadline: float) -> None:
        """Wait until the trail is complete up to the ring.

        Raises:
            UnavailableError: It is not complete in time.
        """
        name = self._feed.cluster.name
        while True:
            coverage = await self._history.coverage(name)
            floor = self._feed.floor.revision
            if coverage is not None and coverage.recorded >= floor:
                return
            if time.monotonic() >= deadline:
                raise UnavailableError(
                    f"The trail of cluster {name} is not complete up to revision {floor} yet. Send the request again",
                    retry_after_s=1,
                )
            await asyncio.sleep(_POLL_S)
