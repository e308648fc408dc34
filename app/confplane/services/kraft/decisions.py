"""The decision table: what to write for an entity that was observed in a Kafka cluster, given its znode.

An observation from a poll has the complete config of an entity. An observation from the metadata log has some of its
records, which are applied to the stored config. Foreign keys are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from confplane.domain.changes import stored
from confplane.services.kraft import znode_metadata
from confplane.services.pending_keys import pending_keys
from confplane.services.ports.kafka import kraft_type_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.domain.observed import Observation, ObservedRules
    from confplane.services.kraft.znode_metadata import ZnodeMetadata
    from confplane.services.ports.applying import TargetState
    from confplane.services.ports.kafka import KraftEntityType
    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import ObservedRange


class FollowDecision(Enum):
    """The decision on one observed entity."""

    SAME = "same"
    """The znode equals the observation."""
    STALE = "stale"
    """The znode has later records than the poll: poll again."""
    PENDING = "pending"
    """The znode has client changes that the cluster has not applied yet. Poll again after they are applied."""
    REFUSED = "refused"
    """The cluster refused a client change. External changes wait until a client alters the entity again."""
    ENFORCED = "enforced"
    """The entity was changed outside Confplane, and the stored values must be applied to the cluster again."""
    WRITTEN = "written"
    REMOVED = "removed"
    """The topic's znode is emptied, because the topic is gone."""
    RECREATED = "recreated"
    """The znode belongs to an earlier topic of this name and is emptied. The configs of the new topic are a separate
    change."""


UNWRITTEN: Final = frozenset(
    {FollowDecision.SAME, FollowDecision.STALE, FollowDecision.PENDING, FollowDecision.REFUSED, FollowDecision.ENFORCED}
)
"""The decisions that write nothing."""


@dataclass(frozen=True, slots=True)
class EntityObservation:
    """One entity as it was observed in the cluster."""

    entity: Entity
    observed_range: ObservedRange
    """The observation as the audit trail records it."""
    after: int
    """The observation includes all records up to this offset."""
    observation: Observation | None = None
    """The complete config from a poll. None for a topic that is gone, and for records of single keys."""
    records: tuple[tuple[str, str | None], ...] = ()
    """From the log: keys with their values, in order. None is a removal."""
    topic_id: str | None = None
    state: TargetState | None = None
    """The state of deliveries to the entity. Read after the poll, and only if client changes are applied."""
    stale_writes: Mapping[str, str | None] = field(default_factory=dict)
    """Stale in-flight writes: keys with values of deliveries whose outcome is unknown. The observation hides them."""
    emptied: int | None = None
    """The revision at which the znode was emptied for this observation: :attr:`FollowDecision.RECREATED`."""

    @property
    def is_from_log(self) -> bool:
        """True for records of the log, false for a poll."""
        return self.observed_range.exact


