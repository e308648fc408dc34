"""Verdicts on entities as they were seen in a cluster, given their znodes: what follows, and what is left.

A sight of a look has the whole config of an entity. A sight of the log has the records of an entity, and applies to the
config as it is stored. Foreign keys stay.
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
    """The end of a decision."""

    SAME = "same"
    """The znode is as seen."""
    STALE = "stale"
    """The znode has later records than the look: another look is needed."""
    PENDING = "pending"
    """Callers altered the znode, and the cluster has not taken it yet: it is looked at again afterwards."""
    REFUSED = "refused"
    """The cluster refused what callers wrote: what others change waits until callers alter the entity again."""
    ENFORCED = "enforced"
    """Another writer changed the entity in the cluster, which is to get the values here again."""
    WRITTEN = "written"
    REMOVED = "removed"
    """The topic's znode is emptied, because the topic is gone."""
    RECREATED = "recreated"
    """The znode is emptied of an earlier topic of this name; the present topic's configs are a change of its own."""


UNWRITTEN: Final = frozenset(
    {FollowDecision.SAME, FollowDecision.STALE, FollowDecision.PENDING, FollowDecision.REFUSED, FollowDecision.ENFORCED}
)
"""The verdicts by which nothing is written."""


@dataclass(frozen=True, slots=True)
class EntityObservation:
    """One entity as it was seen."""

    entity: Entity
    sighting: ObservedRange
    """For the trail."""
    after: int
    """All records up to this offset are in the sight."""
    observation: Observation | None = None
    """The whole config of a look; None for a topic that is gone, and for records of single keys."""
    records: tuple[tuple[str, str | None], ...] = ()
    """Of the log: keys with their values in order; None is a removal."""
    topic_id: str | None = None
    state: TargetState | None = None
    """The record of what was sent to the cluster of the entity; read behind the look, under ``adopt`` alone."""
    stale_writes: Mapping[str, str | None] = field(default_factory=dict)
    """Keys with values of sendings that have no certain end, as they were sent. They are hidden in the sight."""
    emptied: int | None = None
    """The revision at which the znode was emptied for this sight: :attr:`FollowDecision.RECREATED`."""

    @property
    def from_log(self) -> bool:
        """True for records of the log, false for a look."""
        return self.sighting.exact


class DecisionTable:
    """Judges the sights of one cluster.

    Args:
        store: The cluster's store.
        rules: The rules of its configs.
    """

    def __init__(self, store: ClusterStore, rules: ObservedRules) -> None:
        self._store = store
        self._rules = rules

    def applies_to(self, entity_type: KraftEntityType) -> bool:
        """Say whether callers write the quotas or configs of an entity type."""
        target = self._store.target()
        return target is not None and target.applies_to(entity_type)

    @property
    def imported(self) -> bool:
        """True once the import is complete."""
        target = self._store.target()
        return target is not None and target.imported

    def decide_in_mode(self, observed: EntityObservation, node: Node | None) -> tuple[FollowDecision, dict[str, str]]:
        """Return the verdict in the target's mode, and the map to be stored."""
        decision, after = self.decide(observed, node)
        target, entity_type = self._store.target(), kraft_type_of(observed.entity)
        if decision is FollowDecision.SAME or target is None or not target.applies_to(entity_type):
            return decision, after
        decision = _decide_applied(observed, node, decision)
        if decision is FollowDecision.WRITTEN and target.enforces(entity_type):
            return self._decide_enforced(observed, node, after)
        return decision, after

    def puts_back(self, observed: EntityObservation, node: Node | None) -> bool:
        """Say whether the late values of a look are to be put back: nothing of the entity waits, or was refused."""
        state = observed.state
        if state is None or (node is not None and state.sent_mzxid > node.mzxid):
            return False  # another process has seen more; the mirror follows
        return _decide_applied(observed, node, FollowDecision.WRITTEN) is FollowDecision.WRITTEN

    def decide(self, observed: EntityObservation, node: Node | None) -> tuple[FollowDecision, dict[str, str]]:
        """Return the verdict, and the map to be stored."""
        metadata = metadata_of(observed, node)
        if observed.from_log and self.applies_to(kraft_type_of(observed.entity)):
            # The log does not say which of the records are this service's own; looks follow the others.
            return FollowDecision.SAME, stored(node)
        if not observed.from_log:
            return self._decide_polled(observed, node, metadata)
        before = stored(node)
        # Records that an earlier run of the log, or a look behind them, brought into the znode.
        if observed.sighting.until <= metadata.after:
            return FollowDecision.SAME, before
        decision, after = (
            self._decide_logged(observed, before, metadata)
            if observed.records
            else _decide_topic(observed, before, metadata)
        )
        if decision is FollowDecision.SAME or observed.sighting.until > metadata.until:
            return decision, after
        # A look may have seen them already, and later ones too: it was somewhere in front of its last offset. Written
        # over such a look, a record could bring an older value back.
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
                # Without an id in the znode there is nothing but the id to write, and nobody changed anything. It is
                # written with the next change.
                decision = FollowDecision.SAME
            else:
                decision = FollowDecision.WRITTEN
        of_this_look = node is not None and node.mzxid == observed.emptied
        if decision is not FollowDecision.SAME and observed.after < metadata.until and not of_this_look:
            decision = FollowDecision.STALE
        return decision, after

    def _decide_enforced(
        self, observed: EntityObservation, node: Node | None, after: dict[str, str]
    ) -> tuple[FollowDecision, dict[str, str]]:
        """Return the verdict on an entity that others changed, and that is put back; and the map to be stored.

        Keys that the cluster sets by itself are followed all the same.
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
    """Return the verdict on an entity that callers write: what the cluster has not taken from here is not undone.

    The state was read behind the look. Where it names the znode's present revision, the cluster had taken that revision
    at some offset, and a look behind the offset shows what others did since. A topic that is gone, or was made again,
    takes what waits for the earlier one with it.
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
    """Return the members of a znode.

    A topic's first configs are written without its id where the cluster could not be asked. They are those of the topic
    that they were sent to.
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
    """Judge a topic that is gone, or that the log shows as made just now: no earlier config counts for it."""
    if not before and metadata.topic_id is None:
        return FollowDecision.SAME, before
    if observed.observation is not None:
        return FollowDecision.RECREATED, {}
    # The log removes a topic by its id, and the znode may be that of a later topic of this name.
    return (FollowDecision.SAME, before) if _is_recreated(observed, metadata) else (FollowDecision.REMOVED, {})


def _is_recreated(observed: EntityObservation, metadata: ZnodeMetadata) -> bool:
    return None not in {observed.topic_id, metadata.topic_id} and observed.topic_id != metadata.topic_id
