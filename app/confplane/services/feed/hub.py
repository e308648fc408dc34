"""The feeds of a process: checks positions, bounds the number of consumers, and ends their streams."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import (
    BeforeHistoryError,
    InvalidRequestError,
    LimitExceededError,
    RestoredStoreError,
    StoreReplacedError,
    TooManyConnectionsError,
    UnavailableError,
)
from confplane.domain.texts import rfc3339
from confplane.services.background import BackgroundService, BackgroundTask
from confplane.services.feed.consumer import FeedConsumer
from confplane.services.feed.positions import FeedPosition, encode
from confplane.services.feed.snapshot import BEGIN
from confplane.services.feed.stream import ClusterFeed
from confplane.services.metrics import Sample
from confplane.services.ports.trail import LAST_ID, HistoryPlace
from confplane.services.ticks import Ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from confplane.services.access import Access
    from confplane.services.clusters import Cluster, ClusterRegistry
    from confplane.services.feed.events import FeedFilter
    from confplane.services.ports.feed import FeedTrail
    from confplane.services.ports.history import TrailHistory
    from confplane.services.ports.trail import AuditLog

MOST_OF_PRINCIPAL: Final = 20
MOST: Final = 12_000
MOST_REPLAYS: Final = 4
_PATIENCE_S: Final = 5.0
"""Seconds to wait for the first external changes to be recorded."""
_POLL_S: Final = 0.25
_CHECK_S: Final = 0.5
"""Seconds between two checks of all credentials. The copy of the tokens may be a second old in addition."""


class FeedHub(BackgroundService):
    """The feeds of all clusters.

    Args:
        clusters: The clusters.
        trail: The trail as changes.
        audit: The trail, which takes the outcomes of changes whose writers do not write them.
        history: The trail as a history, for its coverage.
        stopping: Returns True once the process is stopping.
        recorded: The clusters whose external changes are recorded.
        clock: Seconds of a clock that never goes back, for slow consumers.
    """

    def __init__(
        self,
        clusters: ClusterRegistry,
        trail: FeedTrail,
        audit: AuditLog,
        history: TrailHistory,
        stopping: Callable[[], bool],
        *,
        recorded: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recorded = recorded
        self._covered: set[tuple[str, int]] = set()
        self._clock = clock
        ticks = Ticks()
        self._feeds = {
            cluster.name: ClusterFeed(cluster, trail, audit, cluster.apply_waiter, ticks) for cluster in clusters
        }
        self._history = history
        self._stopping = stopping
        self._replays = asyncio.Semaphore(MOST_REPLAYS)
        self._of_principal: Counter[str] = Counter()
        self._consumers: set[FeedConsumer] = set()
        self._background = BackgroundTask(self._run, name="feed-checks")

    async def stop(self) -> None:
        """Stop all feeds."""
        await super().stop()
        for feed in self._feeds.values():
            await feed.stop()

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield Sample("feed_consumers", len(self._consumers))
        for name, feed in self._feeds.items():
            yield Sample("feed_unknown_events", feed.requests.unknown, (name,))

    async def open(
        self,
        cluster: Cluster,
        access: Access,
        wanted: FeedFilter,
        after: FeedPosition | None,
        deadline: float,
        *,
        pointer: str = "after",
        statuses: bool = False,
        snapshot: bool = False,
    ) -> FeedConsumer:
        """Return a new consumer, which must be closed.

        Args:
            cluster: The cluster.
            access: The rights of the consumer.
            wanted: The filter.
            after: The position to continue from; None: now.
            deadline: The deadline on the clock of ``time.monotonic()``.
            pointer: The name of the position's parameter, for errors.
            statuses: The consumer also gets apply statuses.
            snapshot: A consumer without a position first gets the current states.

        Raises:
            RestoredStoreError: The store was restored, and nobody has accepted its state yet.
            StoreReplacedError: The position is of an earlier incarnation of the store.
            BeforeHistoryError: The position is older than the trail, or nobody records external changes.
            InvalidRequestError: The position is in the future.
            LimitExceededError: The principal has too many streams.
            UnavailableError: A store is unavailable or behind, or the process has too many streams.
        """
        if cluster.store.restored:
            raise RestoredStoreError(
                f"ZooKeeper of cluster {cluster.name} was restored to an earlier state. There is no feed until"
                " `confplane adopt-store` accepts that state"
            )
        principal = access.identity.principal
        self._admit(principal)
        consumer: FeedConsumer | None = None
        try:
            feed = self._feeds[cluster.name]
            await feed.ready(deadline)
            if after is None:
                # Every change that was answered before, by any process, is before "now".
                await feed.reach(await cluster.store.catch_up(deadline), deadline)
                await self._wait_for_recording(feed, deadline)
            else:
                await self._check(feed, after, deadline, pointer)
            if wanted.requests is not None and (after is None or after.requests is None):
                await feed.requests.poll()
            consumer = FeedConsumer(
                feed, self._history, access, wanted, self._replays, self._release, statuses=statuses, clock=self._clock
            )
            self._consumers.add(consumer)
            if after is None and snapshot:
                after = feed.last._replace(snapshot=BEGIN)
            if after is not None:
                await consumer.resume(after)
        except BaseException:
            if consumer is None:
                self._of_principal[principal] -= 1
            else:
                consumer.close()
            raise
        return consumer

    def _admit(self, principal: str) -> None:
        if self._of_principal.total() >= MOST:
            raise TooManyConnectionsError(
                f"This process has {MOST} streams of changes, and takes no more. Connect again later", retry_after_s=10
            )
        if self._of_principal[principal] >= MOST_OF_PRINCIPAL:
            raise LimitExceededError(
                f"{principal} has {MOST_OF_PRINCIPAL} streams of changes on this process. Close one of them first",
                throttle_ms=5_000,
            )
        self._of_principal[principal] += 1

    def _release(self, consumer: FeedConsumer) -> None:
        principal = consumer.access.identity.principal
        self._consumers.discard(consumer)
        self._of_principal[principal] -= 1
        if not self._of_principal[principal]:
            del self._of_principal[principal]

    async def _wait_for_recording(self, feed: ClusterFeed, deadline: float) -> None:
        """Wait until the trail covers the changes from now on, if external changes are recorded.

        Otherwise other processes would refuse the position that the consumer gets.

        Raises:
            UnavailableError: A store is unavailable, or the recording has not begun in time.
        """
        name, key = feed.cluster.name, (feed.cluster.name, feed.incarnation)
        deadline = min(deadline, time.monotonic() + _PATIENCE_S)
        while name in self._recorded and key not in self._covered:
            coverage = await self._history.coverage(name)
            if coverage is not None and coverage.since <= feed.end:
                self._covered.add(key)
            elif time.monotonic() >= deadline:
                raise self._unrecorded(name)
            else:
                await asyncio.sleep(_POLL_S)
                await feed.reach(await feed.cluster.store.catch_up(deadline), deadline)

    def _unrecorded(self, cluster: str) -> UnavailableError:
        return UnavailableError(
            f"The recording of external changes of cluster {cluster} has not begun yet. Send the request again",
            retry_after_s=1,
        )

    async def _check(self, feed: ClusterFeed, position: FeedPosition, deadline: float, pointer: str) -> None:
        place, store, name = position.place, feed.cluster.store, feed.cluster.name
        if place.incarnation != feed.incarnation:
            raise StoreReplacedError(
                f"{pointer} is a position before the restore of the ZooKeeper of cluster {name}. List again, and"
                f" continue without {pointer}",
                pointer=pointer,
            )
        if place.revision > feed.end:
            newest = await store.catch_up(deadline)
            if place.revision > newest:
                raise InvalidRequestError(
                    f"{pointer} is a position at revision {place.revision}, and the newest revision of cluster {name}"
                    f" is {newest}",
                    pointer=pointer,
                )
            await feed.reach(place.revision, deadline)
        number = position.requests or 0
        if number > feed.requests.number and number > (newest := await feed.requests.newest()):
            raise InvalidRequestError(
                f"{pointer} is a position at event {number} of change requests, and the newest event of"
                f" cluster {name} is {newest}",
                pointer=pointer,
            )
        if place >= feed.floor:
            return
        coverage = await self._history.coverage(name)
        if coverage is None and name in self._recorded:
            raise self._unrecorded(name)
        if coverage is None:
            raise BeforeHistoryError(
                f"External changes of cluster {name} are not recorded, so that this process only has positions from"
                f" revision {feed.floor.revision} on. List again, and continue without {pointer}",
                pointer=pointer,
                oldest=encode(name, FeedPosition(feed.floor, position.time_ms, requests=position.requests)),
            )
        if place.revision < coverage.since:
            since_ms = int(coverage.since_at.timestamp() * 1000)
            place = HistoryPlace(feed.incarnation, coverage.since, LAST_ID)
            raise BeforeHistoryError(
                f"The trail of cluster {name} begins at revision {coverage.since}. List again, and continue without"
                f" {pointer}",
                pointer=pointer,
                since=coverage.since,
                since_time=rfc3339(coverage.since_at),
                oldest=encode(name, FeedPosition(place, since_ms, requests=position.requests)),
            )

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_S)
            stopping = self._stopping()
            for number, consumer in enumerate(list(self._consumers)):
                if stopping:
                    consumer.end("stopping")
                else:
                    consumer.check()
                if number % 500 == 499:  # noqa: PLR2004 - a few milliseconds
                    await asyncio.sleep(0)
