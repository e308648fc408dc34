"""Writes without a notification: found by a walk over all znodes, and notified.

A write without a notification reaches no broker and no mirror. The walk compares the Stats of all znodes with the
mirror. A node that has differed for a minute gets the missing notification, which gives the write its place in the
order; all else follows from the notification, here as in every other process.

The mirror of this process may have such a write all the same: it was loaded, or a caller's read found it. So nodes that
were written within the last minutes are compared with the notifications that there are. A deletion is not in the mirror
then: the recorder finds it by its states, and has it notified.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import NoNodeError, ZookeeperError

from confplane.domain.entities import DEFAULT_NODE, EntityType
from confplane.store import znodes
from confplane.store.session.reads import FORBIDDEN, ReadWindow, SizeEstimate, Window
from confplane.store.session.session import unavailable
from confplane.store.session.session_manager import zookeeper_calls
from confplane.store.write.purge import EXPIRATION_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.domain.facets import Tree
    from confplane.store.mirror.follower import MirrorFollower
    from confplane.store.mirror.nodes import Mirror
    from confplane.store.session.session import Session
    from confplane.store.session.session_manager import SessionManager
    from confplane.store.write.guard import Guard

UNNOTIFIED_AGE_S = 60.0
"""Seconds that a write may be without its notification: its author may be about to write it."""
_NOTIFIED_MS: Final = EXPIRATION_MS * 9 // 10
"""The age of a write up to which its notification is still there. Brokers remove notifications too, at the same age."""
_PLURALS: Final = {kind.value: kind.plural for kind in EntityType}
_PAGE: Final = 200
_PAUSE_S: Final = 0.1
"""Seconds of pause after each page: a walk over a million znodes takes some ten minutes, and nothing waits for it."""
LONG_WALK_S: Final = 60.0
"""Seconds after which a walk also ends with a look for recent writes: they could be too old for the next walk."""
_CALL_S: Final = 30.0
_MOST: Final = 1_000
"""The greatest number of notifications written in one walk."""


_Suspects = dict["tuple[Tree, str]", int | None]
"""Trees and paths that may lack a notification. Of a node that the mirror has, with the zxid of the write."""


class UnnotifiedWrites:
    """Finds one cluster's writes without a notification, and writes the missing notifications."""

    def __init__(
        self,
        name: str,
        session_manager: SessionManager,
        follower: MirrorFollower,
        guard: Guard,
        *,
        notifications_max: int,
    ) -> None:
        self._name = name
        self._session_manager = session_manager
        self._follower = follower
        self._guard = guard
        self._max = notifications_max
        self._absent: dict[str, float] = {}
        self._size = SizeEstimate()

    async def notify(self, held: Callable[[], bool]) -> int:
        """Read all znodes, and write the missing notifications; return their number.

        Args:
            held: Returns True while this process leads.

        Raises:
            UnavailableError: This process no longer leads, or ZooKeeper is away; written notifications stay.
        """
        suspects: _Suspects = {}
        began = time.monotonic()
        try:
            await self._find_unnotified(suspects, held)
            for tree in self._follower.loaded().trees:
                await self._compare_tree(tree, suspects, held)
            # A walk over a million znodes takes as long as the pause between two of them.
            if time.monotonic() - began >= LONG_WALK_S:
                await self._find_unnotified(suspects, held)
        except ZookeeperError as error:
            raise unavailable(f"Cluster {self._name}: ZooKeeper answered {type(error).__name__}") from None
        overdue = await self._overdue(suspects) if suspects else []
        paths = {path for _, path in suspects}
        self._absent = {path: since for path, since in self._absent.items() if path in paths}
        return await self._notify_all([path for _, path in overdue], held)

    async def notify_deletions(self, tree: Tree, entities: Sequence[Entity], held: Callable[[], bool]) -> int:
        """Write notifications of entities whose znodes were deleted, except for topics; return their number.

        Brokers and mirrors learn of deleted topics without one.

        Raises:
            UnavailableError: As for :meth:`notify`.
        """
        gone = []
        for path in [entity.path for entity in entities if entity.types[0] is not EntityType.TOPIC]:
            async with zookeeper_calls(self._name, time.monotonic() + _CALL_S):
                if await self._session(held).exists(f"{tree.value}/{path}") is None:
                    gone.append(path)
        return await self._notify_all(gone, held)

    async def _notify_all(self, paths: Iterable[str], held: Callable[[], bool]) -> int:
        written = 0
        for path in dict.fromkeys(paths):
            full = self._guard.brokers and self._follower.notifications >= self._max
            if not held() or written == _MOST or full:
                break
            await self._notify(path)
            written += 1
        return written

    async def _find_unnotified(self, suspects: _Suspects, held: Callable[[], bool]) -> None:
        """Find recent writes that the mirror has, and that no notification names."""
        now_ms = (await self._session(held).touch()).mtime
        recent: dict[tuple[Tree, str], int] = {}
        for tree, entities in self._follower.loaded().trees.items():
            after = ""
            while nodes := entities.page(after, _PAGE):
                after = nodes[-1].id
                for node in nodes:
                    if UNNOTIFIED_AGE_S * 1000 <= now_ms - node.mtime_ms <= _NOTIFIED_MS and _needs_notification(node):
                        recent[tree, _path_of_id(node.id)] = node.mzxid
                await asyncio.sleep(0)
        if recent:
            notified = await self._notified(self._session(held))
            suspects |= {key: mzxid for key, mzxid in recent.items() if notified.get(key[1], 0) < mzxid}

    async def _notified(self, session: Session) -> dict[str, int]:
        """Return the paths that notifications name, each with the zxid of the last one."""
        names, _ = await session.children(znodes.CHANGES)
        found: dict[str, int] = {}

        def take(_paths: Sequence[str], values: Sequence[Any]) -> None:
            for value in values:
                if value is not None and value is not FORBIDDEN:
                    data, (czxid, *_) = value  # a Stat begins with the czxid
                    path = znodes.decode_notification(data)
                    if path is not None:
                        found[path] = max(czxid, found.get(path, 0))

        reads = ReadWindow(session)
        reads.data(take, self._size).request([f"{znodes.CHANGES}/{name}" for name in names])
        await reads.done()
        return found

    async def _compare_tree(self, tree: Tree, suspects: _Suspects, held: Callable[[], bool]) -> None:
        """Compare a tree's Stats with the mirror's, in pages."""
        walk = _Walk(tree, self._follower.loaded(), suspects)
        for kind in znodes.CONFIG_TYPES:
            walk.list(self._session(held), kind)
        await walk.done()
        after = ""
        while nodes := self._follower.loaded().trees[tree].page(after, _PAGE):
            after = nodes[-1].id
            for node in nodes:
                walk.compare(self._session(held), node.id)
            await walk.done()
            await self._list_clients(walk, held)
            await asyncio.sleep(_PAUSE_S)
        await self._list_clients(walk, held)

    async def _list_clients(self, walk: _Walk, held: Callable[[], bool]) -> None:
        while walk.users:
            for path in walk.users[:_PAGE]:
                walk.list(self._session(held), f"{path}/clients")
            del walk.users[:_PAGE]
            await walk.done()

    def _session(self, held: Callable[[], bool]) -> Session:
        if not held():
            raise unavailable(f"Cluster {self._name}: another process may lead now")
        return self._session_manager.current

    async def _overdue(self, suspects: _Suspects) -> list[tuple[Tree, str]]:
        """Return the suspects without a notification, and those that still differ from the mirror after it caught up.

        Only those that have been so for long enough.
        """
        await self._follower.catch_up(time.monotonic() + _CALL_S)
        session = self._session_manager.current
        found: list[tuple[int, Tree, str]] = []
        async with zookeeper_calls(self._name, time.monotonic() + _CALL_S):
            now_ms = (await session.touch()).mtime
        for (tree, path), unnotified in suspects.items():
            full, entity_id = f"{tree.value}/{path}", znodes.entity_id(path)
            if entity_id is None or full in self._follower.loaded().forbidden:
                continue
            async with zookeeper_calls(self._name, time.monotonic() + _CALL_S):
                stat = await session.exists(full)
            as_found = stat is not None and stat.mzxid == unnotified
            if not as_found and not _differs(self._follower.loaded(), tree, entity_id, stat):
                continue
            if stat is None:
                since = self._absent.setdefault(path, time.monotonic())
                if time.monotonic() - since >= UNNOTIFIED_AGE_S:
                    found.append((0, tree, path))
            elif now_ms - stat.mtime >= UNNOTIFIED_AGE_S * 1000:
                found.append((stat.mzxid, tree, path))
        return [(tree, path) for _, tree, path in sorted(found)]

    async def _notify(self, path: str) -> None:
        session = self._session_manager.current
        async with zookeeper_calls(self._name, time.monotonic() + _CALL_S):
            results = await session.multi(
                [
                    ("set", znodes.writer_path(session.writer), b"", -1),
                    ("sequence", znodes.CHANGE_PREFIX, znodes.encode_notification(path)),
                ]
            )
            for result in results:
                if isinstance(result, NoNodeError):
                    self._session_manager.replace(session)
                if isinstance(result, Exception):
                    raise unavailable(f"Cluster {self._name}: ZooKeeper refused a notification")


