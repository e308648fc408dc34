"""Adoption: an operator accepts the state of a restored ZooKeeper as it is.

Each entity whose content differs from the last one that the trail explains gets an external change, at the revision and
the time of the adoption. The trail covers the past of the new incarnation from that revision on. The adoption itself is
a change of the cluster, with its principal and its reason.

An interrupted adoption is run again. The difference of an entity is recorded in one transaction with its new state, so
it is recorded once. The store stays rejected until the last step, which writes the new incarnation into ZooKeeper. Each
step is tried again while a store does not answer, for a minute, because all of them take long for a million entities.

The entities are read from ZooKeeper in pages, and not from a mirror: no more than their names is in memory at once.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree, full_path
from confplane.domain.znode_versions import ABSENT, Gap
from confplane.services.changes.edits import ChangeJob
from confplane.services.changes.freeze import checked_reason
from confplane.services.changes.states import decide_state
from confplane.services.ports.cluster_states import Incarnation
from confplane.services.ports.incarnation import IncarnationStore
from confplane.services.ports.recording import Move, RecordedStore
from confplane.services.recorder.explain import Explainer
from confplane.services.recorder.external import row_of
from confplane.services.upkeep.incarnation import restored

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from uuid import UUID

    from confplane.domain.changes import Node
    from confplane.domain.ownership import Ownership
    from confplane.domain.redaction import Redact
    from confplane.services.changes.callers import Caller
    from confplane.services.changes.runner import ChangeRunner
    from confplane.services.ports.incarnation import StorePosition, StorePositions
    from confplane.services.ports.recording import EntityStates, Key, Watermark

T = TypeVar("T")

_PAGE: Final = 500
_USERS: Final = 50
"""Users whose pairs are listed at a time."""
_CALL_S: Final = 30.0
_PATIENCE_S: Final = 60.0
"""Seconds for which a step is tried again while a store does not answer."""
_RETRY_S: Final = 0.5


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
        store: The cluster, started.
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
        trail = await _patiently(lambda: self._positions.read(name))
        found = await _patiently(lambda: store.read_position(_deadline()))
        if restored(trail, found) is None:
            return None
        known = (0 if trail.store is None else trail.store.number, found.incarnation.number if found.incarnation else 0)
        new = Incarnation(max(known) + 1, uuid.uuid4().hex, trail.newest_change, trail.timeline)
        store.begin_incarnation(new.number)
        # Each entity is read at this moment or later; later external writes are recorded as usual.
        differing = await self._record(found)
        await _patiently(lambda: self._positions.adopt(name, new, found))
        if found.version is None:
            await _patiently(lambda: store.write_incarnation(None, None, _deadline()))

        async def accept() -> tuple[UUID | None, int | None]:
            current = replace(caller, deadline=_deadline())
            decide = decide_state(store, Incarnation, lambda _: new, current.deadline)
            ended = await self._runner.run(store, ChangeJob(decide), current)
            return ended.change_id, ended.revision

        return Adoption(new.number, differing, *await _patiently(accept))

    async def _record(self, found: StorePosition) -> int:
        """Explain the state of every entity; return the number of the external changes."""
        name = self._store.name
        watermark = await _patiently(lambda: self._states.watermark(name))
        if watermark is None:
            return 0  # external changes were never recorded
        await self._account(watermark)
        for tree in self._store.recording.trees:
            async for ids in self._listed(tree):
                await self._explain(tree, await self._nodes(tree, ids), found, watermark)
            # The rest of the entities in the trail does not exist.
            after = ""
            while ids := await _patiently(partial(self._states.present, name, tree.value, after, _PAGE)):
                after = ids[-1]
                nodes = await self._nodes(tree, ids)
                absent = {entity_id: None for entity_id, node in nodes.items() if node is None}
                await self._explain(tree, absent, found, watermark)
        return self._explainer.recorded

    async def _account(self, watermark: Watermark) -> None:
        """Advance the states over the changes that ended after the recorder's last round, and then the watermark.

        From then on the trail explains these states. A run that is repeated would apply the changes again to entities
        whose differences are recorded.
        """
        own = await _patiently(lambda: self._explainer.own(watermark.revision, lambda _: True))
        keys = list(own)
        for start in range(0, len(keys), _PAGE):
            page = keys[start : start + _PAGE]

            async def moves(page: Sequence[Key] = page) -> list[Move]:
                stored = await self._states.known(self._store.name, page, whole=True)
                before = {key: stored.get(key, ABSENT) for key in page}
                last = await self._explainer.last_states(before, own)
                return [Move(key, stored.get(key), state) for key, state in last.items() if state != before[key]]

            await self._move(moves, watermark)
        if own:
            newest = max(write.revision for writes in own.values() for write in writes)
            advance = partial(self._states.advance, self._store.name, newest, complete=False, server=watermark.server)
            await _patiently(advance)

    async def _move(self, decided: Callable[[], Awaitable[Sequence[Move]]], watermark: Watermark) -> None:
        """Decide on moves and make them, once more if Postgres does not answer: moves that were made are not decided.

        Raises:
            UnavailableError: The moves were not made.
        """

        async def move() -> bool:
            moves = await decided()
            moved = await self._explainer.move(moves, watermark.server)
            return {each.key for each in moves} <= moved | self._explainer.refused

        if not await _patiently(move):
            raise UnavailableError(
                f"Cluster {self._store.name}: Postgres was restarted, or another adoption is running. Run the command"
                " again"
            )

    async def _listed(self, tree: Tree) -> AsyncIterator[list[str]]:
        """Yield the ids of all entities of a tree in ZooKeeper, some at a time."""
        recording = self._store.recording
        entities = await _patiently(lambda: recording.entities(tree))
        users: list[str] = []
        while ids := list(islice(entities, _PAGE)):
            yield ids
            users += (each for each in ids if each.startswith(f"{EntityType.USER}="))
            while len(users) >= _USERS:
                async for pairs in self._pairs(tree, users[:_USERS]):
                    yield pairs
                del users[:_USERS]
        async for pairs in self._pairs(tree, users):
            yield pairs

    async def _pairs(self, tree: Tree, users: Sequence[str]) -> AsyncIterator[list[str]]:
        pairs = await _patiently(lambda: self._store.recording.pairs(tree, users))
        while ids := list(islice(pairs, _PAGE)):
            yield ids

    async def _nodes(self, tree: Tree, ids: Sequence[str]) -> dict[str, Node | None]:
        """Read entities from ZooKeeper, without those that this service may not read."""
        entities = [Entity.from_id(each) for each in ids]
        nodes = await _patiently(lambda: self._store.read_many(tree, entities, _deadline()))
        return {
            entity_id: node
            for entity_id, node in zip(ids, nodes, strict=True)
            if not isinstance(node, UnavailableError)
        }

    async def _explain(
        self, tree: Tree, nodes: Mapping[str, Node | None], found: StorePosition, watermark: Watermark
    ) -> None:
        """Move entities from the states that the trail explains to those in ZooKeeper."""
        if nodes:
            await self._move(lambda: self._moves(tree, nodes, found), watermark)

    async def _moves(self, tree: Tree, nodes: Mapping[str, Node | None], found: StorePosition) -> list[Move]:
        stored = await self._states.known(self._store.name, [(tree.value, each) for each in nodes], whole=True)
        moves = []
        for entity_id, node in nodes.items():
            key = (tree.value, entity_id)
            before = stored.get(key, ABSENT)
            if node is not None:
                now = self._explainer.point(tree, node)
                is_same = before == now
            else:
                now = replace(ABSENT, czxid=before.czxid, mzxid=found.revision)
                is_same = not before.present
            if is_same:
                continue
            gap = Gap(before, now, found.revision, found.time_ms, found.time_ms)
            row = row_of(self._store.name, full_path(tree, Entity.from_id(entity_id)), gap, node, None)
            owned = self._owners.get(key, before.ownership).keeping(now.content)
            # Versions went back, so their difference counts nothing.
            changes = () if row is None else ({**row, "writes": 1},)
            moves.append(Move(key, stored.get(key), replace(now, ownership=owned), changes))
        return moves


def _deadline() -> float:
    return time.monotonic() + _CALL_S


async def _patiently(step: Callable[[], Awaitable[T]]) -> T:
    """Run a step, again while a store does not answer.

    Raises:
        UnavailableError: A store did not answer for a minute.
    """
    give_up_at = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return await step()
        except UnavailableError:
            if time.monotonic() >= give_up_at:
                raise
        await asyncio.sleep(_RETRY_S)
