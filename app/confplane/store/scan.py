"""Znodes for one-time readers outside of the service: by sessions that create nothing and set no watch."""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import KazooState

from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree
from confplane.domain.releases import ON_ZOOKEEPER, newest
from confplane.services.ports.cluster_states import Layout
from confplane.store import znodes
from confplane.store.mirror.loader import Walk
from confplane.store.session.access import ZooKeeperAccess
from confplane.store.session.asyncio_adapter import Mailbox
from confplane.store.session.reads import FORBIDDEN
from confplane.store.session.session import Session, unavailable
from confplane.store.session.session_manager import split_connect_string, zookeeper_calls
from confplane.store.watched_nodes import release_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from confplane.domain.changes import Node
    from confplane.settings import ClusterSettings

    T = TypeVar("T")

_CONNECT_SECONDS: Final = 30.0
_CALL_SECONDS: Final = 30.0
_SCAN_SECONDS: Final = 600.0
_STOP_SECONDS: Final = 5.0
_ATTEMPTS: Final = 3
"""Attempts per call: a lost connection fails the call, which then repeats all its reads."""

ENTITY_PARENTS: Final = tuple((tree, kind) for tree in Tree for kind in znodes.CONFIG_TYPES)
"""The nodes whose children are entities, except ``<user, client-id>`` pairs, which are below their users."""


class EntityZnode(NamedTuple):
    """The znode of an entity."""

    tree: Tree
    path: str
    """The path below the tree's root."""
    entity_id: str | None
    """The entity id; None for a path that is not in Kafka's spelling."""
    node: Node | None
    """The node, with an empty id if ``entity_id`` is None. None if this identity may not read the node."""


class KafkaRelease(NamedTuple):
    """The release of a cluster's Kafka."""

    name: str
    """The release, as the service knows it: :meth:`ZooKeeperStore.kafka_release`."""
    on_zookeeper: bool
    """True if the cluster runs on ZooKeeper. The release 3.9 also runs without."""


