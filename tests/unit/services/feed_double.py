"""The feed of one process on a real journal, with a trail whose answers the test sets."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import replace
from itertools import repeat
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from confplane.domain.changes import Node
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import FacetName, Tree
from confplane.domain.quotas import ClientQuotasFacet
from confplane.services.feed.events import FeedFilter
from confplane.services.feed.hub import FeedHub
from confplane.services.feed.request_events import number_of
from confplane.services.kraft.apply.apply_status import UNDONE, ApplyStatus
from confplane.services.ports.feed import FeedChange, FeedEntity, UnsettledWrite
from confplane.services.ports.history import TrailCoverage
from confplane.services.ports.trail import HistoryPlace
from confplane.store.mirror.journal import MirrorJournal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from confplane.services.feed.consumer import FeedConsumer, FeedDelivery
    from confplane.services.feed.positions import FeedPosition
    from confplane.services.ports.store import Marker
    from confplane.services.ports.trail import Outcome

RATE = "producer_byte_rate"
PATIENCE_S = 30.0
NOW_MS = 1_800_000_000_000


def entity(name: str, value: str) -> FeedEntity:
    return FeedEntity(f"user={name}", f"/config/users/{name}", None, None, 0, None, [RATE], {}, {RATE: value})


def change(revision: int, name: str = "", **other: Any) -> FeedChange:
    """The creation of a user's quota."""
    time_ms = NOW_MS + revision
    place = HistoryPlace(1, revision, UUID(int=time_ms << 80))
    return replace(
        FeedChange(place, time_ms, "change", "User:one", None, None, None, [entity(name or f"u{revision}", "1")]),
        **other,
    )


class Trail:
    """A trail: its changes, and the paths of changes without an outcome; the markers and outcomes of those."""

    def __init__(self) -> None:
        self.found: list[FeedChange] = []
        self.found_late: list[FeedChange] = []
        self.undone: list[tuple[datetime, FeedChange]] = []
        self.lost_pages: list[UUID] = []
        self.open: dict[UUID, str] = {}
        self.requested: list[FeedChange] = []
        self.committed: list[Marker] = []
        self.concluded: list[Outcome] = []
        self.released: list[UUID] = []
        self.covers: Iterator[int | None] = repeat(1)
        self.asked = asyncio.Event()

    async def changes(self, _cluster: str, after: HistoryPlace, until: int, size: int) -> list[FeedChange]:
        found = [each for each in self.found if after < each.place and each.place.revision <= until]
        return sorted(found, key=lambda each: each.place)[:size]

    async def late(
        self, _cluster: str, place: HistoryPlace, _since: Any, after: HistoryPlace, size: int, *, above: int
    ) -> tuple[list[FeedChange], HistoryPlace | None]:
        found = [each for each in self.found_late if each.place > after]
        page = [each for each in found if not place.revision < each.place.revision <= above][:size]
        return page, page[-1].place if len(page) == size else None

    async def put_backs(self, _cluster: str, since: datetime, after: UUID, size: int) -> list[FeedChange]:
        if after in self.lost_pages:
            self.lost_pages.remove(after)
            raise UnavailableError("Postgres does not answer")
        found = [each for at, each in self.undone if at >= since and each.place.change_id > after]
        return sorted(found, key=lambda each: each.place.change_id)[:size]

    async def requests(self, _cluster: str, after: int, until: int, size: int) -> list[FeedChange]:
        return [each for each in self.requested if after < number_of(each) <= until][:size]

    async def newest_request(self, _cluster: str) -> int:
        return max(map(number_of, self.requested), default=0)

    async def unsettled_writes(self, _cluster: str, ids: Collection[str], _since: Any) -> list[UnsettledWrite]:
        self.asked.set()
        names = tuple(entity_id.split("=")[1] for entity_id in ids)
        return [UnsettledWrite(change_id, path) for change_id, path in self.open.items() if path.endswith(names)]

    async def commits(self, change_ids: Collection[UUID], _deadline: float) -> list[Marker]:
        return [marker for marker in self.committed if marker.change_id in change_ids]

    async def conclude(self, outcomes: Sequence[Outcome]) -> bool:
        """Write outcomes: the changes are then among those of the trail."""
        self.concluded += outcomes
        for outcome in outcomes:
            assert outcome.revision is not None
            name = self.open.pop(outcome.change_id).rpartition("/")[2]
            place = HistoryPlace(outcome.incarnation, outcome.revision, outcome.change_id)
            self.found.append(replace(change(outcome.revision, name), place=place))
        return True

    async def get(self, _cluster: str, _change_id: UUID) -> None:
        """Return no intent, so that the znodes under the writes are not read."""

    async def coverage(self, _cluster: str) -> TrailCoverage | None:
        since = next(self.covers)
        return None if since is None else TrailCoverage(since, None, 1 << 62)  # type: ignore[arg-type] # not shown


