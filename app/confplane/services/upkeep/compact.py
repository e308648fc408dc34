"""Compaction: removal of empty config nodes that were not written for some time.

An alter never deletes a node, so that a version never starts again while any client may remember it. Compaction removes
later the nodes that Kafka 3.5 and newer remove at once: nodes of users, clients and ips, and the parents of a user's
client that are left with nothing. Topics' and brokers' nodes stay, as in Kafka.

With a Kafka cluster without ZooKeeper, a node has bounds that keep older observations out, and keys that wait for their
delivery. It is removed in the modes ``adopt`` and ``enforce`` if the cluster has taken its revision: the states in
Postgres keep the removed keys and the offset of their delivery, and no poll is as old as the node. In the mode
``observe`` such a node stays, because the metadata log may be read again from any earlier offset.

Each entity is a change of its own (docs/architecture.md, "One write"): intent, transaction, outcome.

Source: AdminZkClient.tryCleanQuotaNodes.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from confplane.domain.errors import ConcurrentChangeError, ConfplaneError, InvalidRequestError, ThrottledError
from confplane.domain.facets import Tree
from confplane.services.changes.edits import ChangeJob, Draft, NoChange
from confplane.services.ports.kafka import kraft_type_of
from confplane.services.ports.store import ClusterStore
from confplane.services.ports.trail import IntentEntity
from confplane.services.ports.transactions import Removal
from confplane.services.znode_metadata import read_metadata

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.services.changes.callers import Caller
    from confplane.services.changes.runner import ChangeRunner
    from confplane.services.ports.applying import TargetState, TargetStates

_Removals = tuple[Removal, ...]

_FACETS: Final = {"/config": "client-quotas", "/confplane/client-configs": "client-configs"}
_CHANGE_S: Final = 30.0
"""Seconds for each entity."""
_PAUSE_S: Final = 5.0
"""Seconds between two checks of whether the brokers have processed enough notifications."""


class CompactedStore(ClusterStore, Protocol):
    """A cluster's store with the reads that compaction needs."""

    def seemingly_empty(self) -> list[tuple[Tree, str]]:
        """Return trees and ids of the entities that are empty by the mirror: a user's clients before the user."""

    async def emptiness(self, tree: Tree, entity_id: str, age_s: float, deadline: float) -> tuple[Removal, ...] | None:
        """Check in ZooKeeper that an entity is empty; None if it is not, was touched, or has children.

        Args:
            tree: The tree of the entity.
            entity_id: The entity.
            age_s: Seconds since the entity was last touched, at least, by ZooKeeper's clock.
            deadline: The deadline, on the clock of ``time.monotonic()``.

        Returns:
            The nodes to remove: the entity's, that of its user where that is left with nothing, and the folder between.
        """


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The result for one entity."""

    entity_ids: tuple[str, ...]
    """The entities whose nodes were removed, or would be."""
    change_id: str | None = None
    """The id of the change; None if nothing was removed."""
    error: ConfplaneError | None = None


class CompactService:
    """Compacts one cluster.

    Args:
        runner: Runs the changes.
        store: The cluster's store.
        states: The states of entities in the Kafka cluster.
    """

    def __init__(self, runner: ChangeRunner, store: CompactedStore, states: TargetStates) -> None:
        self._runner = runner
        self._store = store
        self._states = states

    def candidates(self) -> list[tuple[Tree, str]]:
        """Return the entities that may be removed, by the mirror."""
        return self._store.seemingly_empty()

    async def run(
        self, candidates: Sequence[tuple[Tree, str]], caller: Caller, *, older_than_s: float, apply: bool
    ) -> AsyncIterator[CompactResult | None]:
        """Process candidates one by one, and yield the result of each; None for a candidate that stays.

        Args:
            candidates: Candidates from :meth:`candidates`.
            caller: The caller; each entity has a deadline of its own.
            older_than_s: Seconds since a node was last touched, at least.
            apply: Remove the nodes; otherwise only check them.

        Raises:
            ConfplaneError: No further work is possible now: a store is away, the cluster is frozen. Results that were
                yielded stand.
        """
        for tree, entity_id in candidates:
            if apply:
                yield await self._remove(tree, entity_id, caller, older_than_s)
            else:
                found = await self._removals(tree, entity_id, older_than_s, time.monotonic() + _CHANGE_S)
                yield None if found is None else CompactResult(_ids(found))

    async def _removals(self, tree: Tree, entity_id: str, older_than_s: float, deadline: float) -> _Removals | None:
        """Return the nodes that may be removed with an entity; None if it stays."""
        found = await self._store.emptiness(tree, entity_id, older_than_s, deadline)
        if found is None or tree is not Tree.CONFIG or self._store.target() is None:
            return found
        needless = await self._needless(found)
        if all(each.entity is None or each.entity.id in needless for each in found):
            return found
        # Without the user of a pair, and the folder between them.
        return found[:1] if entity_id in needless else None

    async def _needless(self, removals: _Removals) -> set[str]:
        """Return the ids of the entities whose nodes neither a delivery nor a poll depends on."""
        nodes = {
            node.id: node
            for each in removals
            if each.entity is not None
            and (node := self._store.get(Tree.CONFIG, each.entity.id)) is not None
            and (node.version, node.czxid) == (each.expected, each.czxid)
            and self._needs_no_bounds(each.entity, node)
        }
        states = await self._states.load(self._store.name, list(nodes))
        pending = {entity_id: read_metadata(node.extra).pending_keys for entity_id, node in nodes.items()}
        is_open = {entity_id for entity_id, _ in await self._states.keys_in_open_changes(self._store.name, pending)}
        return {
            entity_id
            for entity_id, node in nodes.items()
            if entity_id not in is_open and _is_delivered(node, states[entity_id])
        }

    def _needs_no_bounds(self, entity: Entity, node: Node) -> bool:
        """Return whether an entity's node needs no bounds against records of the log, because clients write it."""
        target = self._store.target()
        return node.extra is None or target is None or (target.imported and target.applies_to(kraft_type_of(entity)))

    async def _remove(self, tree: Tree, entity_id: str, caller: Caller, older_than_s: float) -> CompactResult | None:
        while True:
            deadline = time.monotonic() + _CHANGE_S

            async def decide(*, again: bool, deadline: float = deadline) -> Draft[_Removals] | NoChange[_Removals]:
                del again  # decided on ZooKeeper's state at every attempt
                found = await self._removals(tree, entity_id, older_than_s, deadline)
                return NoChange(()) if found is None else _draft(tree, found)

            try:
                ended = await self._runner.run(self._store, ChangeJob(decide), replace(caller, deadline=deadline))
            except ThrottledError:
                await asyncio.sleep(_PAUSE_S)
            except (ConcurrentChangeError, InvalidRequestError) as error:
                return CompactResult((entity_id,), error=error)
            else:
                return None if ended.change_id is None else CompactResult(_ids(ended.decided), str(ended.change_id))


def _is_delivered(node: Node, state: TargetState) -> bool:
    """Return whether the Kafka cluster has taken an empty node, and nothing of it is to be delivered again."""
    if state.is_open or state.refused is not None or state.uncertain or state.drift:
        return False
    return not read_metadata(node.extra).pending_keys or state.applied_mzxid == node.mzxid


def _ids(removals: _Removals) -> tuple[str, ...]:
    return tuple(each.entity.id for each in removals if each.entity is not None)


def _draft(tree: Tree, removals: _Removals) -> Draft[_Removals]:
    return Draft(
        removals,
        writes=removals,
        entities=tuple(
            IntentEntity(
                entity_id=each.entity.id,
                facet=_FACETS[tree.value],
                path=each.path,
                version_read=each.expected,
                czxid_read=each.czxid,
                keys=(),
                ops=({"removeAll": True},),
                before={},
                after={},
            )
            for each in removals
            if each.entity is not None
        ),
    )