class _Walk:
    """One walk over one tree.

    Attributes:
        users: Paths of users that may have client-ids to be listed.
    """

    def __init__(self, tree: Tree, mirror: Mirror, suspects: _Suspects) -> None:
        self.users: list[str] = []
        self._tree = tree
        self._mirror = mirror
        self._suspects = suspects
        self._window = Window()

    async def done(self) -> None:
        """Wait for all requested reads."""
        await self._window.done()

    def list(self, session: Session, parent: str) -> None:
        """Look for children that the mirror lacks."""

        def take(value: Any) -> None:
            for name in () if value is None or value is FORBIDDEN else value[0]:
                path = f"{parent}/{name}"
                entity_id = znodes.entity_id(path)
                if entity_id is not None and entity_id not in self._mirror.trees[self._tree].nodes:
                    self._suspects.setdefault((self._tree, path))
                    if parent == "users":
                        self.users.append(path)

        self._window.add(session.children(f"{self._tree.value}/{parent}"), take)

    def compare(self, session: Session, entity_id: str) -> None:
        """Compare an entity that the mirror has."""
        path = _path_of_id(entity_id)

        def take(stat: Any) -> None:
            if stat is FORBIDDEN:
                return
            if _differs(self._mirror, self._tree, entity_id, stat):
                self._suspects.setdefault((self._tree, path))
            if stat is not None and stat.numChildren and path.startswith("users/") and path.count("/") == 1:
                self.users.append(path)

        self._window.add(session.exists(f"{self._tree.value}/{path}"), take)


def _needs_notification(node: Node) -> bool:
    """Return False for a new topic, which brokers create without one, and for a new parent of another node."""
    return node.mzxid != node.czxid or bool(node.items and not node.id.startswith(f"{EntityType.TOPIC.value}="))


def _differs(mirror: Mirror, tree: Tree, entity_id: str, stat: Any) -> bool:
    node = mirror.trees[tree].nodes.get(entity_id)
    if node is None:
        return stat is not None
    return stat is None or stat.mzxid > node.mzxid


def _path_of_id(entity_id: str) -> str:
    """Return the path of an id that is known to be canonical, without parsing it further."""
    parts = []
    for part in entity_id.split(","):
        kind, separator, name = part.partition("=")
        parts.append(f"{_PLURALS[kind]}/{name.replace('~', '%') if separator else DEFAULT_NODE}")
    return "/".join(parts)
