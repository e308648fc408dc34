"""The leader's poll loop: which entity type is due, which poll counts, and which entities changed in ZooKeeper.

A poll counts if the broker had reached every offset of earlier polls that changed configs, before the poll began. So a
broker that lags behind never restores an older state. A poll that does not count is repeated.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree
from confplane.services.kraft.observe.entity_types import RETRY_S, EntityTypeState, TopicPollRound
from confplane.services.kraft.reconcile.follow_writer import FollowResult
from confplane.services.kraft.reconcile.log_follower import LogFollower
from confplane.services.kraft.report import EntityTypeReport
from confplane.services.pending_keys import pending_keys
from confplane.services.ports.cluster_states import TargetMode
from confplane.services.ports.journal import ExpiredCursor
from confplane.services.ports.kafka import EntityTypePermission, KraftEntityType, NotPermittedError, kraft_type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from confplane.services.kraft.observe.poller import PollResult
    from confplane.services.kraft.ports import ObservedStore
    from confplane.services.kraft.reconcile.follow_parts import FollowParts
    from confplane.services.ports.applying import DriftRecord
    from confplane.services.ports.journal import Cursor, JournalEntry

POLL_TIMEOUT_S: Final = 30.0
"""Seconds for one poll."""
RESULTS: Final = ("changed", "unchanged", "behind", "refused")
"""The results of polls: some entities differed; no entity differed; the broker lagged; the cluster refused."""
_TOUCHED_LIMIT: Final = 1_000
"""The most entities with external writes that are polled one by one. With more, everything is polled."""
_BEHIND: Final = "The broker asked is behind the metadata offset {} that was seen before; it is asked again"


class PollLoop:
    """Polls the entity types of one cluster, and follows the results.

    Args:
        parts: The parts that poll and write.
        store: The cluster's store.
        on_stale_writes: Called with the keys that have stale in-flight writes, by entity id. An entity with changes
            that the cluster has not applied completely has no keys.
        log: Follow the metadata log as well.

    Attributes:
        entity_types: The state of each entity type.
        moved: The offset that a poll must have reached to count.
        counts: The number of polls by entity type and result.
        log: The follower of the metadata log. None if it is not followed.
    """

    def __init__(
        self,
        parts: FollowParts,
        store: ObservedStore,
        on_stale_writes: Callable[[Mapping[str, Collection[str]]], None],
        *,
        log: bool,
    ) -> None:
        self._store = store
        self._on_stale_writes = on_stale_writes
        self._poller = parts.poller
        self._drafts = parts.drafts
        self._writer = parts.writer
        self._lock = asyncio.Lock()
        self.log = LogFollower(parts.cluster, store.name, self._writer, self.poll_up_to) if log else None
        self.counts = dict.fromkeys(((entity_type, result) for entity_type in KraftEntityType for result in RESULTS), 0)
        self.reset()

    def reset(self) -> None:
        """Forget everything: poll all entities again."""
        self.entity_types = {
            entity_type: EntityTypeState(entity_type, EntityTypeReport(EntityTypePermission.READ_ONLY))
            for entity_type in KraftEntityType
        }
        self.moved = -1
        self.drift: dict[str, Mapping[str, DriftRecord]] = {}
        """Entity id -> keys with external changes that are left alone."""
        self._cursor: Cursor | None = None
        self._wanted: dict[str, Entity] = {}
        self._modes: Mapping[KraftEntityType, TargetMode] = {}
        self._left: set[str] | None = None
        """The entities that may have durable drift. None if unknown."""

    @property
    def due(self) -> float:
        """The time of the next poll, on the clock of ``time.monotonic()``."""
        return min((state.due for state in self.entity_types.values() if state.permitted), default=float("inf"))

    async def poll(self) -> None:
        """Run the polls that are due, and follow their results.

        Raises:
            UnavailableError: The cluster or a store is unavailable.
            ObservedError: The observation was paused in the meantime.
        """
        async with self._lock:
            target = self._store.target()
            if target is not None and target.modes_by_entity_type != self._modes:
                # Changes that the earlier mode left alone count now. They may be older than the last poll.
                for entity_type, mode in self._modes.items():
                    if mode is TargetMode.ENFORCE and target.modes_by_entity_type.get(entity_type) is not mode:
                        self.entity_types[entity_type].since = None
                        self.entity_types[entity_type].brokers.clear()
                self._modes, self.drift, self._left = target.modes_by_entity_type, {}, None
                self._restart_all()
            await self._poll_touched()
            for state in self.entity_types.values():
                if state.permitted and state.due <= time.monotonic():
                    await self._poll_type(state)

    async def _poll_type(self, state: EntityTypeState) -> bool:
        """Poll an entity type, or a piece of the topics, and follow; return whether the poll counts."""
        began, touched = time.monotonic(), state.touched
        deadline = began + POLL_TIMEOUT_S
        since = None if state.since is None else self._recorded_offset(state.since)
        brokers = {broker: self._recorded_offset(offset) for broker, offset in state.brokers.items()}
        try:
            if state.entity_type is KraftEntityType.QUOTAS:
                result = await self._poller.poll_quotas(state.known_digest, since, deadline)
            elif state.entity_type is not KraftEntityType.TOPICS:
                result = await self._poller.poll_type(state.entity_type, since, deadline, brokers=brokers)
            else:
                if state.topics.ended:
                    state.topics = TopicPollRound(*await self._poller.topic_names(deadline))
                if not state.topics.names:
                    await self._settle(state, None)
                    state.record_no_topics(with_log=self._has_log(state.entity_type))
                    return True
                result = await self._poller.poll_topics(state.topics.piece, since, deadline)
        except NotPermittedError as error:
            state.permit(EntityTypePermission.NONE, error.detail)
            self.counts[state.entity_type, "refused"] += 1
            return False
        cost = time.monotonic() - began
        outcome = await self._follow(result)
        if outcome is None:
            self.counts[state.entity_type, "behind"] += 1
            state.record_failed_poll(RETRY_S, _BEHIND.format(self.moved))
            return False
        self.counts[state.entity_type, "unchanged" if not result.differing else "changed"] += 1
        if not result.unchanged:
            await self._settle(state, result)
        with_log = self._has_log(state.entity_type)
        state.record_poll(result, outcome.refused, cost, with_log=with_log, left=outcome.may_have_left)
        state.compared = touched
        if outcome.pending or outcome.stale_writes:
            # They still differ, even if the cluster's answer does not change.
            state.touch()
        return True

    async def _settle(self, state: EntityTypeState, result: PollResult | None) -> None:
        """Clear the drift of entities that a poll found equal. None means that the cluster has no topics at all."""
        if not self._drafts.decisions.applies_to(state.entity_type):
            return
        if self._left is None:
            self._left = set(await self._writer.left_alone())
        differing = set() if result is None else {each.entity.id for each in result.differing}
        equal = state.covered(result, self._left | self.drift.keys()) - differing
        if equal:
            await self._writer.settle(equal)
        self.drift = {entity_id: each for entity_id, each in self.drift.items() if entity_id not in equal}
        self._left = (self._left - equal) | self.drift.keys()

    def _record_drift(self, result: PollResult, outcome: FollowResult) -> None:
        """Record the external changes that are left alone, of the entities that differed."""
        unknown = {*outcome.pending, *outcome.stale_writes} - outcome.corrections.keys()
        for each in result.differing:
            correction = outcome.corrections.get(each.entity.id)
            if correction is not None and correction.drift:
                self.drift[each.entity.id] = correction.drift
            elif each.entity.id not in unknown:
                self.drift.pop(each.entity.id, None)

    def _has_log(self, entity_type: KraftEntityType) -> bool:
        """Return whether an entity type is followed by the log. Types that clients write are not."""
        return self.log is not None and self.log.following and not self._drafts.decisions.applies_to(entity_type)

    def request_poll(self, entities: Iterable[Entity]) -> None:
        """Poll some entities in the next round, in addition to the entity types that are due.

        Quotas are compared in the next poll of all quotas, even if the cluster's answer does not change.
        """
        for entity in entities:
            if kraft_type_of(entity) is KraftEntityType.QUOTAS:
                self.entity_types[KraftEntityType.QUOTAS].touch()
            else:
                self._wanted[entity.id] = entity

    def _recorded_offset(self, offset: int) -> int:
        """Return an offset up to which every write has a row, given the offset of a poll that counted.

        A poll does not show writes that were undone before it. The log may still have to deliver them.
        """
        followed = None if self.log is None else self.log.offset
        return offset if followed is None else min(offset, followed)

    async def _follow(self, result: PollResult) -> FollowResult | None:
        """Follow the entities that differ. Returns None if the poll does not count."""
        if result.differing and self.log is not None and self.log.following:
            # The log has each write separately.
            await self.log.reached(result.until)
            result.differing = [each for each in result.differing if self._drafts.decisions.differs(each)]
        if result.after < self.moved:
            return None
        if not result.differing:
            return FollowResult()
        outcome = await self._writer.follow(result.differing)
        self._record_drift(result, outcome)
        if outcome.written:
            self.moved = max(self.moved, result.until)
        if outcome.stale_writes or outcome.pending:
            self._on_stale_writes({**dict.fromkeys(outcome.pending, frozenset()), **outcome.stale_writes})
        return None if outcome.stale else outcome

    async def poll_up_to(self, offset: int) -> None:
        """Poll everything that the cluster shows, as of an offset or later.

        Raises:
            UnavailableError: The cluster or a store is unavailable.
        """
        async with self._lock:
            for state in self.entity_types.values():
                state.restart()
                while state.permitted:
                    counted = await self._poll_type(state)
                    if counted and not state.topics.ended:
                        continue
                    if counted and (state.since is None or state.since >= offset):
                        break
                    await asyncio.sleep(RETRY_S)

    async def _poll_touched(self) -> None:
        """Poll the entities with external writes to their znodes since the last call, and those requested."""
        touched, wanted, self._wanted = self._touched(), self._wanted, {}
        if touched is None or len(wanted) > _TOUCHED_LIMIT:
            self._restart_all()
            return
        some = wanted | {each.id: each for each in touched}
        entities = [each for each in some.values() if self.entity_types[kraft_type_of(each)].permitted]
        try:
            for result in await self._poller.poll_entities(entities, None, time.monotonic() + POLL_TIMEOUT_S):
                if await self._follow(result) is None:
                    self._wanted |= wanted
                    if touched:
                        self._restart_all()
        except UnavailableError:
            self._restart_all()
            raise

    def _restart_all(self) -> None:
        for state in self.entity_types.values():
            state.restart()

    def _touched(self) -> list[Entity] | None:
        """Return the entities with external writes in ZooKeeper since the last call. None if too many, or unknown."""
        read, first = self._store.journal.read(self._cursor), self._cursor is None
        if read is None:
            return []
        self._cursor = read.cursor
        if isinstance(read, ExpiredCursor):
            # The first polls cover everything anyway.
            return [] if first else None
        if any(entry.tree is Tree.CONFIG and self._is_of_left_quotas(entry.entity_id) for entry in read.entries):
            # A poll with the same digest would not be compared, but waiting changes replace external values.
            self.entity_types[KraftEntityType.QUOTAS].touch()
        ids = {entry.entity_id for entry in read.entries if entry.tree is Tree.CONFIG and self._is_external(entry)}
        return [Entity.from_id(each) for each in sorted(ids)] if len(ids) <= _TOUCHED_LIMIT else None

    def _is_of_left_quotas(self, entity_id: str) -> bool:
        """Return whether an entity's client quotas may have external changes that are left alone."""
        is_left = self.entity_types[KraftEntityType.QUOTAS].left or entity_id in self.drift
        return is_left and kraft_type_of(Entity.from_id(entity_id)) is KraftEntityType.QUOTAS

    def _is_external(self, entry: JournalEntry) -> bool:
        """Return whether a write is external: no follower made it, and the applier does not deliver it."""
        if self._writer.wrote(entry.revision):
            return False
        if entry.after is None or not pending_keys(entry.after.extra):
            return True
        return not self._drafts.decisions.applies_to(kraft_type_of(Entity.from_id(entry.entity_id)))
