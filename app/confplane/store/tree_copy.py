"""The znodes of one cluster as a backup copies them, and as a restore writes them.

A walk over all znodes takes seconds, and shows each znode at another revision. So a persistent watch records the path
of each change from before the walk on. Afterwards the changed znodes are read again, together, until no change was
reported during such a read: ZooKeeper sends the event of a change before any reply that shows the change, so all copies
are then of the revision of the last reply. Each of these reads concerns only the changes during the one before. So they
get shorter, down to a single request.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, Self

from kazoo.exceptions import NoNodeError, ZookeeperError
from typing_extensions import override

from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree
from confplane.services.ports.backups import CopyPosition, TreeCopy, ZnodeCopy, ZnodeWrite
from confplane.store import znodes
from confplane.store.mirror import loader
from confplane.store.session.reads import FORBIDDEN, ReadWindow
from confplane.store.session.session import unavailable
from confplane.store.session.session_manager import SessionManager, split_connect_string, zookeeper_calls
from confplane.store.write.markers import CommitMarkers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from uuid import UUID

    from confplane.services.ports.store import Marker
    from confplane.store.session.access import ZooKeeperAccess
    from confplane.store.session.persistent_watch import RecordedEvents
    from confplane.store.session.reads import ReadQueue
    from confplane.store.session.session import Session

    Take = Callable[[list[ZnodeCopy]], None]

_ROOTS: Final = ("/config", znodes.CONFPLANE)
_LEFT_OUT: Final = frozenset({znodes.LEADER, znodes.INCARNATION})
"""Znodes that describe the running processes, or the store itself."""
_WITHOUT_CHILDREN: Final = frozenset({znodes.CHANGES, znodes.COMMITS, znodes.WRITERS})
"""Parents of notifications, markers and sessions. What they say about changes is in the trail."""
_MZXID, _VERSION, _EPHEMERAL_OWNER, _CHILDREN = 1, 4, 7, 9
"""Fields of a Stat; the first is the czxid."""
_PIECE: Final = 500
_CALL_S: Final = 30.0
_CATCH_UP_S: Final = 120.0
_CONNECT_S: Final = 30.0
_BATCH: Final = 100
_BATCH_BYTES: Final = 256 * 2**10


class ZooKeeperTreeCopy(TreeCopy):
    """The znodes of a cluster, read and written on a session of its own.

    Args:
        name: The cluster.
        connect: ZooKeeper's connect string.
        session_timeout_ms: The session timeout to request.
        access: The session's credentials, and the ACLs of its nodes.
    """

    def __init__(self, name: str, connect: str, session_timeout_ms: int, access: ZooKeeperAccess) -> None:
        hosts, chroot = split_connect_string(connect)
        self._name = name
        self._ready = asyncio.Event()
        self._session_manager = SessionManager(
            hosts,
            chroot,
            session_timeout_ms,
            access=access,
            name=name,
            on_ready=lambda _session: self._ready.set(),
            on_down=self._down,
        )
        self._events: RecordedEvents | None = None
        self._lost = False
        self._forbidden: set[str] = set()

    async def __aenter__(self) -> Self:
        self._session_manager.start()
        try:
            async with asyncio.timeout(_CONNECT_S):
                await self._ready.wait()
        except TimeoutError:
            await self._session_manager.stop()
            raise unavailable(f"Cluster {self._name}: ZooKeeper did not answer in time") from None
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session_manager.stop()

    def _down(self) -> None:
        self._lost = True

    @property
    @override
    def name(self) -> str:
        return self._name

    @property
    @override
    def unreadable(self) -> int:
        return len(self._forbidden)

    # -- reading

    @override
    async def read(self, take: Take) -> None:
        session = self._session
        self._lost = False
        try:
            async with asyncio.timeout(_CALL_S):
                self._events = await session.record_events(_ROOTS)
                # A server that lags would show an earlier state.
                await session.sync()
            await _TreeWalk(session, take, self._forbidden).run()
        except TimeoutError:
            raise unavailable(f"Cluster {self._name}: ZooKeeper did not answer in time") from None
        except ZookeeperError as error:
            raise unavailable(f"Cluster {self._name}: ZooKeeper answered {type(error).__name__}") from None
        self._check()

    @override
    async def catch_up(self, take: Take) -> CopyPosition:
        session, events = self._session, self._events
        if events is None:
            raise RuntimeError("read() comes first")
        deadline = time.monotonic() + _CATCH_UP_S
        async with zookeeper_calls(self._name, deadline):
            paths = {path for path in events.drain() if is_kept(path)}
            while True:
                # At least one read, whose reply has a revision.
                found = await self._reread(session, paths | {_ROOTS[0]})
                revision = session.zxid
                self._check()
                take([each for each in found if each.path in paths])
                paths = {path for path in events.drain() if is_kept(path)}
                if not paths:
                    stat = await session.touch()
                    return CopyPosition(revision, stat.mtime)

    async def _reread(self, session: Session, paths: set[str]) -> list[ZnodeCopy]:
        found: list[ZnodeCopy] = []

        def taken(paths: Sequence[str], values: Sequence[Any]) -> None:
            found.extend(self._copies(paths, values))

        reads = ReadWindow(session)
        reads.data(taken).request(sorted(paths))
        await reads.done()
        return found

    def _copies(self, paths: Sequence[str], values: Sequence[Any]) -> Iterator[ZnodeCopy]:
        for path, value in zip(paths, values, strict=True):
            if value is FORBIDDEN:
                self._forbidden.add(path)
            else:
                yield _copy(path, value)

    @override
    async def committed(self, change_ids: Sequence[UUID]) -> list[Marker]:
        markers = CommitMarkers(self._name, self._session_manager)
        return await markers.commits(change_ids, time.monotonic() + _CALL_S)

    @override
    async def processes(self) -> int:
        return len(await self._children(znodes.WRITERS)) - 1

    @override
    async def brokers(self) -> int:
        return len(await self._children(znodes.BROKER_IDS))

    async def _children(self, path: str) -> list[str]:
        async with zookeeper_calls(self._name, time.monotonic() + _CALL_S):
            try:
                names, _ = await self._session.children(path)
            except NoNodeError:
                return []
        return list(names)

    @property
    def _session(self) -> Session:
        return self._session_manager.current

    def _check(self) -> None:
        """Check that no event was missed.

        Raises:
            UnavailableError: The connection was lost.
        """
        if self._lost or not self._session_manager.connected:
            raise UnavailableError(f"Cluster {self._name}: the connection to ZooKeeper was lost. Run the command again")

    # -- writing

    @override
    async def write(self, writes: Sequence[ZnodeWrite], announced: Sequence[str]) -> None:
        due = set(announced)
        for batch in _batches(_operations(each, announced=each.path in due) for each in writes):
            async with zookeeper_calls(self._name, time.monotonic() + _CALL_S):
                results = await self._session.multi(batch)
            refused = [each for each in results if isinstance(each, Exception)]
            if refused:
                raise unavailable(
                    f"Cluster {self._name}: ZooKeeper refused a write ({type(refused[-1]).__name__}), because a znode"
                    " was changed concurrently. Stop all other writers, and run the command again"
                )

    @override
    async def begin_restore(self) -> None:
        markers = [f"{znodes.COMMITS}/{name}" for name in await self._children(znodes.COMMITS)]
        paths = [znodes.INCARNATION, *markers]
        for start in range(0, len(paths), _BATCH):
            async with zookeeper_calls(self._name, time.monotonic() + _CALL_S):
                await loader.delete(self._session, paths[start : start + _BATCH])


def is_kept(path: str) -> bool:
    """Return True if a backup keeps a znode, unless it is ephemeral."""
    parent = path.rpartition("/")[0]
    return path not in _LEFT_OUT and parent not in _WITHOUT_CHILDREN


def _copy(path: str, value: Any) -> ZnodeCopy:
    tree, entity_id = _entity(path)
    if value is None or value[1][_EPHEMERAL_OWNER]:
        return ZnodeCopy(path, False, None, 0, 0, 0, tree, entity_id)  # noqa: FBT003 - a record
    data, stat = value
    return ZnodeCopy(path, True, data, stat[0], stat[_MZXID], stat[_VERSION], tree, entity_id)  # noqa: FBT003 - a record


def _entity(path: str) -> tuple[str | None, str | None]:
    # The second tree is below the root of the service's own nodes, and the first one is not.
    for tree in Tree:
        if path.startswith(f"{tree}/"):
            entity_id = znodes.entity_id(path[len(tree) + 1 :])
            return (None, None) if entity_id is None else (tree.value, entity_id)
    return None, None


def _operations(write: ZnodeWrite, *, announced: bool) -> list[tuple[Any, ...]]:
    """Return a write, and its announcement."""
    if write.action == "delete":
        operations: list[tuple[Any, ...]] = [("delete", write.path)]
    else:
        version = (-1,) if write.action == "set" else ()
        operations = [(write.action, write.path, write.data, *version)]
    if announced:
        path = write.path.removeprefix(f"{Tree.CONFIG}/")
        operations.append(("sequence", znodes.CHANGE_PREFIX, znodes.encode_notification(path)))
    return operations


def _batches(groups: Iterable[list[tuple[Any, ...]]]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield transactions. A restore that is repeated announces no earlier write, so a group is in one transaction."""
    batch: list[tuple[Any, ...]] = []
    size = 0
    for group in groups:
        length = sum(len(each[1]) + len(each[2] or b"" if len(each) > 2 else b"") for each in group)  # noqa: PLR2004 - with data
        if batch and (len(batch) + len(group) > _BATCH or size + length > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch += group
        size += length
    if batch:
        yield batch


class _TreeWalk:
    """Reads all znodes below the roots, each before its children."""

    def __init__(self, session: Session, take: Take, forbidden: set[str]) -> None:
        self._take = take
        self._forbidden = forbidden
        self._reads = ReadWindow(session)
        self._data = self._reads.data(self._taken)
        self._lists = self._reads.children(self._listed)
        self._below: list[tuple[ReadQueue, Iterator[str]]] = []

    async def run(self) -> None:
        """Read."""
        self._data.request(_ROOTS)
        try:
            await self._reads.read_below(self._below, _PIECE)
        finally:
            self._reads.close()

    def _taken(self, paths: Sequence[str], values: Sequence[Any]) -> None:
        found = []
        for path, value in zip(paths, values, strict=True):
            if value is FORBIDDEN:
                self._forbidden.add(path)
                continue
            copy = _copy(path, value)
            if not copy.present:
                continue
            found.append(copy)
            if value[1][_CHILDREN] and path not in _WITHOUT_CHILDREN:
                self._lists.request([path])
        self._take(found)

    def _listed(self, parents: Sequence[str], values: Sequence[Any]) -> None:
        for parent, names in zip(parents, values, strict=True):
            if names and names is not FORBIDDEN:
                self._below.append((self._data, _paths(parent, names)))


def _paths(parent: str, names: Sequence[str]) -> Iterator[str]:
    return (path for name in sorted(names) if is_kept(path := f"{parent}/{name}"))
