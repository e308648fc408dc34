"""The recorder's port to a cluster's store, besides the journal: all nodes in pages, names, absent nodes, markers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import NoNodeError
from typing_extensions import override

from confplane.domain.entities import Entity
from confplane.services.ports.recording import Recording
from confplane.store import znodes
from confplane.store.session.reads import FORBIDDEN, ReadWindow
from confplane.store.session.session_manager import zookeeper_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from uuid import UUID

    from confplane.domain.changes import Node
    from confplane.domain.facets import Tree
    from confplane.services.ports.store import Marker
    from confplane.store.mirror.follower import MirrorFollower
    from confplane.store.session.session_manager import SessionManager
    from confplane.store.write.markers import CommitMarkers
    from confplane.store.write.purge import Purger
    from confplane.store.write.unnotified import UnnotifiedWrites


_CALL_S: Final = 10.0
_LIST_S: Final = 120.0
"""Seconds for a list of names: there may be a million."""


class StoreRecording(Recording):
    """The reads and writes of the recorder, for one cluster."""

    def __init__(
        self,
        name: str,
        session_manager: SessionManager,
        follower: MirrorFollower,
        purger: Purger,
        unnotified: UnnotifiedWrites,
        markers: CommitMarkers,
        *,
        trees: Sequence[Tree],
    ) -> None:
        self._name = name
        self._trees = trees
        self._session_manager = session_manager
        self._follower = follower
        self._purger = purger
        self._unnotified = unnotified
        self._markers = markers

    @property
    @override
    def trees(self) -> Sequence[Tree]:
        return self._trees

    @override
    def nodes(self, tree: Tree, after: str, size: int) -> list[Node]:
        return self._follower.loaded().trees[tree].page(after, size)

    @override
    async def entities(self, tree: Tree) -> Iterator[str]:
        return await self._listed(tree, [f"{tree.value}/{kind}" for kind in znodes.CONFIG_TYPES])

    @override
    async def pairs(self, tree: Tree, users: Sequence[str]) -> Iterator[str]:
        paths = (znodes.path_of(tree, Entity.from_id(user)) for user in users)
        return await self._listed(tree, [f"{path}/clients" for path in paths])

    async def _listed(self, tree: Tree, parents: Sequence[str]) -> Iterator[str]:
        """Return the ids of the entities below these znodes. They are made one by one: there may be a million."""
        session = self._session_manager.current
        found: list[tuple[str, Sequence[str]]] = []

        def taken(paths: Sequence[str], values: Sequence[Any]) -> None:
            found.extend(
                (path, names)
                for path, names in zip(paths, values, strict=True)
                if names is not None and names is not FORBIDDEN
            )

        async with zookeeper_calls(self._name, time.monotonic() + _LIST_S):
            # As in read_many() of the store: within one session a read never precedes an earlier write.
            touched = session.touch()
            reads = ReadWindow(session)
            reads.children(taken).request(parents)
            reads.start()
            await touched
            await reads.done()
        below = len(tree.value) + 1
        ids = (znodes.entity_id(f"{parent[below:]}/{name}") for parent, names in found for name in names)
        return (each for each in ids if each is not None)

    @override
    def unreadable(self, tree: Tree, entity: Entity) -> bool:
        return znodes.path_of(tree, entity) in self._follower.loaded().forbidden

    @override
    async def absent_at(self, tree: Tree, entity: Entity, deadline: float) -> tuple[int, int] | None:
        session = self._session_manager.current
        async with zookeeper_calls(self._name, deadline):
            touched = session.touch()

            def taken(value: Any, error: Exception | None) -> None:
                if error is None or isinstance(error, NoNodeError):
                    self._follower.apply_read(session, tree, entity.path, value)

            reply = session.get(znodes.path_of(tree, entity)).then(taken)
            stat = await touched
            try:
                await reply
            except NoNodeError:
                return stat.mzxid, stat.mtime
            return None

    @override
    def keep_notifications(self, above: int | None, seconds: float) -> None:
        self._purger.keep(above, seconds)

    @override
    async def markers(self) -> list[UUID]:
        change_ids, _ = await self._markers.found(time.monotonic() + _CALL_S)
        return change_ids

    @override
    async def commits(self, change_ids: Sequence[UUID]) -> list[Marker]:
        return await self._markers.commits(change_ids, time.monotonic() + _CALL_S)

    @override
    async def notify_unnotified(self, held: Callable[[], bool]) -> int:
        return await self._unnotified.notify(held)

    @override
    async def notify_deletions(self, tree: Tree, entities: Sequence[Entity], held: Callable[[], bool]) -> int:
        return await self._unnotified.notify_deletions(tree, entities, held)
