"""The decision on an entity that was observed in a Kafka cluster: :func:`decide`, a pure function.

An observation from a poll has the complete config of an entity. An observation from the metadata log has some of its
records, which are applied to the stored config. Foreign keys are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.domain.changes import stored
from confplane.domain.facets import Tree
from confplane.services.kraft.pending_entity import PendingEntity
from confplane.services.ports.applying import NO_STATE
from confplane.services.ports.cluster_states import TargetMode
from confplane.services.ports.kafka import kraft_type_of
from confplane.services.znode_metadata import read_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.domain.observed import Observation, ObservedRules
    from confplane.services.ports.applying import TargetState
    from confplane.services.ports.kafka import KraftEntityType
    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import ObservedRange
    from confplane.services.znode_metadata import ZnodeMetadata


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
    state: TargetState = NO_STATE
    """The state of deliveries to the entity. Read after the poll, and only if client changes are applied."""
    stale_writes: Mapping[str, str | None] = field(default_factory=dict)
    """Stale in-flight writes: keys with values of deliveries whose outcome is unknown. The observation hides them."""
    emptied: int | None = None
    """The revision at which the znode was emptied for this observation: :attr:`FollowDecision.RECREATED`."""

    @property
    def is_from_log(self) -> bool:
        """True for records of the log, false for a poll."""
        return self.observed_range.exact


class EntityDecision(NamedTuple):
    """The decision on an entity."""

    kind: FollowDecision
    config: dict[str, str]
    """The map that the znode is to have; the stored one if nothing is written."""


def decide(
    declared: Node | None,
    delivered: TargetState,
    observed: EntityObservation,
    mode: TargetMode,
    rules: ObservedRules,
    *,
    imported: bool,
) -> EntityDecision:
    """Decide what an observation means for the znode of its entity.

    Args:
        declared: The znode.
        delivered: The state of deliveries, read after the poll.
        observed: The entity in the cluster.
        mode: The mode of its entity type.
        rules: The owner of each key: the cluster, Confplane, or another writer of the znode.
        imported: The import is complete.
    """
    decision = compare(declared, delivered, observed, mode, rules, imported=imported)
    if decision.kind is FollowDecision.SAME or mode is TargetMode.OBSERVE:
        return decision
    kind = _protect_client_changes(declared, delivered, observed, decision.kind)
    if kind is FollowDecision.WRITTEN and mode is TargetMode.ENFORCE:
        return _enforce(declared, delivered, observed, rules, decision.config)
    return EntityDecision(kind, decision.config)


def compare(
    declared: Node | None,
    delivered: TargetState,
    observed: EntityObservation,
    mode: TargetMode,
    rules: ObservedRules,
    *,
    imported: bool,
) -> EntityDecision:
    """Decide as if no client wrote the entity. Args as of :func:`decide`."""
    metadata = PendingEntity(declared, delivered).metadata
    if not observed.is_from_log:
        return _compare_poll(declared, observed, metadata, rules, imported=imported)
    before = stored(declared)
    if mode is not TargetMode.OBSERVE:
        # The log does not tell which records are this service's own. Polls follow external changes.
        return EntityDecision(FollowDecision.SAME, before)
    # An earlier run of the log, or a later poll, has already written these records.
    if observed.observed_range.until <= metadata.after:
        return EntityDecision(FollowDecision.SAME, before)
    decision = (
        _compare_records(observed, before, metadata, rules)
        if observed.records
        else _compare_topic(observed, before, metadata)
    )
    if decision.kind is FollowDecision.SAME or observed.observed_range.until > metadata.until:
        return decision
    # A poll may already include these records and later ones: it happened at some offset before its last one. A
    # record that is written over such a poll could restore an older value.
    unchanged = decision.kind is FollowDecision.WRITTEN and decision.config == before
    return EntityDecision(FollowDecision.SAME if unchanged else FollowDecision.STALE, before)


def puts_back(declared: Node | None, delivered: TargetState, observed: EntityObservation) -> bool:
    """Return whether stale in-flight writes are to be put back: no change of the entity waits or was refused."""
    kind = _protect_client_changes(declared, delivered, observed, FollowDecision.WRITTEN)
    return kind is FollowDecision.WRITTEN and not _is_behind(declared, delivered)


def _is_behind(declared: Node | None, delivered: TargetState) -> bool:
    """Return whether another process has delivered a later revision than this one has; the mirror follows."""
    return declared is not None and delivered.sent_mzxid > declared.mzxid


def _compare_poll(
    declared: Node | None, observed: EntityObservation, metadata: ZnodeMetadata, rules: ObservedRules, *, imported: bool
) -> EntityDecision:
    before = stored(declared)
    if observed.observation is None:
        kind, after = _compare_topic(observed, before, metadata)
    else:
        after = rules.reconcile(observed.entity, before, observed.observation)
        if after == before and (declared is None or observed.topic_id is None):
            kind = FollowDecision.SAME
        elif _is_recreated(observed, metadata):
            kind, after = FollowDecision.RECREATED, {}
        elif after == before and (observed.topic_id == metadata.topic_id or imported):
            # Only the topic id is missing in the znode, and nothing changed. The next change writes it.
            kind = FollowDecision.SAME
        else:
            kind = FollowDecision.WRITTEN
    of_this_poll = declared is not None and declared.mzxid == observed.emptied
    if kind is not FollowDecision.SAME and observed.after < metadata.until and not of_this_poll:
        kind = FollowDecision.STALE
    return EntityDecision(kind, after)


def _compare_records(
    observed: EntityObservation, before: dict[str, str], metadata: ZnodeMetadata, rules: ObservedRules
) -> EntityDecision:
    if _is_recreated(observed, metadata):
        return EntityDecision(FollowDecision.RECREATED, {})
    after = dict(before)
    for key, value in observed.records:
        if not rules.governs(observed.entity, key):
            continue
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    return EntityDecision(FollowDecision.WRITTEN, after)


def _compare_topic(observed: EntityObservation, before: dict[str, str], metadata: ZnodeMetadata) -> EntityDecision:
    """Decide on a topic that is gone, or that the log shows as just created: no earlier config counts for it."""
    if not before and metadata.topic_id is None:
        return EntityDecision(FollowDecision.SAME, before)
    if observed.observation is not None:
        return EntityDecision(FollowDecision.RECREATED, {})
    # The log removes a topic by its id, and the znode may be that of a later topic of this name.
    if _is_recreated(observed, metadata):
        return EntityDecision(FollowDecision.SAME, before)
    return EntityDecision(FollowDecision.REMOVED, {})


def _is_recreated(observed: EntityObservation, metadata: ZnodeMetadata) -> bool:
    return None not in {observed.topic_id, metadata.topic_id} and observed.topic_id != metadata.topic_id


def _protect_client_changes(
    declared: Node | None, delivered: TargetState, observed: EntityObservation, kind: FollowDecision
) -> FollowDecision:
    """Return the decision on an entity that clients write. Changes that the cluster has not applied yet are not undone.

    The state was read after the poll. If it names the current revision of the znode, the cluster applied that revision
    at a known offset, and a poll after that offset shows external changes. If a topic is gone or was recreated, the
    changes that wait for the earlier topic are dropped.
    """
    if kind in {FollowDecision.REMOVED, FollowDecision.RECREATED}:
        behind = observed.after < delivered.applied_offset and observed.emptied is None
        return FollowDecision.STALE if behind else kind
    if PendingEntity(declared, delivered).refusal is not None:
        return FollowDecision.REFUSED
    is_pending = (
        declared is not None
        and read_metadata(declared.extra).pending_keys
        and delivered.applied_mzxid != declared.mzxid
    )
    if is_pending or delivered.is_open:
        return FollowDecision.PENDING
    return FollowDecision.STALE if observed.after < delivered.applied_offset else kind


def _enforce(
    declared: Node | None,
    delivered: TargetState,
    observed: EntityObservation,
    rules: ObservedRules,
    after: dict[str, str],
) -> EntityDecision:
    """Decide on external changes under ``enforce``, in which some keys are followed: :meth:`ObservedRules.follows`."""
    before = stored(declared)
    if _is_behind(declared, delivered):
        return EntityDecision(FollowDecision.STALE, before)
    if delivered.refused is not None:
        return EntityDecision(FollowDecision.REFUSED, before)
    ours = {key: value for key, value in before.items() if not rules.follows(observed.entity, key)}
    theirs = {key: value for key, value in after.items() if rules.follows(observed.entity, key)}
    followed = ours | theirs
    return EntityDecision(FollowDecision.ENFORCED if followed == before else FollowDecision.WRITTEN, followed)


class ClusterDecisions:
    """Decides on the observations of one cluster, in its present mode."""

    def __init__(self, store: ClusterStore, rules: ObservedRules) -> None:
        self._store = store
        self._rules = rules

    def mode_of(self, entity_type: KraftEntityType) -> TargetMode:
        """Return the mode of an entity type."""
        target = self._store.target()
        return TargetMode.OBSERVE if target is None else target.mode_of(entity_type)

    def applies_to(self, entity_type: KraftEntityType) -> bool:
        """Return whether clients write the quotas or configs of an entity type."""
        return self.mode_of(entity_type) is not TargetMode.OBSERVE

    @property
    def has_earlier_states(self) -> bool:
        """True if the states of deliveries are an earlier release's, whose leader alone decides on them."""
        target = self._store.target()
        return target is not None and target.applies and not target.states_by_key

    @property
    def imported(self) -> bool:
        """True once the import is complete."""
        target = self._store.target()
        return target is not None and target.imported

    def decide(self, observed: EntityObservation, node: Node | None) -> EntityDecision:
        """Return the decision on an observation, given a znode."""
        mode = self.mode_of(kraft_type_of(observed.entity))
        return decide(node, observed.state, observed, mode, self._rules, imported=self.imported)

    def differs(self, observed: EntityObservation) -> bool:
        """Return whether an entity's znode in the mirror differs from the observation."""
        mode, node = self.mode_of(kraft_type_of(observed.entity)), self._mirrored(observed)
        decision = compare(node, observed.state, observed, mode, self._rules, imported=self.imported)
        return decision.kind is not FollowDecision.SAME

    def enforces(self, observed: EntityObservation) -> bool:
        """Return whether an entity is to be put back in the cluster, according to the mirror."""
        return self.decide(observed, self._mirrored(observed)).kind is FollowDecision.ENFORCED

    def puts_back(self, observed: EntityObservation) -> bool:
        """Return whether stale in-flight writes are to be put back, according to the mirror."""
        return puts_back(self._mirrored(observed), observed.state, observed)

    def _mirrored(self, observed: EntityObservation) -> Node | None:
        return self._store.get(Tree.CONFIG, observed.entity.id)
