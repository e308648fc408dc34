"""Explanations: the steps of entities from the states that the trail explains to the states seen.

Versions explained by this service's changes advance the state; any gap is recorded as an external change. An entity
with an open change of this service waits until that change is settled.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree, full_path
from confplane.domain.znode_versions import ABSENT, Point, explained, gaps, ownership_after, state_after
from confplane.services.ports.recording import Move, RefusedError, UnexplainedNode
from confplane.services.ports.trail import EXTERNAL
from confplane.services.recorder import recover
from confplane.services.recorder.external import row_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from confplane.domain.changes import Node
    from confplane.domain.redaction import Redact
    from confplane.domain.znode_versions import OwnWrite
    from confplane.services.ports.recording import EntityStates, Key, RecordedStore, Watermark

logger = logging.getLogger(__name__)

BATCH: Final = 500
_BATCH_BYTES: Final = 2_000_000
_CALL_S: Final = 10.0
_CONCURRENCY: Final = 64


class Explainer:
    """Explains the versions of one cluster.

    Args:
        store: The cluster.
        states: The trail.
        redact: The redaction of znodes for the trail.
        margin_s: Seconds before the writing of the watermark at which an unsettled change may have begun.

    Attributes:
        pending: Nodes that are not explained yet.
        refused: Entities whose states Postgres can't take.
        recorded: Number of external changes recorded since the start.
        lost: The search for changes of this service that the trail has lost.
    """

    def __init__(self, store: RecordedStore, states: EntityStates, redact: Redact, *, margin_s: float) -> None:
        self.pending: dict[Key, UnexplainedNode] = {}
        self.refused: set[Key] = set()
        self.recorded = 0
        self._store = store
        self._states = states
        self._redact = redact
        self._margin_s = margin_s
        self.lost = recover.LostChanges(store, states, seconds=margin_s)

    def add(self, key: Key, seen: UnexplainedNode) -> None:
        """Add a node to explain; of several nodes of one entity the last counts, with the past of the first."""
        waiting = self.pending.get(key)
        if key not in self.refused:
            self.pending[key] = seen if waiting is None else replace(seen, old=waiting.old)

    def check_leading(self) -> None:
        """Stop the work if another process may be the leader by now.

        Raises:
            UnavailableError: Another process may lead.
        """
        if not self._store.leadership.held:
            raise UnavailableError(f"Cluster {self._store.name}: another process may lead now")

    async def explain(self, watermark: Watermark) -> bool:
        """Explain the pending nodes; return True if none are left.

        Args:
            watermark: The states include changes of this service up to it. All writes go to its run of Postgres.

        Raises:
            UnavailableError: A store is unavailable; unfinished nodes stay pending.
        """
        if not self.pending:
            return True
        own = await self.own(watermark.revision, self.pending.__contains__)
        seen = sorted(self.pending.items(), key=lambda item: item[1].mzxid)
        for start in range(0, len(seen), BATCH):
            self.check_leading()
            await self._batch(dict(seen[start : start + BATCH]), own, watermark)
        return not self.pending

    async def own(self, watermark: int, wanted: Callable[[Key], bool]) -> dict[Key, list[OwnWrite]]:
        """Return changes of this service above a revision, by the entities that they wrote.

        Args:
            watermark: The revision.
            wanted: Selects the entities. After a long time without a recorder there are many changes, and few of them
            matter.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        found: dict[Key, list[OwnWrite]] = {}
        above: int | None = watermark
        while above is not None:
            rows, above = await self._states.own(self._store.name, above)
            for entity_id, path, write in rows:
                key = (_tree_of(path), entity_id)
                if self._followed(path) and wanted(key):
                    found.setdefault(key, []).append(write)
        return found

    async def last_states(self, states: Mapping[Key, Point], own: Mapping[Key, list[OwnWrite]]) -> dict[Key, Point]:
        """Return the last states that the trail explains: those after the last changes of this service.

        Args:
            states: The recorder's states of entities, absent ones included.
            own: Changes of this service after these, from :meth:`own`.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        contents = await self._contents([key for key in states if key in own], own)
        return {
            key: state_after(state, _of_path(own.get(key, ()), contents, _path(key))) for key, state in states.items()
        }

    async def ours(self, watermark: int, wanted: Callable[[Key], bool]) -> set[Key]:
        """Return entities that changes of this service wrote above a revision, and that open ones may have written.

        Args:
            watermark: The revision.
            wanted: Which entities.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        writes = await self._states.open(self._store.name, None, self._margin_s)
        found = {(_tree_of(write.path), write.entity_id) for write in writes if self._followed(write.path)}
        return set(filter(wanted, found)).union(await self.own(watermark, wanted))

    def _followed(self, path: str) -> bool:
        return any(path.startswith(f"{tree.value}/") for tree in self._store.recording.trees)

    async def _parents(self, missing: Mapping[Key, set[int]]) -> dict[Key, list[OwnWrite]]:
        """Return the creations of users' znodes by changes of this service that created pairs below them.

        Args:
            missing: By user, the czxids of znodes that no known change of this service created.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        revisions = sorted(set().union(*missing.values()))
        found: dict[Key, dict[int, OwnWrite]] = {}
        for entity_id, path, write in await self._states.own_at(self._store.name, revisions) if revisions else ():
            user = _parent((_tree_of(path), entity_id))
            if user is not None and write.revision in missing.get(user, ()):
                # One transaction has one author.
                found.setdefault(user, {})[write.revision] = replace(
                    write, version_read=None, czxid=None, version=0, claim=None
                )
        return {user: list(writes.values()) for user, writes in found.items()}

    async def _batch(
        self, batch: dict[Key, UnexplainedNode], own: Mapping[Key, list[OwnWrite]], watermark: Watermark
    ) -> None:
        states = await self._states.known(self._store.name, list(batch), whole=False)
        moves: dict[Key, Move] = {}
        unexplained: dict[Key, UnexplainedNode] = {}
        owned: list[Key] = []
        for key, seen in batch.items():
            state, writes = states.get(key), own.get(key, ())
            start = state or ABSENT
            if _known(state, seen):
                del self.pending[key]
            elif _absent_again(start, writes, seen):
                # An open change of this service may still turn out to have created it in the meantime.
                unexplained[key] = seen
            elif explained(start, writes, seen.shape) or _only_a_parent(start, writes, seen):
                moves[key] = Move(key, state, self._end(key, seen, start, writes))
                if start.ownership.owners or any(write.claim is not None for write in writes):
                    owned.append(key)
            else:
                unexplained[key] = seen
        if owned:
            contents = await self._contents(owned, own)
            for key in owned:
                move = moves[key]
                writes = _of_path(own.get(key, ()), contents, _path(key))
                moves[key] = replace(move, after=_owned(move.before or ABSENT, writes, move.after))
        if unexplained:
            moves.update(await self._moves(unexplained, watermark))
        moved = await self.move(list(moves.values()), watermark.server)
        for key in moved:
            self.pending.pop(key, None)

    async def _moves(self, unexplained: dict[Key, UnexplainedNode], watermark: Watermark) -> dict[Key, Move]:
        """Return the moves of entities to states that no known change of this service explains."""
        name = self._store.name
        unexplained = await self._confirmed(unexplained)
        if not unexplained:
            return {}
        # Open changes first: a change concluded in between is then found among those with an outcome.
        ids = list({entity_id for _, entity_id in unexplained})
        waiting, parents = set(), set()
        for write in await self._states.open(name, ids, self._margin_s):
            named = (_tree_of(write.path), write.entity_id)
            waiting.add(named)
            if write.creates:
                parents.add(_parent(named))
        own = await self.own(watermark.revision, self.pending.__contains__)
        lost = await self.lost.found(max(seen.mzxid for seen in unexplained.values()))
        whole = await self._states.known(name, list(unexplained), whole=True)
        contents = await self._contents(unexplained, own)
        made = await self._parents(
            {
                key: _unclaimed(seen, own.get(key, ())) - {whole.get(key, ABSENT).czxid}
                for key, seen in unexplained.items()
                if key[1].startswith(EntityType.USER)
            }
        )
        moves: dict[Key, Move] = {}
        for key, seen in unexplained.items():
            path = _path(key)
            writes = _of_path(own.get(key, ()), contents, path)
            state = whole.get(key)
            start = state or ABSENT
            end = self._end(key, seen, start, writes)
            absent_again = _absent_again(start, writes, seen)
            if _known(state, seen) or (absent_again and key not in waiting):
                self.pending.pop(key, None)
                continue
            markers = recover.by_revision(lost, path)
            writes += made.get(key, ())
            writes += recover.parents(lost, path, _unclaimed(seen, writes))
            again = recover.as_writes(path, markers.values(), start, writes, end) if markers else []
            writes += again
            found_gaps = gaps(start, writes, end, seen.time_ms)
            open_parent = key in parents and not _unclaimed(seen, writes) <= {start.czxid}
            if absent_again or (found_gaps and (key in waiting or open_parent)):
                continue
            hidden = _hidden_keys(start, seen) if len(found_gaps) == 1 and not writes else None
            found = (row_of(name, path, gap, seen.node, hidden) for gap in found_gaps)
            rows = [row for row in found if row is not None]
            rows += [recover.row_of(path, markers[write.revision], write) for write in again]
            moves[key] = Move(key, state, _owned(start, writes, end), tuple(rows))
        return moves

    async def _contents(
        self, keys: Iterable[Key], own: Mapping[Key, Sequence[OwnWrite]]
    ) -> Mapping[tuple[int, str], tuple[Any, Any]]:
        """Return the contents that changes of this service saw and left, by their revisions and paths."""
        revisions = {write.revision for key in keys for write in own.get(key, ())}
        return await self._states.contents(self._store.name, sorted(revisions)) if revisions else {}

    async def _confirmed(self, unexplained: dict[Key, UnexplainedNode]) -> dict[Key, UnexplainedNode]:
        """Ask ZooKeeper about entities that this mirror lacks: another process's mirror may have had more."""
        slots = asyncio.Semaphore(_CONCURRENCY)

        async def one(key: Key, seen: UnexplainedNode) -> tuple[Key, UnexplainedNode] | None:
            tree, entity = Tree(key[0]), Entity.from_id(key[1])
            if seen.node is not None:
                return key, seen
            if self._store.recording.unreadable(tree, entity):
                self.pending.pop(key, None)
                return None
            async with slots:
                absent = await self._store.recording.absent_at(tree, entity, time.monotonic() + _CALL_S)
            if absent is None:
                # The entity has a node, which is in the mirror by now.
                self.pending[key] = replace(seen, node=self._store.get(tree, key[1]))
                return None
            self.pending[key] = UnexplainedNode(None, absent[0], seen.old, absent[1])
            return key, self.pending[key]

        found = await asyncio.gather(*(one(key, seen) for key, seen in unexplained.items()))
        return dict(each for each in found if each is not None)

    async def move(self, moves: Sequence[Move], server: str) -> set[Key]:
        """Write moves in batches; return the entities moved. If Postgres refuses a move, the other moves are written.

        Args:
            moves: The moves.
            server: The run of Postgres that they were read from; nothing is written to another run.
        """
        moved: set[Key] = set()
        for piece in _pieces(moves):
            parts = [piece]
            while parts:
                part = parts.pop()
                try:
                    written = await self._states.move(
                        self._store.name, part, server=server, incarnation=self._store.incarnation
                    )
                except RefusedError as error:
                    if len(part) > 1:
                        middle = len(part) // 2
                        parts += [part[middle:], part[:middle]]
                        continue
                    logger.error(  # noqa: TRY400 - the traceback would add nothing
                        "Cluster %s: Postgres refused the state of %s: %s", self._store.name, part[0].key[1], error
                    )
                    self.refused.add(part[0].key)
                    self.pending.pop(part[0].key, None)
                else:
                    moved |= written
                    self.recorded += sum(
                        change["kind"] == EXTERNAL for each in part if each.key in written for change in each.changes
                    )
        return moved

    def _end(self, key: Key, seen: UnexplainedNode, start: Point, own: Sequence[OwnWrite]) -> Point:
        if seen.node is None:
            # The czxid distinguishes changes made before the deletion from changes that create the node again.
            made = [write.revision if write.version_read is None else write.czxid or 0 for write in own]
            return replace(seen.shape, czxid=max(start.czxid, *(each for each in made if each <= seen.revision), 0))
        return self.point(Tree(key[0]), seen.node)

    def point(self, tree: Tree, node: Node) -> Point:
        """Return a node as a state, with its redacted content."""
        content = self._redact(tree, node.id, node.config)
        return Point(present=True, czxid=node.czxid, version=node.version, mzxid=node.mzxid, content=content)