@dataclass(frozen=True, slots=True)
class Scanner:
    """Reads one cluster's ZooKeeper. Each call opens its own session, with any server."""

    name: str
    hosts: str
    chroot: str
    access: ZooKeeperAccess
    timeout_ms: int
    chosen_tree: Tree
    """The tree of client configs if the cluster has no layout yet."""

    @classmethod
    def of(cls, name: str, cluster: ClusterSettings) -> Scanner:
        """Make a scanner from a cluster's settings.

        Raises:
            UnusableSettingsError: The file of ZooKeeper's credentials can't be used here.
        """
        access = ZooKeeperAccess.from_settings(f"clusters.{name}.zookeeper_acl", cluster.zookeeper_acl)
        hosts, chroot = split_connect_string(cluster.zookeeper)
        chosen = Tree.CONFIG if cluster.layout is None else cluster.layout.tree
        return cls(name, hosts, chroot, access, cluster.session_timeout_ms, chosen)

    def revision(self, least: int = 0) -> int:
        """Return a zxid that is at least as new as this call.

        Args:
            least: The least zxid that a server must have reached to be used. The same applies to all calls.

        Raises:
            UnavailableError: ZooKeeper is unavailable. The same applies to all calls.
        """

        async def ask(session: Session) -> int:
            async with zookeeper_calls(self.name, time.monotonic() + _CALL_SECONDS):
                await session.sync()
                await session.exists("/config")
                return session.zxid

        return self._run(ask, least)

    def release(self, least: int = 0) -> KafkaRelease:
        """Return the release of the cluster's Kafka."""

        async def ask(session: Session) -> KafkaRelease:
            async with zookeeper_calls(self.name, time.monotonic() + _CALL_SECONDS):
                replies = [session.get(path) for path in (znodes.TARGET, znodes.OBSERVATION)]
                target, report = [await _data(reply) for reply in replies]
            return KafkaRelease((release_in(report) or newest()) if target else ON_ZOOKEEPER, target is None)

        return self._run(ask, least)

    def layout(self, least: int = 0) -> Layout:
        """Return the layout of client configs: the stored one, or that of the settings.

        If the stored one can't be read, each tree may have client configs, as during a move.
        """

        async def ask(session: Session) -> Layout:
            async with zookeeper_calls(self.name, time.monotonic() + _CALL_SECONDS):
                data = await _data(session.get(znodes.LAYOUT))
            try:
                return znodes.decode_layout(data) or Layout(self.chosen_tree)
            except ValueError:
                return Layout(self.chosen_tree, self.chosen_tree.other)

        return self._run(ask, least)

    def names(self, least: int = 0) -> dict[tuple[Tree, str], list[str]]:
        """Return the names of the nodes below each of :data:`ENTITY_PARENTS`, in order.

        Raises:
            UnavailableError: ZooKeeper is unavailable, or the nodes may not be listed.
        """

        async def ask(session: Session) -> dict[tuple[Tree, str], list[str]]:
            async with zookeeper_calls(self.name, time.monotonic() + _SCAN_SECONDS):
                replies = [session.children(f"{tree.value}/{kind}") for tree, kind in ENTITY_PARENTS]
                return {place: await _names(reply) for place, reply in zip(ENTITY_PARENTS, replies, strict=True)}

        return self._run(ask, least)

    def count(self, least: int = 0) -> int:
        """Return the number of nodes below all of :data:`ENTITY_PARENTS`, without their names."""

        async def ask(session: Session) -> int:
            async with zookeeper_calls(self.name, time.monotonic() + _CALL_SECONDS):
                stats = [
                    await reply for reply in [session.exists(f"{tree.value}/{kind}") for tree, kind in ENTITY_PARENTS]
                ]
                return sum(stat.numChildren for stat in stats if stat is not None)

        return self._run(ask, least)

    def read(self, tree: Tree, paths: Sequence[str], least: int = 0) -> list[EntityZnode]:
        """Read nodes below a tree's root, and the pairs below the users among them. Absent nodes are omitted."""

        async def ask(session: Session) -> list[EntityZnode]:
            found: list[EntityZnode] = []

            def take(paths: Sequence[str], values: Sequence[Any]) -> None:
                below = len(tree.value) + 1
                found.extend(
                    _entity_znode(tree, path[below:], value)
                    for path, value in zip(paths, values, strict=True)
                    if value is not None
                )

            walk = Walk(session, tree, take)
            walk.read(paths)
            async with zookeeper_calls(self.name, time.monotonic() + _SCAN_SECONDS):
                await walk.run()
            return found

        return self._run(ask, least)

    def _run(self, ask: Callable[[Session], Awaitable[T]], least: int) -> T:
        return asyncio.run(self._attempts(ask, least))

    async def _attempts(self, ask: Callable[[Session], Awaitable[T]], least: int) -> T:
        attempt = 1
        while True:
            try:
                async with self._session(least) as session:
                    return await ask(session)
            except UnavailableError:
                if attempt == _ATTEMPTS:
                    raise
                attempt += 1

    @asynccontextmanager
    async def _session(self, least: int) -> AsyncIterator[Session]:
        connected = asyncio.Event()

        def note(_session: Session, state: str) -> None:
            if state == KazooState.CONNECTED:
                connected.set()

        mailbox = Mailbox(asyncio.get_running_loop())
        session = Session(mailbox, self.hosts, self.chroot, self.timeout_ms, self.access, on_state=note)
        session.zxid = least
        session.open()
        try:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    await connected.wait()
            except TimeoutError:
                raise unavailable(f"Cluster {self.name}: ZooKeeper is not connected") from None
            yield session
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await session.retire().wait()


async def _data(reply: Awaitable[Any]) -> bytes | None:
    try:
        data, _ = await reply
    except NoNodeError:
        return None
    return data or None


async def _names(reply: Awaitable[Any]) -> list[str]:
    try:
        names, _ = await reply
    except NoNodeError:
        return []
    return sorted(names)


def _entity_znode(tree: Tree, path: str, value: Any) -> EntityZnode:
    entity_id = znodes.entity_id(path)
    if value is FORBIDDEN:
        return EntityZnode(tree, path, entity_id, None)
    return EntityZnode(tree, path, entity_id, znodes.node_of(entity_id or "", *value))
