"""The recorder's port to a cluster's store, besides the journal: all nodes in pages, absent nodes, markers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import NoNodeError

from confplane.store import znodes
from confplane.store.session.session_manager import zookeeper_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.domain.facets import Tree
    from confplane.services.ports.store import Marker
    from confplane.store.mirror.follower import MirrorFollower
    from confplane.store.session.session_manager import SessionManager
    from confplane.store.write.markers import CommitMarkers
    from confplane.store.write.purge import Purger
    from confplane.store.write.unnotified import UnnotifiedWrites


_CALL_S: Final = 10.0


class StoreRecording:
    """Implementation of :class:`confplane.services.recorder.ports.Recording`."""

    def __init__(
        self,
        name: str,
        session_manager: SessionManager,
        follower: MirrorFollower,
        purger: Purger,
        unnotified: UnnotifiedWrites,
        markers: CommitMarkers,
    ) -> None:
        self._name = name
        self._session_manager = session_manager
        self._follower = follower
        self._purger = purger
        self._unnotified = unnotified
        self._markers = markers

    @property
    def trees(self) -> Sequence[Tree]:
        """The trees of the mirror."""
        return tuple(self._follower.loaded().trees)

    def nodes(self, tree: Tree, after: str, size: int) -> list[Node]:
        """Return nodes of a tree in the order of their ids."""
        return self._follower.loaded().trees[tree].page(after, size)

    def unreadable(self, tree: Tree, entity: Entity) -> bool:
        """Return True if a node exists that this service may not read."""
        return znodes.path_of(tree, entity) in self._follower.loaded().forbidden

    async def absent_at(self, tree: Tree, entity: Entity, deadline: float) -> tuple[int, int] | None:
        """Return a revision at which ZooKeeper has no node for an entity."""
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

    def keep_notifications(self, above: int | None, seconds: float) -> None:
        """Have the purge keep notifications."""
        self._purger.keep(above, seconds)

    async def markers(self) -> list[UUID]:
        """Return the changes that have markers."""
        change_ids, _ = await self._markers.found(time.monotonic() + _CALL_S)
        return change_ids

    async def commits(self, change_ids: Sequence[UUID]) -> list[Marker]:
        """Read the markers of commits."""
        return await self._markers.commits(change_ids, time.monotonic() + _CALL_S)

    async def notify_unnotified(self, held: Callable[[], bool]) -> int:
        """Write the notifications that are missing."""
        return await self._unnotified.notify(held)