def _known(state: Point | None, seen: UnexplainedNode) -> bool:
    """Return True if the trail explains the state seen, or a later one."""
    return state is not None and (seen.mzxid <= state.mzxid or (state.present and state.same(seen.shape)))


def _absent_again(start: Point, own: Sequence[OwnWrite], seen: UnexplainedNode) -> bool:
    """Return True if an entity is still absent, and none of these changes was made in the meantime."""
    meanwhile = any(start.mzxid < write.revision <= seen.mzxid for write in own)
    return not start.present and seen.node is None and not meanwhile


def _only_a_parent(start: Point, own: Sequence[OwnWrite], seen: UnexplainedNode) -> bool:
    """Return True for a new node without content: mostly the parent of another node, made with it."""
    node = seen.node
    return not start.present and not own and node is not None and not node.items and node.defect is None


def _parent(key: Key) -> Key | None:
    """Return the user of a pair; None for any other entity."""
    user, comma, _ = key[1].partition(",")
    return (key[0], user) if comma else None


def _znodes(seen: UnexplainedNode, own: Sequence[OwnWrite]) -> set[int]:
    """Return the czxids of an entity's znodes, as seen by the mirror and by changes of this service."""
    found = {write.czxid for write in own if write.czxid is not None}
    return found if seen.node is None else found | {seen.node.czxid}


