"""Enforcement: external changes in a Kafka cluster are put back, each with a row in the trail.

Stale in-flight writes of this service are put back in every mode, without a row. Each counts for one delivery without a
known outcome, so that an external writer is not overwritten more often than that.

An external writer that changes a key repeatedly, such as an operator with its own reconcile loop, wins: a key that was
put back three times in ten minutes is contested. It is left alone until a client changes, adopts or reapplies it. A key
that no client ever set or removed here is extra, and is never removed.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from confplane.domain.changes import stored
from confplane.domain.facets import Tree
from confplane.services.ports.applying import BaseValue, Correction, DriftCause, DriftRecord
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
    """Puts back external changes in one cluster.

    Attributes:
        put_back: The number of external changes that this process decided to put back.
        stale_writes: The number of entities with stale in-flight writes that it decided to put back.
    """

    def __init__(self, store: ClusterStore, drafts: FollowDrafts, states: TargetStates) -> None:
        self._store = store
        self._drafts = drafts
        self._states = states
        self.put_back = self.stale_writes = 0

    async def correct(
        self, enforced: Sequence[EntityObservation], late: Sequence[EntityObservation]
    ) -> dict[str, Correction]:
        """Decide on externally changed entities and on those with stale in-flight writes; make the decisions durable.

        Returns:
            The corrections by entity id, without entities that another process decided on or that changed since.
        """
        # A client may have written since the poll.
        corrections = [
            self._correction(each, *self._decide(each)) for each in enforced if self._drafts.decisions.enforces(each)
        ]
        corrections += [self._correction(each, {}, each.state.drift, each.state.put_back_at) for each in late]
        moved = await self._states.correct(self._store.name, corrections)
        made = {each.entity_id: each for each in corrections if each.entity_id in moved}
        self.put_back += sum(each.intent is not None for each in made.values())
        self.stale_writes += sum(bool(each.late) for each in made.values())
        return made

    def _correction(
        self,
        observed: EntityObservation,
        put_back: Mapping[str, str | None],
        drift: Mapping[str, DriftRecord],
        put_back_at: Mapping[str, Sequence[float]],
    ) -> Correction:
        node = self._store.get(Tree.CONFIG, observed.entity.id)
        theirs = {**put_back, **observed.stale_writes}
        return Correction(
            observed.entity.id,
            observed.state.sent_mzxid if node is None else node.mzxid,
            observed.after,
            tuple(theirs),
            drift,
            put_back_at,
            intent_of(self._store, self._drafts, observed, node, put_back) if put_back else None,
            observed.topic_id,
            dict(observed.stale_writes),
            {key: BaseValue(value, observed.observed_range.until) for key, value in theirs.items()},
        )

    def _decide(
        self, observed: EntityObservation
    ) -> tuple[dict[str, str | None], dict[str, DriftRecord], dict[str, Sequence[float]]]:
        """Return the keys to put back, with the cluster's values, the keys left alone, and when keys were put back."""
        node = self._store.get(Tree.CONFIG, observed.entity.id)
        ours, theirs = stored(node), self._drafts.reconcile(observed, node)
        state, now = observed.state, time.time()
        lately = {key: [at for at in each if now - at < WITHIN_S] for key, each in state.put_back_at.items()}
        put_back: dict[str, str | None] = {}
        hidden = frozenset() if observed.observation is None else observed.observation.hidden
        drift = {key: each for key, each in state.drift.items() if each.refused is not None and key in hidden}
        put_back_at: dict[str, Sequence[float]] = {key: each for key, each in lately.items() if each}
        for key in sorted(ours.keys() | theirs.keys()):
            value = theirs.get(key)
            if ours.get(key) == value:
                continue
            before = state.drift.get(key)
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
        return put_back, drift, put_back_at


def intent_of(
    store: ClusterStore,
    drafts: FollowDrafts,
    observed: EntityObservation,
    node: Node | None,
    theirs: Mapping[str, str | None],
) -> Intent:
    """Return the row of the trail for external values that never were a version of the znode."""
    changed = {key: value for key, value in {**stored(node), **theirs}.items() if value is not None}
    row = replace(drafts.row(observed, node, changed), version_read=None, czxid_read=None)
    return Intent(
        change_id=store.new_change_id(),
        attempt=1,
        cluster=store.name,
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
