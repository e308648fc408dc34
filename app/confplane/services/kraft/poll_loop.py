"""The leader's looks: which area is due, which look counts, and the entities that others wrote in ZooKeeper.

A look counts where the broker asked had reached, before the look, every offset that an earlier look has moved configs
to: a broker that is behind brings no older state back. A look that does not count is made again.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree
from confplane.services.altered import altered
from confplane.services.kraft.apply import Followed
from confplane.services.kraft.areas import AGAIN_S, AreaState, Topics
from confplane.services.kraft.log import LogFollower
from confplane.services.kraft.report import AreaReport
from confplane.services.ports.cluster_states import TargetMode
from confplane.services.ports.journal import TooOld
from confplane.services.ports.kafka import Area, NotPermittedError, Permission, area_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from confplane.services.kraft.following import Following
    from confplane.services.kraft.looks import Looked
    from confplane.services.kraft.ports import ObservedStore
    from confplane.services.ports.applying import Drift
    from confplane.services.ports.journal import Cursor, Entry

CALL_S: Final = 30.0
"""Seconds for one look."""
RESULTS: Final = ("changed", "unchanged", "behind", "refused")
"""The results of looks: some entities differed; none did; the broker was behind; the cluster refused."""
_TOUCHED: Final = 1_000
"""Entities touched by others that are looked at one by one; with more, everything is looked at."""
_BEHIND: Final = "The broker asked is behind the metadata offset {} that was seen before; it is asked again"


class Looking:
    """The areas of one cluster, and the looks at them.

    Args:
        following: The parts that look and write.
        store: The cluster's store.
        late: Called with the keys, by entity id, that have values which were sent before newer ones; none for an entity
            of which the cluster has not taken everything.
        log: Follow the metadata log as well.

    Attributes:
        areas: The areas.
        moved: The offset that a look must have reached to count.
        counts: The number of looks by area and result.
        log: The follower of the metadata log; None: it is not followed.
    """

    def __init__(
        self,
        following: Following,
        store: ObservedStore,
        late: Callable[[Mapping[str, Collection[str]]], None],
        *,
        log: bool,
    ) -> None:
        self._store = store
        self._late = late
        self._looks = following.looks
        self._decisions = following.decisions
        self._follower = following.follower
        self._lock = asyncio.Lock()
        self.log = LogFollower(following.cluster, store.name, self._follower, self.look_up_to) if log else None
        self.counts = dict.fromkeys(((area, result) for area in Area for result in RESULTS), 0)
        self.begin()

    def begin(self) -> None:
        """Begin anew: nothing is known."""
        self.areas = {area: AreaState(area, AreaReport(Permission.READ_ONLY)) for area in Area}
        self.moved = -1
        self.drift: dict[str, Mapping[str, Drift]] = {}
        """Entity id -> keys that others set in the cluster, and that are left alone."""
        self._cursor: Cursor | None = None
        self._wanted: dict[str, Entity] = {}
        self._modes: Mapping[Area, TargetMode] = {}
        self._left: set[str] | None = None
        """The entities that may have durable drift; None: not known."""

    @property
    def due(self) -> float:
        """The time of the next look, on the clock of ``time.monotonic()``."""
        return min((state.due for state in self.areas.values() if state.permitted), default=float("inf"))

    async def look(self) -> None:
        """Make the looks that are due, and follow.

        Raises:
            UnavailableError: The cluster or a store is away.
            ObservedError: The observation was paused meanwhile.
        """
        async with self._lock:
            target = self._store.target()
            if target is not None and target.by_area != self._modes:
                # What another mode left alone counts now. It may be older than the last look.
                for area, mode in self._modes.items():
                    if mode is TargetMode.ENFORCE and target.by_area.get(area) is not mode:
                        self.areas[area].since = None
                        self.areas[area].brokers.clear()
                self._modes, self.drift, self._left = target.by_area, {}, None
                self._anew()
            await self._put_back()
            for state in self.areas.values():
                if state.permitted and state.due <= time.monotonic():
                    await self._look(state)

    async def _look(self, state: AreaState) -> bool:
        """Look at an area, or at a piece of the topics, and follow; return whether the look counts."""
        began, touched = time.monotonic(), state.touched
        deadline = began + CALL_S
        since = None if state.since is None else self._recorded(state.since)
        brokers = {broker: self._recorded(offset) for broker, offset in state.brokers.items()}
        try:
            if state.area is Area.QUOTAS:
                looked = await self._looks.quotas(state.known_digest, since, deadline)
            elif state.area is not Area.TOPICS:
                looked = await self._looks.area(state.area, since, deadline, brokers=brokers)
            else:
                if state.topics.ended:
                    state.topics = Topics(*await self._looks.topic_names(deadline))
                if not state.topics.names:
                    await self._settle(state, None)
                    state.nothing_there(beside_log=self._beside_log(state.area))
                    return True
                looked = await self._looks.topics(state.topics.piece, since, deadline)
        except NotPermittedError as error:
            state.permit(Permission.NONE, error.detail)
            self.counts[state.area, "refused"] += 1
            return False
        cost = time.monotonic() - began
        followed = await self._follow(looked)
        if followed is None:
            self.counts[state.area, "behind"] += 1
            state.put_off(AGAIN_S, _BEHIND.format(self.moved))
            return False
        self.counts[state.area, "unchanged" if not looked.seen else "changed"] += 1
        if not looked.unchanged:
            await self._settle(state, looked)
        beside_log = self._beside_log(state.area)
        state.count(looked, followed.refused, cost, beside_log=beside_log, left=followed.left)
        state.compared = touched
        if followed.pending or followed.late:
            # They differ still, whether or not the cluster's answer changes.
            state.touch()
        return True

    async def _settle(self, state: AreaState, looked: Looked | None) -> None:
        """Forget the drift of entities that a look found equal; None: the cluster has no topics at all."""
        if not self._decisions.judge.applies_to(state.area):
            return
        if self._left is None:
            self._left = set(await self._follower.left_alone())
        differing = set() if looked is None else {each.entity.id for each in looked.seen}
        equal = state.covered(looked, self._left | self.drift.keys()) - differing
        if equal:
            await self._follower.settle(equal)
        self.drift = {entity_id: each for entity_id, each in self.drift.items() if entity_id not in equal}
        self._left = (self._left - equal) | self.drift.keys()

    def _note(self, looked: Looked, followed: Followed) -> None:
        """Take what is left alone of the entities that differed."""
        unknown = {*followed.pending, *followed.late} - followed.corrections.keys()
        for each in looked.seen:
            correction = followed.corrections.get(each.entity.id)
            if correction is not None and correction.drift:
                self.drift[each.entity.id] = correction.drift
            elif each.entity.id not in unknown:
                self.drift.pop(each.entity.id, None)

    def _beside_log(self, area: Area) -> bool:
        """Say whether an area is followed by the log: what callers write is not."""
        return self.log is not None and self.log.following and not self._decisions.judge.applies_to(area)

    def look_at(self, entities: Iterable[Entity]) -> None:
        """Look at some entities in the next round, besides the areas that are due.

        Quotas are compared in the next look at all of them, whether or not the cluster's answer changes.
        """
        for entity in entities:
            if area_of(entity) is Area.QUOTAS:
                self.areas[Area.QUOTAS].touch()
            else:
                self._wanted[entity.id] = entity

    def _recorded(self, offset: int) -> int:
        """Return an offset up to which every write is in a row, given that of a look that counted.

        A look shows no writes that were undone before it, and the log may have to bring them yet.
        """
        followed = None if self.log is None else self.log.offset
        return offset if followed is None else min(offset, followed)

    async def _follow(self, looked: Looked) -> Followed | None:
        """Follow what differs; None for a look that does not count."""
        if looked.seen and self.log is not None and self.log.following:
            # The log has each write by itself.
            await self.log.reached(looked.until)
            looked.seen = [each for each in looked.seen if self._decisions.differs(each)]
        if looked.after < self.moved:
            return None
        if not looked.seen:
            return Followed()
        followed = await self._follower.follow(looked.seen)
        self._note(looked, followed)
        if followed.written:
            self.moved = max(self.moved, looked.until)
        if followed.late or followed.pending:
            self._late({**dict.fromkeys(followed.pending, frozenset()), **followed.late})
        return None if followed.stale else followed

    async def look_up_to(self, offset: int) -> None:
        """Look at all that the cluster shows, as of an offset or later.

        Raises:
            UnavailableError: The cluster or a store is away.
        """
        async with self._lock:
            for state in self.areas.values():
                state.anew()
                while state.permitted:
                    counted = await self._look(state)
                    if counted and not state.topics.ended:
                        continue
                    if counted and (state.since is None or state.since >= offset):
                        break
                    await asyncio.sleep(AGAIN_S)

    async def _put_back(self) -> None:
        """Look at the entities whose znodes others wrote since the last call, and at those that are wanted."""
        touched, wanted, self._wanted = self._touched(), self._wanted, {}
        if touched is None or len(wanted) > _TOUCHED:
            self._anew()
            return
        some = wanted | {each.id: each for each in touched}
        entities = [each for each in some.values() if self.areas[area_of(each)].permitted]
        try:
            for looked in await self._looks.of(entities, None, time.monotonic() + CALL_S):
                if await self._follow(looked) is None:
                    self._wanted |= wanted
                    if touched:
                        self._anew()
        except UnavailableError:
            self._anew()
            raise

    def _anew(self) -> None:
        for state in self.areas.values():
            state.anew()

    def _touched(self) -> list[Entity] | None:
        """Return the entities that others wrote in ZooKeeper since the last call; None: too many, or not known."""
        read, first = self._store.journal.read(self._cursor), self._cursor is None
        if read is None:
            return []
        self._cursor = read.cursor
        if isinstance(read, TooOld):
            # The first looks are at everything in any case.
            return [] if first else None
        if any(entry.tree is Tree.CONFIG and self._is_of_left_quotas(entry.entity_id) for entry in read.entries):
            # A look with the digest of before would not be compared, and what waits here replaces others' values.
            self.areas[Area.QUOTAS].touch()
        ids = {entry.entity_id for entry in read.entries if entry.tree is Tree.CONFIG and self._is_by_others(entry)}
        return [Entity.from_id(each) for each in sorted(ids)] if len(ids) <= _TOUCHED else None

    def _is_of_left_quotas(self, entity_id: str) -> bool:
        """Say whether values of others may be left in an entity's client quotas."""
        is_left = self.areas[Area.QUOTAS].left or entity_id in self.drift
        return is_left and area_of(Entity.from_id(entity_id)) is Area.QUOTAS

    def _is_by_others(self, entry: Entry) -> bool:
        """Say whether a write is compared with the cluster: no follower made it, nor has the applier to send it."""
        if self._follower.wrote(entry.revision):
            return False
        if entry.after is None or not altered(entry.after.extra):
            return True
        return not self._decisions.judge.applies_to(area_of(Entity.from_id(entry.entity_id)))
