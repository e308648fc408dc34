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
from confplane.services.kraft.observe.entity_types import EntityTypeState
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

    from confplane.services.kraft.observe.poller import PollResult, TopicList
    from confplane.services.kraft.reconcile.follow_writer import FollowParts, FollowResult
    from confplane.services.kraft.reconcile.log_follower import LogFollower
    from confplane.services.ports.applying import DriftRecord
    from confplane.services.ports.journal import Cursor, JournalEntry
    from confplane.services.ports.kafka import GrantedPermission
    from confplane.services.ports.store import ClusterStore

_TOUCHED_LIMIT: Final = 1_000
"""The most entities with external writes that are polled one by one. With more, everything is polled."""


class FailedPollError(UnavailableError):
    """The cluster did not answer the poll of an entity type."""


class Polls:
    """The polls of one cluster.

    Attributes:
        max_ages: The greatest age in seconds of the last complete poll of each entity type.
        entity_types: The state of each entity type.
        moved: The offset that a poll must have reached to count.
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
        self.entity_types: dict[KraftEntityType, EntityTypeState] = {}
        self.reset()

    def reset(self) -> None:
        """Forget everything: poll all entities again."""
        for each in KraftEntityType:
            state = EntityTypeState(each, EntityTypeReport(EntityTypePermission.READ_ONLY), self.max_ages[each])
            if each in self.entity_types:
                state.counts = self.entity_types[each].counts
            self.entity_types[each] = state
        self.moved = -1
        self.drift: dict[str, Mapping[str, DriftRecord]] = {}
        """Entity id -> keys with external changes that are left alone."""
        self.topics: TopicList | None = None
        """The last list of all topics."""
        self._cursor: Cursor | None = None
        self._wanted: dict[str, Entity] = {}
        """The entities to poll in the next round."""
        self._polled: dict[str, Entity] = {}
        """The entities that were polled in the last round because they were wanted."""
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
                self.entity_types[entity_type].forget_offsets()
        self._modes, self.drift, self._left = modes, {}, None
        self.restart_all()

    def request(self, entities: Iterable[Entity]) -> None:
        """Poll some entities in the next round, in addition to the entity types that are due.

        Quotas are compared in the next poll of all quotas, even if the cluster's answer does not change.
        """
        for entity in entities:
            if kraft_type_of(entity) is KraftEntityType.QUOTAS:
                self.entity_types[KraftEntityType.QUOTAS].touched = True
            else:
                self._wanted[entity.id] = entity

    def restart_all(self) -> None:
        """Poll everything as soon as possible."""
        for state in self.entity_types.values():
            state.restart()

    # -- snapshots

    async def take_snapshot(self, state: EntityTypeState, deadline: float) -> PollResult:
        """Poll an entity type, or the next piece of the topics.

        Raises:
            NotPermittedError: The cluster does not show the entity type.
            OtherClusterError: The brokers belong to another cluster.
            FailedPollError: The cluster did not answer.
        """
        began, began_cpu = time.monotonic(), time.process_time()
        since = None if state.report.offset is None else self._recorded_offset(state.report.offset)
        brokers = {broker: self._recorded_offset(offset) for broker, offset in state.brokers.items()}
        try:
            with span("snapshot"):
                result = await self._poller.poll_next(
                    state.polls, since, deadline, digest=state.take_digest(), brokers=brokers
                )
        except (NotPermittedError, OtherClusterError):
            raise
        except UnavailableError as error:
            raise FailedPollError(error.detail) from error
        self.topics = state.polls.listed or self.topics
        result.wall_s, result.cpu_s = time.monotonic() - began, time.process_time() - began_cpu
        return result

    async def take_requested_snapshots(self, deadline: float) -> list[PollResult]:
        """Poll the entities that were requested, or have external writes to their znodes, since the last call."""
        self._request_written()
        self._polled, self._wanted = self._wanted, {}
        if len(self._polled) > _TOUCHED_LIMIT:
            self.restart_all()
            return []
        entities = [each for each in self._polled.values() if self.entity_types[kraft_type_of(each)].permitted]
        return await self._poller.poll_entities(entities, None, deadline)

    def repeat_requested(self) -> None:
        """Poll the same entities again: a poll of them did not count."""
        self._wanted |= self._polled

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

    def record(self, state: EntityTypeState, snapshot: PollResult, result: FollowResult) -> None:
        """Record a poll that counts."""
        # Types that clients write are not followed by the log.
        applies = self._decisions.target.applies_to(state.entity_type)
        with_log = self.log is not None and self.log.following and not applies
        state.record_poll(snapshot, result.refused, with_log=with_log, left=result.may_have_left)
        if result.pending:
            # They still differ, even if the cluster's answer does not change.
            state.touched = True

    async def clear_drift_of_equal(
        self, state: EntityTypeState, snapshot: PollResult, refused: Collection[str]
    ) -> set[str]:
        """Clear the drift and the refusals of entities that a poll found equal, and return their ids."""
        if not self._decisions.target.applies_to(state.entity_type):
            return set()
        if self._left is None:
            self._left = set(await self._states.drifting_entities(self._store.name))
        equal = state.covered(snapshot, self._left.union(self.drift, refused))
        equal -= {each.entity.id for each in snapshot.differing}
        if equal:
            nodes = {each: self._store.get(Tree.CONFIG, each) for each in equal}
            revisions = {each: None if node is None else node.mzxid for each, node in nodes.items()}
            await self._states.clear_drift(self._store.name, revisions, snapshot.after)
        self.drift = {entity_id: each for entity_id, each in self.drift.items() if entity_id not in equal}
        self._left = (self._left - equal) | self.drift.keys()
        return equal

    def record_drift(self, snapshot: PollResult, result: FollowResult) -> None:
        """Record the external changes that are left alone, of the entities that differed, and the offset reached."""
        waiting = result.pending - result.corrections.keys()
        decided = {each.entity.id for each in snapshot.differing} - waiting
        self.drift = {entity_id: each for entity_id, each in self.drift.items() if entity_id not in decided}
        self.drift |= {entity_id: each.drift for entity_id, each in result.corrections.items() if each.drift}
        if result.written:
            self.moved = max(self.moved, snapshot.until)

    # -- external writes to znodes

    def _request_written(self) -> None:
        """Request the entities with external writes in ZooKeeper since the last call; everything if unknown."""
        read, first = self._store.journal.read(self._cursor), self._cursor is None
        if read is None:
            return
        self._cursor = read.cursor
        if isinstance(read, ExpiredCursor):
            # The first polls cover everything anyway.
            if not first:
                self.restart_all()
            return
        for entry in read.entries:
            if entry.tree is Tree.CONFIG:
                if self._is_of_left_quotas(entry.entity_id):
                    # A poll with the same digest would not be compared, but waiting changes replace external values.
                    self.entity_types[KraftEntityType.QUOTAS].touched = True
                if self._is_external(entry):
                    self._wanted[entry.entity_id] = Entity.from_id(entry.entity_id)

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
