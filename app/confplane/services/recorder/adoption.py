"""Adoption: an operator accepts the state of a restored ZooKeeper as it is.

Each entity whose content differs from the last one that the trail explains gets an external change, at the revision and
the time of the adoption. The trail covers the past of the new incarnation from that revision on. The adoption itself is
a change of the cluster, with its principal and its reason.

An interrupted adoption is run again. The difference of an entity is recorded in one transaction with its new state, so
it is recorded once. The store stays rejected until the last step, which writes the new incarnation into ZooKeeper.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree, full_path
from confplane.domain.znode_versions import ABSENT, Gap
from confplane.services.changes.freeze import checked_reason
from confplane.services.changes.states import decide_state
from confplane.services.cooperative_yielding import TimeSlice
from confplane.services.ports.cluster_states import Incarnation
from confplane.services.ports.incarnation import IncarnationStore
from confplane.services.ports.recording import Move, RecordedStore
from confplane.services.recorder.explain import Explainer
from confplane.services.recorder.external import row_of
from confplane.services.upkeep.incarnation import restored

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from uuid import UUID

    from confplane.domain.ownership import Ownership
    from confplane.domain.redaction import Redact
    from confplane.services.changes.callers import Caller
    from confplane.services.changes.runner import ChangeRunner
    from confplane.services.ports.incarnation import StorePosition, StorePositions
    from confplane.services.ports.recording import EntityStates, Key, Watermark

_PAGE: Final = 500
_CALL_S: Final = 30.0


class RestoredStore(RecordedStore, IncarnationStore, Protocol):
    """A cluster's store with both of these ports."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """A completed adoption."""

    incarnation: int
    differing: int
    """Entities whose content differs from the last one in the trail; without those that an interrupted run recorded."""
    change_id: UUID | None
    revision: int | None


class AdoptionService:
    """Adopts the store of one cluster.

    Args:
        runner: Runs the change of the incarnation.
        store: The cluster, its mirror loaded.
        positions: The positions of stores in Postgres.
        states: The recorder's states.
        redact: The redaction of znodes for the trail.
        owners: The owners of the keys of entities whose states have none, as after a restore of a backup.
    """

    def __init__(
        self,
        runner: ChangeRunner,
        store: RestoredStore,
        positions: StorePositions,
        states: EntityStates,
        redact: Redact,
        *,
        owners: Mapping[Key, Ownership] | None = None,
    ) -> None:
        self._owners = owners or {}
        self._runner = runner
        self._store = store
        self._positions = positions
        self._states = states
        self._explainer = Explainer(store, states, redact, margin_s=0)

    async def adopt(self, caller: Caller) -> Adoption | None:
        """Accept the state of the store; None if the store was not restored.

        Raises:
            InvalidRequestError: The reason can't be stored.
            UnavailableError: ZooKeeper or Postgres is unavailable. The adoption may be run again.
            ConcurrentChangeError: Another adoption is running.
            OutcomeUnknownError: The reply was lost; the store may be adopted.
        """
        caller = replace(caller, reason=checked_reason(caller.reason or ""))
        store, name = self._store, self._store.name
        trail = await self._positions.read(name)
        found = await store.read_position(caller.deadline)
        if restored(trail, found) is None:
            return None
        known = (0 if trail.store is None else trail.store.number, found.incarnation.number if found.incarnation else 0)
        new = Incarnation(max(known) + 1, uuid.uuid4().hex, trail.newest_change, trail.timeline)
        store.begin_incarnation(new.number)
        # The mirror of this moment or a later one: later external writes are recorded as usual.
        await store.wait_for(found.revision, caller.deadline)
        differing = await self._record(found)
        await self._positions.adopt(name, new, found)
        # A large store takes longer than the deadline of one call.
        caller = replace(caller, deadline=time.monotonic() + _CALL_S)
        if found.version is None:
            await store.write_incarnation(None, None, caller.deadline)
        decide = decide_state(store, Incarnation, lambda _: new, caller.deadline)
        ended = await self._runner.run(store, decide, caller)
        return Adoption(new.number, differing, ended.change_id, ended.revision)

    async def _record(self, found: StorePosition) -> int:
        """Explain the state of every entity; return the number of the external changes."""
        watermark = await self._states.watermark(self._store.name)
        if watermark is None:
            return 0  # external changes were never recorded
        await self._account(watermark)
        time_slice = TimeSlice()
        async for moves in self._moves(found):
            await self._move(moves, watermark)
            if time_slice.due:
                await time_slice.pause()
        return self._explainer.recorded

    async def _account(self, watermark: Watermark) -> None:
        """Advance the states over the changes that ended after the recorder's last round, and then the watermark.

        From then on the trail explains these states. A run that is repeated would apply the changes again to entities
        whose differences are recorded.
        """
        own = await self._explainer.own(watermark.revision, lambda _: True)
        keys = list(own)
        for start in range(0, len(keys), _PAGE):
            stored = await self._states.known(self._store.name, keys[start : start + _PAGE], whole=True)
            before = {key: stored.get(key, ABSENT) for key in keys[start : start + _PAGE]}
            last = await self._explainer.last_states(before, own)
            moves = [Move(key, stored.get(key), state) for key, state in last.items() if state != before[key]]
            await self._move(moves, watermark)
        if own:
            newest = max(write.revision for writes in own.values() for write in writes)
            await self._states.advance(self._store.name, newest, complete=False, server=watermark.server)

    async def _move(self, moves: Sequence[Move], watermark: Watermark) -> None:
        moved = await self._explainer.move(moves, watermark.server)
        if {move.key for move in moves} - moved - self._explainer.refused:
            raise UnavailableError(
                f"Cluster {self._store.name}: Postgres was restarted, or another adoption is running. Run the command"
                " again"
            )

    async def _moves(self, found: StorePosition) -> AsyncIterator[list[Move]]:
        store, name = self._store.recording, self._store.name
        for tree in store.trees:
            after = ""
            while nodes := store.nodes(tree, after, _PAGE):
                after = nodes[-1].id
                yield await self._page([(tree.value, node.id) for node in nodes], found)
            after = ""
            while ids := await self._states.present(name, tree.value, after, _PAGE):
                after = ids[-1]
                keys = [(tree.value, entity_id) for entity_id in ids if self._store.get(tree, entity_id) is None]
                yield await self._page(keys, found)

    async def _page(self, keys: Sequence[Key], found: StorePosition) -> list[Move]:
        """Return the moves of entities from the states that the trail explains to those in the mirror."""
        stored = await self._states.known(self._store.name, keys, whole=True) if keys else {}
        moves = []
        for key in keys:
            tree, entity = Tree(key[0]), Entity.from_id(key[1])
            before, node = stored.get(key, ABSENT), self._store.get(tree, key[1])
            if node is not None:
                now = self._explainer.point(tree, node)
                is_same = before == now
            else:
                now = replace(ABSENT, czxid=before.czxid, mzxid=found.revision)
                is_same = not before.present or self._store.recording.unreadable(tree, entity)
            if is_same:
                continue
            gap = Gap(before, now, found.revision, found.time_ms, found.time_ms)
            row = row_of(self._store.name, full_path(tree, entity), gap, node, None)
            owned = self._owners.get(key, before.ownership).keeping(now.content)
            # Versions went back, so their difference counts nothing.
            changes = () if row is None else ({**row, "writes": 1},)
            moves.append(Move(key, stored.get(key), replace(now, ownership=owned), changes))
        return moves
