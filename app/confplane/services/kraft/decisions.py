"""The decision on an entity that was observed in a Kafka cluster: :func:`decide`, a pure function.

An observation from a poll has the complete config of an entity. An observation from the metadata log has some of its
records, which are applied to the stored config. Foreign keys are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.domain.changes import stored
from confplane.domain.facets import Tree
from confplane.domain.observed import Observation
from confplane.services.kraft.pending_entity import PendingEntity
from confplane.services.ports.applying import NO_STATE
from confplane.services.ports.cluster_states import Target, TargetMode
from confplane.services.ports.kafka import kraft_type_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.domain.observed import ObservedRules
    from confplane.services.ports.applying import TargetState
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
_NO_TARGET: Final = Target("")


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
    declared: Node | None, observed: EntityObservation, mode: TargetMode, rules: ObservedRules, *, imported: bool
) -> EntityDecision:
    """Decide what an observation means for the znode of its entity.

    Args:
        declared: The znode.
        observed: The entity in the cluster, with the state of deliveries.
        mode: The mode of its entity type.
        rules: The owner of each key: the cluster, Confplane, or another writer of the znode.
        imported: The import is complete.
    """
    decision = _compare(declared, observed, mode, rules, imported=imported)
    if decision.kind is FollowDecision.SAME or mode is TargetMode.OBSERVE:
        return decision
    kind = _protect_client_changes(declared, observed, decision.kind)
    if kind is FollowDecision.WRITTEN and mode is TargetMode.ENFORCE:
        return _enforce(declared, observed, rules, decision.config)
    return EntityDecision(kind, decision.config)


def _compare(
    declared: Node | None, observed: EntityObservation, mode: TargetMode, rules: ObservedRules, *, imported: bool
) -> EntityDecision:
    """Decide as if no client wrote the entity."""
    before, metadata = stored(declared), PendingEntity(declared, observed.state).metadata
    if not observed.is_from_log:
        kind, after = _compare_poll(declared, observed, metadata, rules, imported=imported)
        of_this_poll = declared is not None and declared.mzxid == observed.emptied
        if kind is not FollowDecision.SAME and observed.after < metadata.until and not of_this_poll:
            kind = FollowDecision.STALE
        return EntityDecision(kind, after)
    # The log does not tell which records are this service's own. Polls follow external changes in the other modes.
    # Records up to this offset were written by an earlier run of the log, or by a later poll.
    if mode is not TargetMode.OBSERVE or observed.observed_range.until <= metadata.after:
        return EntityDecision(FollowDecision.SAME, before)
    if not observed.records:
        decision = _compare_topic(observed, before, metadata)
    elif _is_recreated(observed, metadata):
        decision = EntityDecision(FollowDecision.RECREATED, {})
    else:
        given = {key: value for key, value in observed.records if rules.governs(observed.entity, key)}
        after = {key: value for key, value in {**before, **given}.items() if value is not None}
        decision = EntityDecision(FollowDecision.WRITTEN, after)
    if decision.kind is FollowDecision.SAME or observed.observed_range.until > metadata.until:
        return decision
    # A poll may already include these records and later ones: it happened at some offset before its last one. A
    # record that is written over such a poll could restore an older value.
    unchanged = decision.kind is FollowDecision.WRITTEN and decision.config == before
    return EntityDecision(FollowDecision.SAME if unchanged else FollowDecision.STALE, before)


def puts_back(declared: Node | None, observed: EntityObservation) -> bool:
    """Return whether stale in-flight writes are to be put back: no change of the entity waits or was refused."""
    kind = _protect_client_changes(declared, observed, FollowDecision.WRITTEN)
    return kind is FollowDecision.WRITTEN and not _is_behind(declared, observed)


def _is_behind(declared: Node | None, observed: EntityObservation) -> bool:
    """Return whether another process has delivered a later revision than this one has; the mirror follows."""
    return declared is not None and observed.state.sent_mzxid > declared.mzxid


def _compare_poll(
    declared: Node | None, observed: EntityObservation, metadata: ZnodeMetadata, rules: ObservedRules, *, imported: bool
) -> EntityDecision:
    before = stored(declared)
    if observed.observation is None:
        return _compare_topic(observed, before, metadata)
    after = rules.reconcile(observed.entity, before, observed.observation)
    if after == before and (declared is None or observed.topic_id is None):
        return EntityDecision(FollowDecision.SAME, after)
    if _is_recreated(observed, metadata):
        return EntityDecision(FollowDecision.RECREATED, {})
    # If only the topic id is missing in the znode, the next change writes it.
    same = after == before and (observed.topic_id == metadata.topic_id or imported)
    return EntityDecision(FollowDecision.SAME if same else FollowDecision.WRITTEN, after)


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


def _protect_client_changes(declared: Node | None, observed: EntityObservation, kind: FollowDecision) -> FollowDecision:
    """Return the decision on an entity that clients write. Changes that the cluster has not applied yet are not undone.

    The state was read after the poll. If it names the current revision of the znode, the cluster applied that revision
    at a known offset, and a poll after that offset shows external changes. If a topic is gone or was recreated, the
    changes that wait for the earlier topic are dropped.
    """
    delivered = observed.state
    is_older = observed.after < delivered.applied_offset
    if kind in {FollowDecision.REMOVED, FollowDecision.RECREATED}:
        return FollowDecision.STALE if is_older and observed.emptied is None else kind
    pending = PendingEntity(declared, delivered)
    if pending.refusal is not None:
        return FollowDecision.REFUSED
    is_applied = declared is not None and delivered.applied_mzxid == declared.mzxid
    if delivered.is_open or (pending.pending_keys and not is_applied):
        return FollowDecision.PENDING
    return FollowDecision.STALE if is_older else kind


def _enforce(
    declared: Node | None, observed: EntityObservation, rules: ObservedRules, after: dict[str, str]
) -> EntityDecision:
    """Decide on external changes under ``enforce``, in which some keys are followed: :meth:`ObservedRules.follows`."""
    before, entity = stored(declared), observed.entity
    if _is_behind(declared, observed):
        return EntityDecision(FollowDecision.STALE, before)
    if observed.state.refused is not None:
        return EntityDecision(FollowDecision.REFUSED, before)
    ours = {key: value for key, value in before.items() if not rules.follows(entity, key)}
    theirs = {key: value for key, value in after.items() if rules.follows(entity, key)}
    followed = ours | theirs
    return EntityDecision(FollowDecision.ENFORCED if followed == before else FollowDecision.WRITTEN, followed)


class ClusterDecisions:
    """Decides on the observations of one cluster, in its present mode and by its mirror.

    Attributes:
        rules: The rules of the cluster's configs.
    """

    def __init__(self, store: ClusterStore, rules: ObservedRules) -> None:
        self._store = store
        self.rules = rules

    @property
    def target(self) -> Target:
        """The target; without one, a target that is only observed."""
        return self._store.target() or _NO_TARGET

    def mode_of(self, entity: Entity) -> TargetMode:
        """Return the mode of an entity's type."""
        return self.target.mode_of(kraft_type_of(entity))

    @property
    def has_earlier_states(self) -> bool:
        """True if the states of deliveries are an earlier release's, whose leader alone decides on them."""
        return self.target.applies and not self.target.states_by_key

    def decide(self, observed: EntityObservation, node: Node | None) -> EntityDecision:
        """Return the decision on an observation, given a znode."""
        return decide(node, observed, self.mode_of(observed.entity), self.rules, imported=self.target.imported)

    def differs(self, observed: EntityObservation) -> bool:
        """Return whether an entity's znode in the mirror differs from the observation."""
        return self.decide(observed, self.node(observed.entity)).kind is not FollowDecision.SAME

    def node(self, entity: Entity) -> Node | None:
        """Return the znode of an entity in the mirror."""
        return self._store.get(Tree.CONFIG, entity.id)

    def with_state(self, observed: EntityObservation, state: TargetState) -> EntityObservation:
        """Return a polled observation with the state of deliveries, without stale in-flight writes and refused keys.

        A refused key is not followed, unless the cluster shows its value.

        A value is a stale in-flight write if it differs from the stored value and belongs to a delivery whose outcome
        is unknown: that delivery may have arrived just now. The stored values are kept and must be delivered again. A
        poll that may be older than the newest values shows no stale in-flight writes.
        """
        observation = observed.observation
        if observation is None:
            return observed
        entity, node, same = observed.entity, self.node(observed.entity), self.rules.same
        ours, theirs = stored(node), observation.config
        refused = PendingEntity(node, state).refused_keys
        hidden = {key for key in refused if not same(entity, key, theirs.get(key), ours.get(key))}
        stale: dict[str, str | None] = {}
        if state.is_applied and state.is_of(observed.topic_id) and observed.after >= state.applied_offset:
            for key, values in state.uncertain.items():
                now = theirs.get(key)
                # The values of passwords are not visible.
                if key in observation.hidden | hidden or not self.rules.governs(entity, key):
                    continue
                arrived = [each for each in values if same(entity, key, now, each)]
                if arrived and not same(entity, key, now, ours.get(key)):
                    stale[key] = arrived[0]
        hidden |= stale.keys()
        config = {key: value for key, value in theirs.items() if key not in hidden}
        observation = Observation(config, observation.hidden | hidden)
        return replace(observed, state=state, observation=observation, stale_writes=stale)