def _unclaimed(seen: UnexplainedNode, own: Sequence[OwnWrite]) -> set[int]:
    """Return the czxids of the entity's znodes that none of these changes created."""
    return _znodes(seen, own) - {write.revision for write in own}


def _path(key: Key) -> str:
    return full_path(Tree(key[0]), Entity.from_id(key[1]))


def _owned(start: Point, writes: Sequence[OwnWrite], end: Point) -> Point:
    """Return a state with the owners of its keys."""
    return replace(end, ownership=ownership_after(start, writes, end))


def _of_path(
    writes: Iterable[OwnWrite], contents: Mapping[tuple[int, str], tuple[Any, Any]], path: str
) -> list[OwnWrite]:
    return [_with_contents(write, contents.get((write.revision, path))) for write in writes]


def _with_contents(write: OwnWrite, contents: tuple[Any, Any] | None) -> OwnWrite:
    if contents is None:
        return write
    before, after = contents
    return replace(write, before=before, after=after)


def _hidden_keys(start: Point, seen: UnexplainedNode) -> frozenset[str] | None:
    """Return the keys whose values differ, secrets included, if the earlier content is known in full."""
    old, node = seen.old, seen.node
    if old is None or node is None or (old.czxid, old.version) != (start.czxid, start.version):
        return None
    before, after = old.config, node.config
    return frozenset(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def _tree_of(path: str) -> str:
    within = path.startswith(f"{Tree.CLIENT_CONFIGS.value}/")
    return Tree.CLIENT_CONFIGS.value if within else Tree.CONFIG.value


def _pieces(moves: Iterable[Move]) -> Iterable[list[Move]]:
    """Cut moves into pieces of one statement each."""
    piece: list[Move] = []
    size = 0
    for move in moves:
        length = sum(len(key) + len(value or "") + 8 for key, value in move.after.content.items()) + 200
        length *= 1 + 3 * len(move.changes)
        if piece and (len(piece) == BATCH or size + length > _BATCH_BYTES):
            yield piece
            piece, size = [], 0
        piece.append(move)
        size += length
    if piece:
        yield piece
