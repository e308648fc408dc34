"""The leader's polls: which entity type is due, which poll counts, and which entities changed in ZooKeeper.

A poll counts if the broker had reached every offset of earlier polls that changed configs, before the poll began. So a
broker that lags behind never restores an older state. A poll that does not count is repeated.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree
from confplane.services.kraft.observe.entity_types import RETRY_S, EntityTypeState, TopicPollRound
from confplane.services.metrics import span
from confplane.services.ports.cluster_states import TargetMode
from confplane.services.ports.journal import ExpiredCursor
from confplane.services.ports.kafka import (
    EntityTypePermission,
    KraftEntityType,
    NotPermittedError,
    OtherClusterError,
    kraft_type_of,
)
from confplane.services.ports.observation_report import EntityTypeReport
from confplane.services.znode_metadata import read_metadata

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from confplane.services.kraft.observe.entity_types import PollCost
    from confplane.services.kraft.observe.poller import PollResult, TopicList
    from confplane.services.kraft.reconcile.follow_writer import FollowParts, FollowResult
    from confplane.services.kraft.reconcile.log_follower import LogFollower
    from confplane.services.ports.applying import DriftRecord
    from confplane.services.ports.journal import Cursor, JournalEntry
    from confplane.services.ports.kafka import GrantedPermission
    from confplane.services.ports.store import ClusterStore

RESULTS: Final = ("changed", "unchanged", "behind", "refused", "failed")
"""The results of polls: some entities differed; no entity differed; the broker lagged; the cluster refused; the cluster
did not answer."""
_TOUCHED_LIMIT: Final = 1_000
"""The most entities with external writes that are polled one by one. With more, everything is polled."""
_LAST_OFFSET: Final = 2**63 - 1
_BEHIND: Final = "The broker asked is behind the metadata offset {} that was seen before; it is asked again"


class FailedPollError(UnavailableError):
    """The cluster did not answer the poll of an entity type."""


class Polls:
    """The polls of one cluster.

    Attributes:
        max_ages: The greatest age in seconds of the last complete poll of each entity type.
        entity_types: The state of each entity type.
        moved: The offset that a poll must have reached to count.
        counts: The number of polls by entity type and result.
        log: The follower of the metadata log. None if it is not followed.
    """

    def __init__(
        self,
        parts: FollowParts,
        store: ClusterStore,
        log: LogFollower | None,
        max_ages: Mapping[KraftEntityType, float],
    ) -> None:
        self._store = store
        self._poller = parts.poller
        self._decisions = parts.decisions
        self._writer = parts.writer
        self._states = parts.states
        self.log = log
        self.max_ages = max_ages
        self.counts = dict.fromkeys(((entity_type, result) for entity_type in KraftEntityType for result in RESULTS), 0)
        self.reset()

    def reset(self) -> None:
        """Forget everything: poll all entities again."""
        self.entity_types = {
            entity_type: EntityTypeState(
                entity_type, EntityTypeReport(EntityTypePermission.READ_ONLY), self.max_ages[entity_type]
            )
            for entity_type in KraftEntityType
        }
        self.moved = -1
        self.drift: dict[str, Mapping[str, DriftRecord]] = {}
        """Entity id -> keys with external changes that are left alone."""
        self.topics: TopicList | None = None
        """The last list of all topics."""
        self._cursor: Cursor | None = None
        self._wanted: dict[str, Entity] = {}
        self._polled: dict[str, Entity] = {}
        """The entities in :attr:`_wanted` that are polled now."""
        self._touched: list[Entity] | None = []
        """The entities with external writes in ZooKeeper that are polled now. None if too many, or unknown."""
        self._modes: Mapping[KraftEntityType, TargetMode] = {}
        self._left: set[str] | None = None
        """The entities that may have durable drift. None if unknown."""

    # -- what is due

    @property
    def due(self) -> float:
        """The time of the next poll, on the clock of ``time.monotonic()``."""
        return min((state.due for state in self.entity_types.values() if state.permitted), default=float("inf"))

    def due_types(self) -> Iterator[EntityTypeState]:
        """Iterate over the entity types to poll now."""
        for state in self.entity_types.values():
            if state.permitted and state.due <= time.monotonic():
                yield state

    def permit(self, permissions: Mapping[KraftEntityType, GrantedPermission]) -> None:
        """Set the permissions of some entity types."""
        for entity_type, granted in permissions.items():
            self.entity_types[entity_type].permit(granted.permission, granted.reason)

    def restart_changed_modes(self) -> None:
        """Poll everything if the mode of an entity type changed."""
        target = self._store.target()
        if target is None or target.modes_by_entity_type == self._modes:
            return
        modes = target.modes_by_entity_type
        # Changes that the earlier mode left alone count now. They may be older than the last poll.
        for entity_type, mode in self._modes.items():
            if mode is TargetMode.ENFORCE and modes.get(entity_type) is not mode:
                self.entity_types[entity_type].since = None
                self.entity_types[entity_type].brokers.clear()
        self._modes, self.drift, self._left = modes, {}, None
        self.restart_all()

    def request(self, entities: Iterable[Entity]) -> None:
        """Poll some entities in the next round, in addition to the entity types that are due.

        Quotas are compared in the next poll of all quotas, even if the cluster's answer does not change.
        """
        for entity in entities:
            if kraft_type_of(entity) is KraftEntityType.QUOTAS:
                self.entity_types[KraftEntityType.QUOTAS].touch()
            else:
                self._wanted[entity.id] = entity

    def restart_all(self) -> None:
        """Poll everything as soon as possible."""
        for state in self.entity_types.values():
            state.restart()

    # -- snapshots

    async def take_snapshot(self, state: EntityTypeState, deadline: float) -> PollResult | None:
        """Poll an entity type, or the next piece of the topics. Returns None if there are no topics at all.

        Raises:
            NotPermittedError: The cluster does not show the entity type.
            OtherClusterError: The brokers belong to another cluster.
            FailedPollError: The cluster did not answer.
        """
        try:
            with span("snapshot"):
                return await self._poll(state, deadline)
        except (NotPermittedError, OtherClusterError):
            raise
        except UnavailableError as error:
            raise FailedPollError(error.detail) from error

    async def _poll(self, state: EntityTypeState, deadline: float) -> PollResult | None:
        since = None if state.since is None else self._recorded_offset(state.since)
        if state.entity_type is KraftEntityType.QUOTAS:
            return await self._poller.poll_quotas(state.known_digest, since, deadline)
        if state.entity_type is not KraftEntityType.TOPICS:
            brokers = {broker: self._recorded_offset(offset) for broker, offset in state.brokers.items()}
            return await self._poller.poll_type(state.entity_type, since, deadline, brokers=brokers)
        if state.topics.ended:
            self.topics = await self._poller.list_topics(deadline)
            state.topics = TopicPollRound(self.topics.names, self.topics.offset)
        return await self._poller.poll_topics(state.topics.piece, since, deadline) if state.topics.names else None

    async def take_requested_snapshots(self, deadline: float) -> list[PollResult]:
        """Poll the entities with external writes to their znodes since the last call, and those requested."""
        self._touched, self._polled, self._wanted = self._externally_written(), self._wanted, {}
        if self._touched is None or len(self._polled) > _TOUCHED_LIMIT:
            self.restart_all()
            return []
        some = self._polled | {each.id: each for each in self._touched}
        entities = [each for each in some.values() if self.entity_types[kraft_type_of(each)].permitted]
        return await self._poller.poll_entities(entities, None, deadline)

    def repeat_requested(self) -> None:
        """Poll the requested entities again: a poll of them did not count."""
        self._wanted |= self._polled
        if self._touched:
            self.restart_all()

    def _recorded_offset(self, offset: int) -> int:
        """Return an offset up to which every write has a row, given the offset of a poll that counted.

        A poll does not show writes that were undone before it. The log may still have to deliver them.
        """
        followed = None if self.log is None else self.log.offset
        return offset if followed is None else min(offset, followed)

    async def leave_to_log(self, snapshot: PollResult) -> None:
        """Wait for a log that is followed, and leave out what no longer differs: the log has each write separately."""
        if snapshot.differing and self.log is not None and self.log.following:
            await self.log.reached(snapshot.until)
            snapshot.differing = [each for each in snapshot.differing if self._decisions.differs(each)]

    # -- results

    def record_refused(self, state: EntityTypeState, reason: str) -> None:
        """Record that the cluster does not show an entity type."""
        state.permit(EntityTypePermission.NONE, reason)
        self.counts[state.entity_type, "refused"] += 1

    def record_behind(self, state: EntityTypeState) -> None:
        """Record a poll that did not count."""
        self.counts[state.entity_type, "behind"] += 1
        state.record_failed_poll(RETRY_S, _BEHIND.format(self.moved))

    def record_failed(self, state: EntityTypeState, problem: str) -> None:
        """Record a poll that the cluster did not answer."""
        self.counts[state.entity_type, "failed"] += 1
        state.record_unavailable(problem)

    def record(
        self, state: EntityTypeState, snapshot: PollResult | None, result: FollowResult, cost: PollCost, touched: int
    ) -> None:
        """Record a poll that counts; no snapshot: there are no topics. ``touched`` is as it was before the poll."""
        # Types that clients write are not followed by the log.
        with_log = (
            self.log is not None and self.log.following and not self._decisions.target.applies_to(state.entity_type)
        )
        if snapshot is None:
            state.record_no_topics(with_log=with_log)
            return
        self.counts[state.entity_type, "changed" if snapshot.differing else "unchanged"] += 1
        state.record_poll(snapshot, result.refused, cost, with_log=with_log, left=result.may_have_left)
        state.compared = touched
        if result.pending:
            # They still differ, even if the cluster's answer does not change.
            state.touch()

    async def clear_drift_of_equal(
        self, state: EntityTypeState, snapshot: PollResult | None, refused: Collection[str]
    ) -> set[str]:
        """Clear the drift and the refusals of entities that a poll found equal, and return their ids."""
        if not self._decisions.target.applies_to(state.entity_type):
            return set()
        if self._left is None:
            self._left = set(await self._states.drifting_entities(self._store.name))
        differing = set() if snapshot is None else {each.entity.id for each in snapshot.differing}
        equal = state.covered(snapshot, self._left.union(self.drift, refused)) - differing
        if equal:
            offset = _LAST_OFFSET if snapshot is None else snapshot.after
            nodes = {each: self._store.get(Tree.CONFIG, each) for each in equal}
            revisions = {each: None if node is None else node.mzxid for each, node in nodes.items()}
            await self._states.clear_drift(self._store.name, revisions, offset)
        self.drift = {entity_id: each for entity_id, each in self.drift.items() if entity_id not in equal}
        self._left = (self._left - equal) | self.drift.keys()
        return equal

    def record_drift(self, snapshot: PollResult, result: FollowResult) -> None:
        """Record the external changes that are left alone, of the entities that differed, and the offset reached."""
        unknown = result.pending - result.corrections.keys()
        for each in snapshot.differing:
            correction = result.corrections.get(each.entity.id)
            if correction is not None and correction.drift:
                self.drift[each.entity.id] = correction.drift
            elif each.entity.id not in unknown:
                self.drift.pop(each.entity.id, None)
        if result.written:
            self.moved = max(self.moved, snapshot.until)

    # -- external writes to znodes

    def _externally_written(self) -> list[Entity] | None:
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
        if entry.after is None or not read_metadata(entry.after.extra).pending_keys:
            return True
        return not self._decisions.target.applies_to(kraft_type_of(Entity.from_id(entry.entity_id)))
