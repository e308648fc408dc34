"""External changes in a Kafka cluster that are not followed: put back, or replaced by queued changes.

An external writer that changes a key repeatedly, such as an operator with its own reconcile loop, wins: the key is
contested, and left alone until a client changes, adopts or reapplies it. A key that no client ever set or removed here
is extra, and is never removed. Stale in-flight writes of this service are put back without a row, each as often as
deliveries have no known outcome. docs/kafka4-design.md has the rules of enforcement and of lost external updates.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from confplane.domain.changes import stored
from confplane.domain.redaction import storable
from confplane.services.kraft.decisions import FollowDecision
from confplane.services.kraft.pending_entity import PendingEntity
from confplane.services.ports.applying import BaseValue, Correction, DriftCause, DriftRecord, LostUpdate
from confplane.services.ports.trail import EXTERNAL_PRINCIPAL, PUT_BACK, Intent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.domain.changes import Node
    from confplane.services.kraft.decisions import EntityObservation
    from confplane.services.kraft.reconcile.follow_drafts import FollowDrafts
    from confplane.services.ports.applying import TargetStates
    from confplane.services.ports.store import ClusterStore

SOURCE: Final = "kafka"
"""The source, in the trail, of writes to a Kafka cluster whose principal is unknown."""
TIMES: Final = 3
WITHIN_S: Final = 600.0
"""A key that was put back :data:`TIMES` times within this many seconds is contested."""


class Enforcer:
    """Puts back external changes in one cluster, and records those that queued changes replace.

    Attributes:
        put_back: The number of external changes that this process decided to put back.
        stale_writes: The number of entities with stale in-flight writes that it decided to put back.
        lost_updates: The number of entities whose lost updates it recorded.
    """

    def __init__(self, store: ClusterStore, drafts: FollowDrafts, states: TargetStates) -> None:
        self._store = store
        self._drafts = drafts
        self._decisions = drafts.decisions
        self._rules = drafts.decisions.rules
        self._states = states
        self.put_back = self.stale_writes = self.lost_updates = 0

    async def correct(
        self, enforced: Sequence[EntityObservation], stale: Sequence[EntityObservation]
    ) -> dict[str, Correction]:
        """Decide on externally changed entities and on those with stale in-flight writes; make the decisions durable.

        Returns:
            The corrections by entity id, without entities that another process decided on or that changed since.
        """
        corrections = [self._correction(each, {}, each.state.drift, each.state.put_back_at) for each in stale]
        for each in enforced:
            # A client may have written since the poll.
            node = self._decisions.node(each.entity)
            if self._decisions.decide(each, node).kind is FollowDecision.ENFORCED:
                corrections.append(self._enforce(each, node))
        made = await self._states.correct(self._store.name, corrections)
        found = {each.entity_id: each for each in corrections if each.entity_id in made}
        self.put_back += sum(each.intent is not None for each in found.values())
        self.stale_writes += sum(bool(each.late) for each in found.values())
        return found

    def _enforce(self, observed: EntityObservation, node: Node | None) -> Correction:
        """Decide for each key that differs whether it is put back or left alone."""
        state, now = observed.state, time.time()
        ours, theirs = _storable(stored(node)), self._theirs(observed, node)
        put_back: dict[str, str | None] = {}
        lately = {key: [at for at in each if now - at < WITHIN_S] for key, each in state.put_back_at.items()}
        put_back_at: dict[str, Sequence[float]] = {key: each for key, each in lately.items() if each}
        hidden = frozenset() if observed.observation is None else observed.observation.hidden
        drift = {key: each for key, each in state.drift.items() if each.refused is not None and key in hidden}
        for key in sorted(ours.keys() | theirs.keys()):
            value, before = theirs.get(key), state.drift.get(key)
            if ours.get(key) == value:
                continue
            if key not in ours and key not in state.applied:
                cause = DriftCause.EXTRA
            elif (before is not None and before.cause is not DriftCause.EXTRA) or len(lately.get(key, ())) >= TIMES:
                cause = DriftCause.CONTESTED
            else:
                put_back[key] = value
                put_back_at[key] = [*lately.get(key, ()), now]
                continue
            since_ms = before.since_ms if before is not None and before.cause is cause else int(now * 1000)
            drift[key] = DriftRecord(cause, value, since_ms)
        return self._correction(observed, put_back, drift, put_back_at)

    def _correction(
        self,
        observed: EntityObservation,
        put_back: Mapping[str, str | None],
        drift: Mapping[str, DriftRecord],
        put_back_at: Mapping[str, Sequence[float]],
    ) -> Correction:
        node, until = self._decisions.node(observed.entity), observed.observed_range.until
        return Correction(
            observed.entity.id,
            observed.state.sent_mzxid if node is None else node.mzxid,
            observed.after,
            {key: BaseValue(value, until) for key, value in {**put_back, **observed.stale_writes}.items()},
            drift,
            put_back_at,
            self._intent(observed, node, put_back) if put_back else None,
            observed.topic_id,
            dict(observed.stale_writes),
        )

    async def record_lost_updates(self, queued: Sequence[EntityObservation]) -> None:
        """Write the rows of external values that the queued changes of some entities will replace."""
        found = []
        for each in queued:
            pending = PendingEntity(self._decisions.node(each.entity), each.state)
            base = {key: base for key, base in each.state.base.items() if base.offset >= pending.metadata.until}
            found.append((each, pending, base, self._external_values(each, pending)))
        unknown = {each.entity.id: keys for each, _, base, theirs in found if (keys := theirs.keys() - base.keys())}
        befores = await self._states.values_before(self._store.name, unknown)
        updates = []
        for each, pending, base, theirs in found:
            before = {key: befores[each.entity.id, key] for key in theirs if (each.entity.id, key) in befores}
            before |= {key: value.value for key, value in base.items()}
            update = self._lost_update(each, pending.node, base, before, theirs)
            if update is not None:
                updates.append(update)
        made = await self._states.record_lost_updates(self._store.name, updates)
        self.lost_updates += sum(each.intent is not None and each.entity_id in made for each in updates)

    def _external_values(self, observed: EntityObservation, pending: PendingEntity) -> dict[str, str | None]:
        """Return the queued keys that may have external values in the cluster, with these values.

        A delivery in flight may have arrived before the poll. A value that the cluster took from this service is not
        external.
        """
        state, node, entity = observed.state, pending.node, observed.entity
        if node is None or observed.observation is None or observed.after < state.applied_offset:
            return {}
        ours, theirs, same = _storable(stored(node)), self._theirs(observed, node), self._rules.same
        found = {}
        for key in {*pending.pending_keys, *state.reapply}:
            value, wanted = theirs.get(key), ours.get(key)
            sent = [*state.uncertain.get(key, ())]
            may_be_sent = any(same(entity, key, wanted, each) for each in sent)
            if value == wanted or may_be_sent or (state.under_way and sent):
                continue
            if key in state.applied:
                sent.append(state.applied[key])
            if not any(same(entity, key, value, each) for each in sent):
                found[key] = value
        return found

    def _lost_update(
        self,
        observed: EntityObservation,
        node: Node | None,
        base: Mapping[str, BaseValue],
        before: Mapping[str, str | None],
        theirs: Mapping[str, str | None],
    ) -> LostUpdate | None:
        """Return the values of an entity that the trail does not account for. Values before a change may be unknown."""
        entity, state, until = observed.entity, observed.state, observed.observed_range.until
        changed = {
            key: value
            for key, value in theirs.items()
            if key in before and not self._rules.same(entity, key, value, before[key])
        }
        new = {key: theirs[key] for key in theirs if key in changed or (key in before and key not in base)}
        if not new:
            return None
        # A key that was left alone may have been set before the last poll. A delivery that was not applied may have
        # dropped the drift of its keys.
        if any(key in state.drift or not state.took_last for key in changed.keys() - base.keys()):
            observed = replace(observed, observed_range=replace(observed.observed_range, after=None))
        return LostUpdate(
            entity.id,
            observed.after,
            state.base,
            {**base, **{key: BaseValue(value, until) for key, value in new.items()}},
            self._intent(observed, node, changed) if changed else None,
            observed.topic_id,
        )

    def _theirs(self, observed: EntityObservation, node: Node | None) -> dict[str, str]:
        """Return the map that a polled observation would leave in a znode, in a form that Postgres can store."""
        ours, observation = stored(node), observed.observation
        return _storable(ours if observation is None else self._rules.reconcile(observed.entity, ours, observation))

    def _intent(self, observed: EntityObservation, node: Node | None, theirs: Mapping[str, str | None]) -> Intent:
        """Return the row of the trail for external values that never were a version of the znode."""
        changed = {key: value for key, value in {**stored(node), **theirs}.items() if value is not None}
        row = replace(self._drafts.row(observed, node, changed), version_read=None, czxid_read=None)
        return Intent(
            change_id=self._store.new_change_id(),
            attempt=1,
            cluster=self._store.name,
            writer="",
            principal=EXTERNAL_PRINCIPAL,
            source=SOURCE,
            request_id="",
            reason=None,
            ticket=None,
            entities=(row,),
            kind=PUT_BACK,
            observed=observed.observed_range,
        )


def _storable(config: Mapping[str, str]) -> dict[str, str]:
    return {key: storable(value) for key, value in config.items()}
