"""Values that others set in a Kafka cluster, and that waiting changes of callers will replace: each gets a row.

A look finds such a value while nothing of the key is under way: it is neither the value that waits, nor one that this
service sent, nor the one that the change was made on. The state notes it, in the statement that writes the row, so that
two leaders make one row, and later looks none. The row has both values, and is no version of the entity.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from confplane.domain.changes import stored
from confplane.domain.facets import Tree
from confplane.services.altered import altered
from confplane.services.kraft import members
from confplane.services.kraft.enforce import intent_of
from confplane.services.ports.applying import Noted, Overwriting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.domain.changes import Node
    from confplane.services.kraft.follow import Decisions
    from confplane.services.kraft.verdicts import Seen
    from confplane.services.ports.applying import TargetStates
    from confplane.services.ports.store import ClusterStore


class Overwritten:
    """Notes what others set of keys that wait.

    Args:
        store: The cluster's store.
        decisions: Compares entities with their znodes.
        states: The states of entities in the Kafka cluster.

    Attributes:
        rows: The number of rows that this process wrote.
    """

    def __init__(self, store: ClusterStore, decisions: Decisions, states: TargetStates) -> None:
        self._store = store
        self._decisions = decisions
        self._states = states
        self.rows = 0

    async def note(self, waiting: Sequence[Seen]) -> None:
        """Write the rows of entities whose changes wait.

        Args:
            waiting: Sights of looks.

        Raises:
            UnavailableError: Postgres is away.
        """
        nodes = {each.entity.id: self._store.get(Tree.CONFIG, each.entity.id) for each in waiting}
        theirs = {each.entity.id: self._theirs(each, nodes[each.entity.id]) for each in waiting}
        unknown = {
            each.entity.id: keys
            for each in waiting
            if (keys := theirs[each.entity.id].keys() - _noted(each, nodes[each.entity.id]).keys())
        }
        befores = await self._states.befores(self._store.name, unknown)
        changes = [
            change
            for each in waiting
            if (change := self._change(each, nodes[each.entity.id], theirs[each.entity.id], befores)) is not None
        ]
        moved = await self._states.overwrite(self._store.name, changes)
        self.rows += sum(each.intent is not None and each.entity_id in moved for each in changes)

    def _theirs(self, seen: Seen, node: Node | None) -> dict[str, str | None]:
        """Return the keys that wait, and that may have values of others in the cluster, with these values.

        A sending under way may have been there before the look. A value that the cluster took from here is nobody's.
        """
        state = seen.state
        if node is None or seen.sight is None or (state is not None and seen.after < state.applied_offset):
            return {}
        ours, theirs = stored(node), self._decisions.followed(seen, node)
        found = {}
        for key in {*altered(node.extra), *(() if state is None else state.reapply)}:
            value, wanted = theirs.get(key), ours.get(key)
            sent = [] if state is None else [*state.uncertain.get(key, ())]
            may_be_sent = any(self._decisions.is_same(seen.entity, key, wanted, each) for each in sent)
            if value == wanted or may_be_sent or (state is not None and state.under_way and sent):
                continue
            if state is not None and key in state.applied:
                sent.append(state.applied[key])
            if not any(self._decisions.is_same(seen.entity, key, value, each) for each in sent):
                found[key] = value
        return found

    def _change(
        self,
        seen: Seen,
        node: Node | None,
        theirs: Mapping[str, str | None],
        befores: Mapping[tuple[str, str], str | None],
    ) -> Overwriting | None:
        entity, noted = seen.entity, _noted(seen, node)
        before = {key: each.value for key, each in noted.items()}
        before |= {key: befores[entity.id, key] for key in theirs if (entity.id, key) in befores and key not in noted}
        changed = {
            key: value
            for key, value in theirs.items()
            if key in before and not self._decisions.is_same(entity, key, value, before[key])
        }
        new = {key: theirs[key] for key in theirs.keys() & before.keys() if key in changed or key not in noted}
        if not new:
            return None
        if any(_may_be_older(seen, key) for key in changed.keys() - noted.keys()):
            seen = replace(seen, sighting=replace(seen.sighting, after=None))
        return Overwriting(
            entity.id,
            seen.after,
            {} if seen.state is None else seen.state.base,
            noted | {key: Noted(value, seen.sighting.until) for key, value in new.items()},
            intent_of(self._store, self._decisions, seen, node, changed) if changed else None,
            seen.topic_id,
        )


def _may_be_older(seen: Seen, key: str) -> bool:
    """Say whether others may have set a key in front of the last look: its value was left alone then.

    A sending that has not ended well may have dropped the drift of its keys.
    """
    return seen.state is not None and (key in seen.state.drift or not seen.state.took_last)


def _noted(seen: Seen, node: Node | None) -> dict[str, Noted]:
    """Return the values that are noted of keys that wait: nothing followed the cluster since."""
    if seen.state is None or node is None:
        return {}
    until = members.read(node.extra).until
    return {key: each for key, each in seen.state.base.items() if each.offset >= until}
