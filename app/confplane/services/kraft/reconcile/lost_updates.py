"""Lost external updates: external values in a Kafka cluster that queued client changes will replace. Each gets a row.

A poll finds such a value while no delivery of the key is in flight. The value differs from the queued value, from every
value that this service sent, and from the value that the change was based on. The statement that writes the row also
records the value in the state, so that two leaders write one row and later polls write none. The row has both values,
and is not a version of the entity.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from confplane.domain.changes import stored
from confplane.domain.facets import Tree
from confplane.services.kraft.reconcile.enforce import intent_of
from confplane.services.ports.applying import BaseValue, LostUpdate
from confplane.services.znode_metadata import read_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.domain.changes import Node
    from confplane.services.kraft.decisions import EntityObservation
    from confplane.services.kraft.reconcile.follow_drafts import FollowDrafts
    from confplane.services.ports.applying import TargetStates
    from confplane.services.ports.store import ClusterStore


class LostUpdates:
    """Records lost external updates of keys with queued changes.

    Attributes:
        rows: The number of rows that this process wrote.
    """

    def __init__(self, store: ClusterStore, drafts: FollowDrafts, states: TargetStates) -> None:
        self._store = store
        self._drafts = drafts
        self._states = states
        self.rows = 0

    async def record(self, waiting: Sequence[EntityObservation]) -> None:
        """Write the rows of entities with queued changes."""
        nodes = {each.entity.id: self._store.get(Tree.CONFIG, each.entity.id) for each in waiting}
        theirs = {each.entity.id: self._theirs(each, nodes[each.entity.id]) for each in waiting}
        unknown = {
            each.entity.id: keys
            for each in waiting
            if (keys := theirs[each.entity.id].keys() - _base_values(each, nodes[each.entity.id]).keys())
        }
        befores = await self._states.values_before(self._store.name, unknown)
        changes = [
            change
            for each in waiting
            if (change := self._change(each, nodes[each.entity.id], theirs[each.entity.id], befores)) is not None
        ]
        moved = await self._states.record_lost_updates(self._store.name, changes)
        self.rows += sum(each.intent is not None and each.entity_id in moved for each in changes)

    def _theirs(self, observed: EntityObservation, node: Node | None) -> dict[str, str | None]:
        """Return the queued keys that may have external values in the cluster, with these values.

        A delivery in flight may have arrived before the poll. A value that the cluster took from this service is not
        external.
        """
        state = observed.state
        if node is None or observed.observation is None or observed.after < state.applied_offset:
            return {}
        ours, theirs = stored(node), self._drafts.reconcile(observed, node)
        found = {}
        for key in {*read_metadata(node.extra).pending_keys, *state.reapply}:
            value, wanted = theirs.get(key), ours.get(key)
            sent = [*state.uncertain.get(key, ())]
            may_be_sent = any(self._drafts.is_same(observed.entity, key, wanted, each) for each in sent)
            if value == wanted or may_be_sent or (state.under_way and sent):
                continue
            if key in state.applied:
                sent.append(state.applied[key])
            if not any(self._drafts.is_same(observed.entity, key, value, each) for each in sent):
                found[key] = value
        return found

    def _change(
        self,
        observed: EntityObservation,
        node: Node | None,
        theirs: Mapping[str, str | None],
        befores: Mapping[tuple[str, str], str | None],
    ) -> LostUpdate | None:
        entity, base = observed.entity, _base_values(observed, node)
        before = {key: each.value for key, each in base.items()}
        before |= {key: befores[entity.id, key] for key in theirs if (entity.id, key) in befores and key not in base}
        changed = {
            key: value
            for key, value in theirs.items()
            if key in before and not self._drafts.is_same(entity, key, value, before[key])
        }
        new = {key: theirs[key] for key in theirs.keys() & before.keys() if key in changed or key not in base}
        if not new:
            return None
        if any(_may_be_older(observed, key) for key in changed.keys() - base.keys()):
            observed = replace(observed, observed_range=replace(observed.observed_range, after=None))
        return LostUpdate(
            entity.id,
            observed.after,
            observed.state.base,
            base | {key: BaseValue(value, observed.observed_range.until) for key, value in new.items()},
            intent_of(self._store, self._drafts, observed, node, changed) if changed else None,
            observed.topic_id,
        )


def _may_be_older(observed: EntityObservation, key: str) -> bool:
    """Return True if a key may have been set externally before the last poll, because its value was left alone then.

    A delivery that was not applied may have dropped the drift of its keys.
    """
    return key in observed.state.drift or not observed.state.took_last


def _base_values(observed: EntityObservation, node: Node | None) -> dict[str, BaseValue]:
    """Return the base values of queued keys, unless a change followed the cluster since."""
    if node is None:
        return {}
    until = read_metadata(node.extra).until
    return {key: each for key, each in observed.state.base.items() if each.offset >= until}
