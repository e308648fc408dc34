"""The feed of one cluster: its changes as events in their order, for many consumers.

The order is that of positions: incarnation, revision, change id. One task per cluster follows the mirror's journal,
asks the trail for the changes up to the mirror's revision, and appends their events to a ring that all consumers share.
An own change is never passed over: while versions that the mirror saw are explained by no change, and a change without
an outcome may have written them, the task waits for that outcome. After five seconds the change's marker decides: one
that has a commit's marker is concluded, and any other has written none of the versions that the mirror saw. Versions
that no change explains are external.

Positions below the ring are served from the trail (services/feed/consumer.py). The ring begins where the mirror was
loaded, so the trail is asked for what came before, also after missed notifications.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_right
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from confplane.domain.errors import UnavailableError
from confplane.services.background import BackgroundService, BackgroundTask
from confplane.services.changes.settle import conclude_committed
from confplane.services.feed.events import FeedEvent, event_of
from confplane.services.feed.kraft_events import KraftEvents
from confplane.services.feed.merge import external_change, notified_state, steps_of, unexplained, with_complete_states
from confplane.services.feed.positions import FeedPosition
from confplane.services.feed.request_events import FeedRequests, number_of
from confplane.services.ports.feed import FeedChange
from confplane.services.ports.journal import ExpiredCursor
from confplane.services.ports.trail import EXTERNAL, EXTERNAL_PRINCIPAL, LAST_ID, HistoryPlace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from confplane.services.clusters import Cluster
    from confplane.services.feed.events import Subject
    from confplane.services.feed.kraft_events import AppliedEvent, ApplyStatuses
    from confplane.services.feed.merge import EntitySteps, ExternalGap
    from confplane.services.ports.feed import FeedTrail
    from confplane.services.ports.journal import Cursor, JournalPage
    from confplane.services.ports.trail import AuditLog
    from confplane.services.ticks import Ticks

logger = logging.getLogger(__name__)

PAGE: Final = 100
"""Changes that one statement reads: each may have a thousand entities."""
_ENTRIES: Final = 500
RING_EVENTS: Final = 10_000
"""The greatest number of events in the ring."""
_MOST_BYTES: Final = 32 * 2**20
_LEFT: Final = 7 / 8
_RETRY_S: Final = 0.5
_PATIENCE_S: Final = 5.0
_PAUSES_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25)
"""Seconds between two looks for the outcome of a change that is not in the trail yet: it mostly takes milliseconds."""
_OPEN: Final = timedelta(hours=1)
"""The age up to which a change without an outcome may explain a write."""
_UNKNOWN_S: Final = 120.0
"""Seconds after a load in which a notification of an absent node may be that of a deletion before the load."""
SETTLE_S: Final = 5.0
"""Seconds to wait for the outcome of a change before its marker is read: longer than a writer's statement may take, and
than the leader needs for a change whose writer is gone."""
_CALL_S: Final = 10.0


class FeedListener(Protocol):
    """A consumer, as the feed knows it."""

    def offer(self, events: Sequence[FeedEvent], number: int) -> None:
        """Consider new events, of which the first has a number."""

    def offer_kraft(self, events: Sequence[FeedEvent | AppliedEvent], number: int) -> None:
        """Consider new events of a Kafka 4 cluster, of which the first has a number."""

    def interrupt(self, last: FeedPosition) -> None:
        """Record that the ring begins again, after its last position."""


class ClusterFeed(BackgroundService):
    """The feed of one cluster. It starts with its first consumer.

    Args:
        cluster: The cluster.
        trail: The trail.
        audit: The trail, which takes outcomes.
        statuses: The apply statuses of the cluster.
        ticks: The times of the polls for events of requests, which the feeds of a process share.

    Attributes:
        kraft: The events of a Kafka 4 cluster, which have no place.
        incarnation: The incarnation of the store.
        floor: Positions up to this place are served from the trail.
        end: The revision up to which the ring has all events.
        requests: The events of change requests.
        floor_requests: Events of requests up to this number are served from Postgres.
        base: The number of the ring's first event.
        generation: Rises when the ring begins again.
    """

    def __init__(
        self, cluster: Cluster, trail: FeedTrail, audit: AuditLog, statuses: ApplyStatuses, ticks: Ticks
    ) -> None:
        self.cluster = cluster
        self.trail = trail
        self._audit = audit
        self.kraft = KraftEvents(cluster.name, trail, statuses, self.event, self._publish_kraft)
        self.requests = FeedRequests(cluster, trail, lambda: self.last.place, self._publish_requests, ticks)
        self.floor_requests = 0
        self.incarnation = 0
        self.floor = HistoryPlace(0, 0, LAST_ID)
        self.end = 0
        self.base = 0
        self.generation = 0
        self._listeners: dict[Subject | None, set[FeedListener]] = {}
        """The consumers by what they ask for: most follow one entity, and get its changes alone."""
        self.ring: list[FeedEvent] = []
        self._bytes = 0
        self._cursor: Cursor | None = None
        self._seen = 0
        self._early: list[FeedEvent] = []
        self._outside: dict[str, FeedEvent] = {}
        self._began_at = 0.0
        self._loaded = 0
        self._end_ms = 0
        self._ready = asyncio.Event()
        self._started = False
        self._redact = next(iter(cluster.facets.values())).redact
        self._background = BackgroundTask(self._run, name=f"feed-{cluster.name}")

    async def ready(self, deadline: float) -> None:
        """Start the feed if it is not started, and wait until it has a position.

        Raises:
            UnavailableError: A store is unavailable.
        """
        name, store = self.cluster.name, self.cluster.store
        if not self._started:
            self._started = True
            self.start()
            self.kraft.start()
            self.requests.start()
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await self._ready.wait()
        except TimeoutError:
            raise UnavailableError(f"Cluster {name}: its configs were not loaded from ZooKeeper yet") from None
        if self.incarnation != store.incarnation:
            raise UnavailableError(f"The feed of cluster {name} begins again. Connect again", retry_after_s=1)

    async def stop(self) -> None:
        """Stop."""
        await super().stop()
        await self.kraft.stop()
        await self.requests.stop()

    def listen(self, listener: FeedListener, subject: Subject | None) -> None:
        """Offer the events of a subject, and resets, to a consumer; None: all events."""
        self._listeners.setdefault(subject, set()).add(listener)

    def forget(self, listener: FeedListener, subject: Subject | None) -> None:
        """Offer no more events to a consumer."""
        listeners = self._listeners.get(subject, set())
        listeners.discard(listener)
        if not listeners:
            self._listeners.pop(subject, None)

    async def reach(self, revision: int, deadline: float) -> None:
        """Wait until the ring has all events up to a revision.

        Raises:
            UnavailableError: It does not in time.
        """
        deadline = min(deadline, time.monotonic() + _PATIENCE_S)
        while self.end < revision:
            if time.monotonic() >= deadline:
                raise UnavailableError(
                    f"The feed of cluster {self.cluster.name} is at revision {self.end} on this process, and not yet at"
                    f" {revision}. Connect again",
                    retry_after_s=1,
                )
            await asyncio.sleep(_PAUSES_S[3])

    @property
    def last(self) -> FeedPosition:
        """The position after all events of the ring."""
        place = HistoryPlace(self.incarnation, self.end, LAST_ID)
        return FeedPosition(place, self._end_ms, requests=self.requests.number)

    @property
    def next_number(self) -> int:
        """The number of the next event."""
        return self.base + len(self.ring)

    def number_after(self, position: FeedPosition) -> int:
        """Return the number of the first event of the ring after a position. Later ones may be before it."""
        found = bisect_right(self.ring, position.place, key=_place)
        if position.requests is not None:
            found = min(found, bisect_right(self.ring, position.requests, key=_requests))
        return self.base + found

    def event(self, change: FeedChange) -> FeedEvent | None:
        """Return the event of a change; None for a change that gave no key another value.

        A change of which no event can be made is reported, and is a reset: consumers list again, and continue.
        """
        position = FeedPosition(change.place, change.time_ms)
        try:
            return event_of(change, self.cluster.facets, position)
        except Exception:
            logger.exception(
                "Cluster %s: change %s can't be shown in the feed; its consumers are told to list again",
                *(self.cluster.name, change.place.change_id),
            )
            return FeedEvent(position, change, ())

    # -- following

    async def _run(self) -> None:
        while True:
            try:
                await self._round()
            except UnavailableError as error:
                logger.debug("Cluster %s: the feed has to wait: %s", self.cluster.name, error.detail)
                await asyncio.sleep(_RETRY_S)
            except Exception:
                logger.exception("Cluster %s: the feed failed", self.cluster.name)
                await asyncio.sleep(_RETRY_S)

    async def _round(self) -> None:
        store = self.cluster.store
        if store.restored or not store.accepted:
            await asyncio.sleep(_RETRY_S)
            return
        if self.requests.incarnation != store.incarnation:
            await self.requests.begin(store.incarnation)
        page = store.journal.read(self._cursor, _ENTRIES)
        if page is None:
            await store.journal.wait(None)
        elif isinstance(page, ExpiredCursor) or store.incarnation != self.incarnation:
            if store.journal.waiting:
                # The load has nodes above its revision, whose changes have no entry in the journal.
                await store.journal.wait(page.cursor)
            else:
                self._begin(page.cursor)
        elif page.cursor == self._cursor:
            await store.journal.wait(self._cursor)
        else:
            await self._follow(page)

    def _begin(self, cursor: Cursor) -> None:
        """Begin the ring again at the mirror's revision; consumers read the trail up to it."""
        last = self.last
        for consumer in chain.from_iterable(self._listeners.values()):
            consumer.interrupt(last)
        self.base = self.next_number
        self.ring.clear()
        self._bytes = 0
        self._early.clear()
        self._outside.clear()
        self._began_at = time.monotonic()
        self.generation += 1
        self.incarnation = self.cluster.store.incarnation
        self.end = self._seen = self._loaded = cursor.revision
        self._end_ms = time.time_ns() // 1_000_000
        self.floor = HistoryPlace(self.incarnation, cursor.revision, LAST_ID)
        self.floor_requests = self.requests.number
        self._cursor = cursor
        self.kraft.begin()
        self._ready.set()

    async def _follow(self, page: JournalPage) -> None:
        revision, read_ms = page.cursor.revision, time.time_ns() // 1_000_000
        newest = max((entry.after.mzxid for entry in page.entries if entry.after is not None), default=0)
        if page.entries or self._seen > self.end:
            events = await self._events(page, max(revision, newest))
            self._seen = max(self._seen, newest)
            self._publish(events)
            self.kraft.follow(page.entries)
        self.end, self._end_ms = revision, read_ms
        self._cursor = page.cursor

    async def _events(self, page: JournalPage, until: int) -> list[FeedEvent]:
        """Return the events of all changes up to the page's revision, in order."""
        revision = page.cursor.revision
        steps = steps_of(page.entries)
        changes, external = await self._merged(steps, until)
        by_path = {each.path: each for each in steps}
        found = [
            with_complete_states(change, by_path, self._loaded)
            for change in changes
            if change.kind != EXTERNAL and change.place.revision <= revision
        ]
        # A write that is seen after the mirror has passed its revision comes next, or with its notification. Its entity
        # has its revision. A node may be read with an earlier notification than its own.
        outside = [self._external(each, max(each.gap.revision, self.end + 1, each.steps.notified)) for each in external]
        shown = {each.steps.path for each in external}
        outside += [await self._notified(each) for each in steps if each.notified and each.path not in shown]
        events = [event for event in (*map(self.event, found), *outside, *self._early) if event is not None]
        self._early = [event for event in events if event.position.place.revision > revision]
        return sorted((event for event in events if event.position.place.revision <= revision), key=_place)

    def _external(self, external: ExternalGap, revision: int) -> FeedEvent | None:
        """Return the event of external writes at a revision, as :meth:`event` does."""
        name, place, time_ms = (
            self.cluster.name,
            HistoryPlace(self.incarnation, revision, LAST_ID),
            external.gap.time_ms,
        )
        try:
            change = external_change(name, external, place)
        except Exception:
            logger.exception(
                "Cluster %s: external writes to %s can't be shown in the feed; its consumers are told to list again",
                *(name, external.steps.path),
            )
            change = FeedChange(place, time_ms, EXTERNAL, EXTERNAL_PRINCIPAL, None, None, None, ())
            return FeedEvent(FeedPosition(place, time_ms), change, ())
        if change is None:
            return None
        return self.event(with_complete_states(change, {external.steps.path: external.steps}, self._loaded))

    async def _notified(self, steps: EntitySteps) -> FeedEvent | None:
        """Return the event of an external state whose notification comes only now, at the notification's place.

        A consumer that comes from another process with a position before that notification may not have the state: the
        other process may have read it with the notification.
        """
        place, node = HistoryPlace(self.incarnation, steps.notified, LAST_ID), steps.after
        known = self._outside.get(steps.path)
        if known is not None:
            version = known.change.entities[0].version
            if version is None if node is None else (version, known.parts[0].revision) == (node.version, node.mzxid):
                entities = [replace(each, complete=True) for each in known.change.entities]
                again = place._replace(change_id=known.position.place.change_id)
                return self.event(replace(known.change, place=again, entities=entities))
        if node is None:
            # Deleted before the load, perhaps, when nobody here knew its keys.
            now_ms = time.time_ns() // 1_000_000
            change = FeedChange(place, now_ms, EXTERNAL, EXTERNAL_PRINCIPAL, None, None, None, ())
            just_loaded = time.monotonic() - self._began_at < _UNKNOWN_S
            return FeedEvent(FeedPosition(place, now_ms), change, ()) if just_loaded else None
        before = HistoryPlace(self.incarnation, node.mzxid - 1, LAST_ID)
        for change in await self.trail.changes(self.cluster.name, before, node.mzxid, PAGE):
            if change.kind != EXTERNAL and any(entity.path == steps.path for entity in change.entities):
                return None
        state = notified_state(self.cluster.name, steps, self._redact, place)
        return None if state is None else self.event(state)

    async def _merged(self, steps: Sequence[EntitySteps], until: int) -> tuple[list[FeedChange], Sequence[ExternalGap]]:
        """Return the changes of the trail up to a revision, and what is external; waits for outcomes if need be."""
        # A change of ours may have made a node that was deleted before the mirror saw it.
        passing = {each.path: each.entity_id for each in steps if each.before is None and each.after is None}
        pauses, due, decided = iter(_PAUSES_S), time.monotonic() + SETTLE_S, set[UUID]()
        while True:
            changes = await self._changes(until)
            now_ms = time.time_ns() // 1_000_000
            gaps = unexplained(steps, changes, self._redact, until, now_ms)
            if not gaps and not passing:
                return changes, ()
            # Open changes first: a change that is concluded in between is then found among those with an outcome.
            ids = {gap.steps.entity_id for gap in gaps}.union(passing.values())
            writes = await self.trail.unsettled_writes(self.cluster.name, ids, datetime.now(UTC) - _OPEN)
            changes = await self._changes(until)
            gaps = unexplained(steps, changes, self._redact, until, now_ms)
            paths = {*passing, *(gap.steps.path for gap in gaps)}
            waiting = {write.change_id for write in writes if write.path in paths} - decided
            if not waiting:
                return changes, gaps
            if time.monotonic() < due:
                await asyncio.sleep(next(pauses, _PAUSES_S[-1]))
            else:
                decided |= waiting - await self._concluded(waiting)
                due = time.monotonic() + SETTLE_S

    async def _concluded(self, change_ids: Collection[UUID]) -> set[UUID]:
        """Write the outcomes of committed changes whose writers have not done so, and return those changes."""
        cluster, deadline = self.cluster, time.monotonic() + _CALL_S
        committed = await conclude_committed(self._audit, cluster.store, list(change_ids), deadline=deadline)
        logger.info(
            "Cluster %s: the feed did not wait longer for the outcomes of %d changes, of which %d were committed",
            *(cluster.name, len(change_ids), len(committed)),
        )
        return committed

    async def _changes(self, until: int) -> list[FeedChange]:
        found: list[FeedChange] = []
        place = HistoryPlace(self.incarnation, self.end, LAST_ID)
        while True:
            some = await self.trail.changes(self.cluster.name, place, until, PAGE)
            found += some
            if len(some) < PAGE:
                return found
            place = some[-1].place

    def _publish_requests(self, changes: Sequence[FeedChange]) -> None:
        last = self.last
        self._publish(FeedEvent(last._replace(requests=number_of(change)), change, ()) for change in changes)

    def _publish(self, events: Iterable[FeedEvent]) -> None:
        number = self.next_number
        for event in events:
            if event.change.request is None:
                event.position = event.position._replace(requests=self.requests.number)
            self.ring.append(event)
            if event.change.kind == EXTERNAL and event.parts:
                self._outside[event.change.entities[0].path] = event
            self._bytes += event.size
        new = self.ring[number - self.base :]
        subjects: Iterable[Subject | None] = {None, *chain.from_iterable(event.subjects() for event in new)}
        if any(event.is_reset for event in new):
            subjects = self._listeners
        for consumer in chain.from_iterable(self._listeners.get(each, ()) for each in subjects):
            consumer.offer(new, number)
        if len(self.ring) > RING_EVENTS or self._bytes > _MOST_BYTES:
            self._shrink()

    def _publish_kraft(self, events: Sequence[FeedEvent | AppliedEvent], number: int) -> None:
        for consumer in chain.from_iterable(self._listeners.values()):
            consumer.offer_kraft(events, number)

    def _shrink(self) -> None:
        dropped = 0
        while len(self.ring) - dropped > RING_EVENTS * _LEFT or (
            self._bytes > _MOST_BYTES * _LEFT and dropped < len(self.ring)
        ):
            event = self.ring[dropped]
            self._bytes -= event.size
            dropped += 1
            if event.parts and self._outside.get(event.change.entities[0].path) is event:
                del self._outside[event.change.entities[0].path]
        self.floor = self.ring[dropped - 1].position.place
        self.floor_requests = _requests(self.ring[dropped - 1])
        del self.ring[:dropped]
        self.base += dropped


def _place(event: FeedEvent) -> HistoryPlace:
    return event.position.place


def _requests(event: FeedEvent) -> int:
    return event.position.requests or 0