class DecisionTable:
    """Decides what to do with the observations of one cluster.

    Args:
        store: The cluster's store.
        rules: The rules of its configs.
    """

    def __init__(self, store: ClusterStore, rules: ObservedRules) -> None:
        self._store = store
        self._rules = rules

    def applies_to(self, entity_type: KraftEntityType) -> bool:
        """Return whether clients write the quotas or configs of an entity type."""
        target = self._store.target()
        return target is not None and target.applies_to(entity_type)

    @property
    def imported(self) -> bool:
        """True once the import is complete."""
        target = self._store.target()
        return target is not None and target.imported

    def decide_in_mode(self, observed: EntityObservation, node: Node | None) -> tuple[FollowDecision, dict[str, str]]:
        """Return the decision in the target's mode, and the map to store."""
        decision, after = self.decide(observed, node)
        target, entity_type = self._store.target(), kraft_type_of(observed.entity)
        if decision is FollowDecision.SAME or target is None or not target.applies_to(entity_type):
            return decision, after
        decision = _decide_applied(observed, node, decision)
        if decision is FollowDecision.WRITTEN and target.enforces(entity_type):
            return self._decide_enforced(observed, node, after)
        return decision, after

    def puts_back(self, observed: EntityObservation, node: Node | None) -> bool:
        """Return whether stale in-flight writes are to be put back: no change of the entity waits or was refused."""
        state = observed.state
        if state is None or (node is not None and state.sent_mzxid > node.mzxid):
            return False  # another process has seen more; the mirror follows
        return _decide_applied(observed, node, FollowDecision.WRITTEN) is FollowDecision.WRITTEN

    def decide(self, observed: EntityObservation, node: Node | None) -> tuple[FollowDecision, dict[str, str]]:
        """Return the decision, and the map to store."""
        metadata = metadata_of(observed, node)
        if observed.is_from_log and self.applies_to(kraft_type_of(observed.entity)):
            # The log does not tell which records are this service's own. Polls follow external changes.
            return FollowDecision.SAME, stored(node)
        if not observed.is_from_log:
            return self._decide_polled(observed, node, metadata)
        before = stored(node)
        # An earlier run of the log, or a later poll, has already written these records.
        if observed.observed_range.until <= metadata.after:
            return FollowDecision.SAME, before
        decision, after = (
            self._decide_logged(observed, before, metadata)
            if observed.records
            else _decide_topic(observed, before, metadata)
        )
        if decision is FollowDecision.SAME or observed.observed_range.until > metadata.until:
            return decision, after
        # A poll may already include these records and later ones: it happened at some offset before its last one. A
        # record that is written over such a poll could restore an older value.
        return (
            FollowDecision.SAME if decision is FollowDecision.WRITTEN and after == before else FollowDecision.STALE
        ), before

    def _decide_polled(
        self, observed: EntityObservation, node: Node | None, metadata: ZnodeMetadata
    ) -> tuple[FollowDecision, dict[str, str]]:
        before = stored(node)
        if observed.observation is None:
            decision, after = _decide_topic(observed, before, metadata)
        else:
            after = self._rules.reconcile(observed.entity, before, observed.observation)
            if after == before and (node is None or observed.topic_id is None):
                decision = FollowDecision.SAME
            elif _is_recreated(observed, metadata):
                decision, after = FollowDecision.RECREATED, {}
            elif after == before and (observed.topic_id == metadata.topic_id or self.imported):
                # Only the topic id is missing in the znode, and nothing changed. The next change writes it.
                decision = FollowDecision.SAME
            else:
                decision = FollowDecision.WRITTEN
        of_this_poll = node is not None and node.mzxid == observed.emptied
        if decision is not FollowDecision.SAME and observed.after < metadata.until and not of_this_poll:
            decision = FollowDecision.STALE
        return decision, after

    def _decide_enforced(
        self, observed: EntityObservation, node: Node | None, after: dict[str, str]
    ) -> tuple[FollowDecision, dict[str, str]]:
        """Return the decision on an entity with external changes under ``enforce``, and the map to store.

        Keys that the cluster itself manages are followed nevertheless.
        """
        state, before = observed.state, stored(node)
        if state is not None and node is not None and state.sent_mzxid > node.mzxid:
            return FollowDecision.STALE, before  # another process has seen more; the mirror follows
        if state is not None and state.refused is not None:
            return FollowDecision.REFUSED, before
        ours = {key: value for key, value in before.items() if not self._rules.manages(observed.entity, key)}
        managed = {key: value for key, value in after.items() if self._rules.manages(observed.entity, key)}
        followed = ours | managed
        return FollowDecision.ENFORCED if followed == before else FollowDecision.WRITTEN, followed

    def _decide_logged(
        self, observed: EntityObservation, before: dict[str, str], metadata: ZnodeMetadata
    ) -> tuple[FollowDecision, dict[str, str]]:
        if _is_recreated(observed, metadata):
            return FollowDecision.RECREATED, {}
        after = dict(before)
        for key, value in observed.records:
            if not self._rules.governs(observed.entity, key):
                continue
            if value is None:
                after.pop(key, None)
            else:
                after[key] = value
        return FollowDecision.WRITTEN, after


def _decide_applied(observed: EntityObservation, node: Node | None, decision: FollowDecision) -> FollowDecision:
    """Return the decision on an entity that clients write. Changes that the cluster has not applied yet are not undone.

    The state was read after the poll. If it names the current revision of the znode, the cluster applied that revision
    at a known offset, and a poll after that offset shows external changes. If a topic is gone or was recreated, the
    changes that wait for the earlier topic are dropped.
    """
    state = observed.state
    if decision in {FollowDecision.REMOVED, FollowDecision.RECREATED}:
        behind = state is not None and observed.after < state.applied_offset and observed.emptied is None
        return FollowDecision.STALE if behind else decision
    if node is not None and state is not None and state.refused is not None and state.sent_mzxid == node.mzxid:
        return FollowDecision.REFUSED
    if node is not None and pending_keys(node.extra) and (state is None or state.applied_mzxid != node.mzxid):
        return FollowDecision.PENDING
    if state is None:
        return decision
    if state.is_open:
        return FollowDecision.PENDING
    return FollowDecision.STALE if observed.after < state.applied_offset else decision


def metadata_of(observed: EntityObservation, node: Node | None) -> ZnodeMetadata:
    """Return the metadata of a znode.

    The first configs of a topic are written without its id if the cluster could not be asked. They belong to the topic
    that they were delivered to.
    """
    if node is None:
        return znode_metadata.NONE
    metadata = znode_metadata.read(node.extra)
    if metadata.topic_id is None and observed.state is not None and pending_keys(node.extra):
        return metadata._replace(topic_id=observed.state.topic_id)
    return metadata


def _decide_topic(
    observed: EntityObservation, before: dict[str, str], metadata: ZnodeMetadata
) -> tuple[FollowDecision, dict[str, str]]:
    """Decide on a topic that is gone, or that the log shows as just created: no earlier config counts for it."""
    if not before and metadata.topic_id is None:
        return FollowDecision.SAME, before
    if observed.observation is not None:
        return FollowDecision.RECREATED, {}
    # The log removes a topic by its id, and the znode may be that of a later topic of this name.
    return (FollowDecision.SAME, before) if _is_recreated(observed, metadata) else (FollowDecision.REMOVED, {})


def _is_recreated(observed: EntityObservation, metadata: ZnodeMetadata) -> bool:
    return None not in {observed.topic_id, metadata.topic_id} and observed.topic_id != metadata.topic_id
