"""Many nodes at once: a bounded window of calls in flight, the walk over a whole tree with it, and deletions."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import NoAuthError, NoNodeError

from app.store import znodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from app.domain.facets import Tree
    from app.store.mirror.nodes import Mirror
    from app.store.session.bridge import Reply
    from app.store.session.keeper import Session

    Taken = Callable[[Any], None]

FORBIDDEN: Final = object()
"""What is taken for a node whose ACL lets this identity not read it."""
WINDOW: Final = 1000
"""Calls in flight. ZooKeeper holds that many per connection by default (zookeeper.globalOutstandingLimit)."""
_BURST: Final = 100
"""Calls submitted before other tasks get their turn."""


class Window:
    """Calls in flight, bounded; what they bring is taken in the order in which it arrives."""

    def __init__(self, limit: int = WINDOW) -> None:
        self._limit = limit
        self._outstanding = 0
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._wanted = 0

    def add(self, reply: Reply, take: Taken) -> None:
        """Have ``take(value)`` called with the reply: None when the node is absent, FORBIDDEN when it can't be read."""
        self._outstanding += 1

        def deliver(value: Any, error: Exception | None) -> None:
            self._outstanding -= 1
            if error is None or isinstance(error, (NoNodeError, NoAuthError)):
                try:
                    take(FORBIDDEN if isinstance(error, NoAuthError) else value)
                except Exception as failure:  # noqa: BLE001 - raised where the window is waited for
                    self._error = failure
            else:
                self._error = error
            waiter = self._waiter
            if waiter is not None and not waiter.done() and (self._outstanding <= self._wanted or self._error):
                waiter.set_result(None)

        reply.then(deliver)

    async def room(self) -> None:
        """Wait until another call may be made."""
        if self._outstanding >= self._limit:
            await self._until(self._limit // 2)

    async def progress(self) -> None:
        """Wait until at least one reply came."""
        if self._outstanding:
            await self._until(self._outstanding - 1)

    async def done(self) -> None:
        """Wait for all replies.

        Raises:
            Exception: The failure of any of them; the others may still be under way then.
        """
        await self._until(0)

    async def _until(self, outstanding: int) -> None:
        while self._outstanding > outstanding and self._error is None:
            self._wanted = outstanding
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._error is not None:
            raise self._error


def take_node(mirror: Mirror, tree: Tree, path: str, value: Any, seen_at: int = 0) -> None:
    """Put what was read at ``path`` below a tree's root into a mirror; None is an absent node.

    Below an absent node there is nothing either. ``seen_at`` is a revision that the read is not behind, where one is
    known.
    """
    entity_id = znodes.entity_id(path)
    copy = mirror.trees[tree]
    mirror.note(tree, path, unaddressed=entity_id is None and value is not None, forbidden=value is FORBIDDEN)
    if entity_id is None:
        return
    if value is FORBIDDEN:
        copy.remove(entity_id, seen_at)
    elif value is None:
        copy.remove(entity_id, seen_at)
        if entity_id.startswith("user"):
            copy.remove_below(f"{entity_id},", seen_at)
    else:
        data, stat = value
        copy.put(entity_id, znodes.decode_entity(data), stat)


async def load(session: Session, mirror: Mirror, order: Iterable[Tree], topics_watch: Callable[[Any], None]) -> None:
    """Read all trees of a mirror, in this order.

    Raises:
        ZookeeperError: A call failed; the mirror is incomplete.
        UnavailableError: The connection went down meanwhile.
    """
    for tree in order:
        if tree in mirror.trees:
            take = partial(take_node, mirror, tree)
            await Walk(session, tree, take, lists=znodes.CONFIG_TYPES, topics_watch=topics_watch).run()


class Walk:
    """Reads nodes of one tree, and all pairs below the users among them.

    Args:
        session: All calls go through it.
        tree: The tree.
        take: ``take(path below the tree's root, value)`` is called with each node: its data and Stat, None where it is
            absent, FORBIDDEN where it can't be read.
        lists: Nodes whose children are read.
        paths: Nodes that are read themselves.
        topics_watch: Set on the list of topics.
    """

    def __init__(
        self,
        session: Session,
        tree: Tree,
        take: Callable[[str, Any], None],
        *,
        lists: Iterable[str] = (),
        paths: Iterable[str] = (),
        topics_watch: Callable[[Any], None] | None = None,
    ) -> None:
        self._session = session
        self._tree = tree
        self._take = take
        self._topics_watch = topics_watch
        self._window = Window()
        self._paths: deque[str] = deque(paths)
        self._lists: deque[str] = deque(lists)

    async def run(self) -> None:
        """Read them all.

        Raises:
            ZookeeperError: A call failed; not all was read.
            UnavailableError: The connection went down meanwhile.
        """
        session, window, root = self._session, self._window, f"{self._tree.value}/"
        submitted = 0
        while True:
            if self._lists:
                path = self._lists.popleft()
                watch = self._topics_watch if root + path == znodes.TOPIC_CONFIGS else None
                window.add(session.children(root + path, watch), partial(self._listed, path))
            elif self._paths:
                path = self._paths.popleft()
                window.add(session.get(root + path), partial(self._read, path))
            else:
                await window.progress()
                if not self._paths and not self._lists:
                    await window.done()
                    if not self._paths and not self._lists:
                        return
                continue
            submitted += 1
            if not submitted % _BURST:
                await asyncio.sleep(0)
            await window.room()

    def _listed(self, path: str, value: Any) -> None:
        if value is not None and value is not FORBIDDEN:
            self._paths.extend(f"{path}/{name}" for name in value[0])

    def _read(self, path: str, value: Any) -> None:
        self._take(path, value)
        # A Stat's tenth field is the number of children.
        if value is None or not path.startswith("users/") or path.count("/") != 1:
            return
        if value is FORBIDDEN or value[1][9]:
            self._lists.append(f"{path}/clients")


async def delete(session: Session, paths: list[str]) -> None:
    """Delete nodes that others may be deleting as well: in one transaction, or one by one when some are gone."""
    results = await session.multi([("delete", path) for path in paths])
    if any(isinstance(result, Exception) for result in results):
        window = Window()
        for path in paths:
            window.add(session.delete(path), _ignore)
        await window.done()


def _ignore(_value: Any) -> None:
    """Take a reply that tells nothing."""