class Statuses:
    """The apply statuses of a Kafka 4 cluster."""

    def __init__(self) -> None:
        self.applies = False
        self.found: dict[str, ApplyStatus] = {}
        self.lost_answers = 0

    def pending(self) -> list[str]:
        return list(self.found)

    async def current(self, entity_ids: Collection[str]) -> dict[str, ApplyStatus]:
        if self.lost_answers:
            self.lost_answers -= 1
            raise UnavailableError("Postgres does not answer")
        return {each: self.found.get(each, UNDONE) for each in entity_ids}


class Feed:
    """The feeds of a process with one cluster."""

    def __init__(self, trail: Trail | None = None) -> None:
        self.journal = MirrorJournal()
        self.journal.begin(10)
        self.trail = trail or Trail()
        self.statuses = Statuses()
        self.now = 0.0
        self.recorded: set[str] = set()
        store = SimpleNamespace(
            name="default",
            journal=self.journal,
            restored=False,
            accepted=True,
            incarnation=1,
            catch_up=self._catch_up,
            markers=SimpleNamespace(commits=self.trail.commits, release=self.trail.released.append),
        )
        facet = SimpleNamespace(facet=ClientQuotasFacet(), redact=_plain)
        self.cluster: Any = SimpleNamespace(
            name="default", store=store, facets={FacetName.CLIENT_QUOTAS: facet}, apply_waiter=self.statuses
        )
        self.hub = FeedHub(
            [self.cluster],  # type: ignore[arg-type]
            self.trail,
            self.trail,  # type: ignore[arg-type]
            self.trail,  # type: ignore[arg-type]
            lambda: False,
            recorded=self.recorded,
            clock=lambda: self.now,
        )

    async def _catch_up(self, _deadline: float) -> int:
        return self.journal.read(None).cursor.revision  # type: ignore[union-attr]

    async def open(
        self,
        after: FeedPosition | None = None,
        principal: str = "User:one",
        *,
        wanted: FeedFilter | None = None,
        statuses: bool = False,
    ) -> FeedConsumer:
        access: Any = SimpleNamespace(
            unlimited=True,
            check=lambda: None,
            allows=lambda *_: True,
            identity=SimpleNamespace(principal=principal),
        )
        return await self.hub.open(
            self.cluster, access, wanted or FeedFilter(), after, time.monotonic() + PATIENCE_S, statuses=statuses
        )

    def write(self, *found: FeedChange) -> None:
        """The trail has these changes, and the mirror sees them."""
        self.trail.found += found
        self.see(*found)

    def see(self, *found: FeedChange) -> None:
        """The mirror is at the last one's revision."""
        for each in found:
            revision = each.place.revision
            for made in each.entities:
                node = Node(made.entity_id, (RATE, str(made.after[RATE])), 0, revision, revision, NOW_MS + revision)
                self.journal.record(Tree.CONFIG, made.entity_id, None, node)
            self.journal.advance(revision)

    async def load_again(self, revision: int) -> None:
        """The mirror was loaded again, and the ring begins there."""
        self.journal.begin(revision)
        (await self.open()).close()


def _plain(_tree: Tree, _entity_id: str, config: Mapping[str, str]) -> dict[str, str | None]:
    return dict(config)


async def received(consumer: FeedConsumer, count: int) -> list[FeedDelivery]:
    found: list[FeedDelivery] = []
    async with asyncio.timeout(PATIENCE_S), aclosing(consumer.deliveries()) as deliveries:
        async for delivery in deliveries:
            if delivery.event is not None or delivery.statuses is not None:
                found.append(delivery)
            if len(found) == count:
                break
    return found


def places(found: list[FeedDelivery]) -> list[tuple[int, bool]]:
    return [(each.event.position.place.revision, each.event.is_reset) for each in found if each.event is not None]
