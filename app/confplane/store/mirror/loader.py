"""The walk over whole trees of znodes, the application of their nodes to a mirror, and deletions."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from confplane.store import znodes
from confplane.store.session.reads import FORBIDDEN, ReadWindow, SizeEstimate, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from confplane.domain.facets import Tree
    from confplane.store.mirror.nodes import Mirror
    from confplane.store.session.reads import ReadQueue, ValuesCallback
    from confplane.store.session.session import Session, Watcher

    Sizes = defaultdict[str, SizeEstimate]

logger = logging.getLogger(__name__)

_PIECE: Final = 100
"""Names made into paths before other tasks get their turn."""
_SORTED: Final = 10_000
"""Names sorted at a time: an index then takes them in less time."""
_USERS: Final = "users"
_LOGGED_S: Final = 10.0
"""Seconds between two lines of the log about the progress of a load."""


class LoadProgress:
    """The progress of one load, which is logged every ten seconds.

    Args:
        name: The cluster, for the log.
        clock: The time in seconds.

    Attributes:
        read: Nodes that were read.
        listed: Nodes whose names are known.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.read = 0
        self.listed = 0
        self._name = name
        self._clock = clock
        self._began = self._logged_at = clock()

    @property
    def seconds(self) -> float:
        """Seconds since the load began."""
        return self._clock() - self._began

    def add(self, nodes: int) -> None:
        """Count nodes that were read, and log the progress if that is due."""
        self.read += nodes
        now = self._clock()
        if now - self._logged_at >= _LOGGED_S:
            self._logged_at = now
            logger.info(
                "Cluster %s: loading its configs: %d of %d nodes listed so far were read in %.0f s",
                *(self._name, self.read, self.listed, now - self._began),
            )


def apply_node(mirror: Mirror, tree: Tree, path: str, value: Any, seen_at: int = 0) -> None:
    """Put the value read at ``path`` below a tree's root into a mirror; None is an absent node.

    Everything below an absent node is absent too. ``seen_at`` is a revision that the read is not behind, where one is
    known.
    """
    entity_id = znodes.entity_id(path)
    copy = mirror.trees[tree]
    mirror.record_unmapped(
        tree, path, unaddressed=entity_id is None and value is not None, forbidden=value is FORBIDDEN
    )
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


def apply_nodes(mirror: Mirror, tree: Tree, paths: Sequence[str], values: Sequence[Any]) -> None:
    """Put the values read at some paths below the chroot into a mirror; as :func:`apply_node`."""
    below, copy, odd = len(tree.value) + 1, mirror.trees[tree], mirror.has_unmapped
    for whole, value in zip(paths, values, strict=True):
        path = whole[below:]
        entity_id = znodes.entity_id(path)
        if odd or entity_id is None or value is None or value is FORBIDDEN:
            apply_node(mirror, tree, path, value)
            odd = mirror.has_unmapped
        else:
            data, stat = value
            copy.put(entity_id, znodes.decode_entity(data), stat)


async def load(
    session: Session,
    mirror: Mirror,
    order: Iterable[Tree],
    topics_watch: Watcher | None,
    sizes: Sizes,
    progress: LoadProgress,
) -> None:
    """Read all trees of a mirror, in this order.

    Raises:
        ZookeeperError: A call failed; the mirror is incomplete.
        UnavailableError: The connection went down.
    """
    for tree in order:
        if tree in mirror.trees:
            walk = Walk(session, tree, partial(apply_nodes, mirror, tree), sizes, progress)
            for kind in znodes.CONFIG_TYPES:
                walk.all(kind, topics_watch if f"{tree.value}/{kind}" == znodes.TOPIC_CONFIGS else None)
            await walk.run()


class Walk:
    """Reads nodes of one tree, and all pairs below the users among them.

    Args:
        session: The session of all calls.
        tree: The tree.
        take: Called with some paths below the chroot, and their values; see :meth:`ReadWindow.data`.
        sizes: The sizes of nodes in earlier walks.
        progress: Counts the nodes of a load.
    """

    def __init__(
        self,
        session: Session,
        tree: Tree,
        take: ValuesCallback,
        sizes: Sizes | None = None,
        progress: LoadProgress | None = None,
    ) -> None:
        self._session = session
        self._root = root = tree.value
        self._progress = progress
        self._take = take if progress is None else self._counted(take, progress)
        self._reads = reads = ReadWindow(session)
        known = defaultdict(SizeEstimate) if sizes is None else sizes
        # Nodes below users that were read are read before more users are.
        self._pairs = reads.data(self._take, known[f"{root}, pairs"])
        self._lists = reads.children(self._listed, known[f"{root}, lists"])
        self._kinds = {
            kind: reads.data(self._read_users if kind == _USERS else self._take, known[f"{root}, {kind}"])
            for kind in znodes.CONFIG_TYPES
        }
        self._below: list[tuple[ReadQueue, Iterator[str]]] = []

    def all(self, kind: str, watch: Callable[[Any], None] | None = None) -> None:
        """Request reads of all nodes of a kind."""
        parent = f"{self._root}/{kind}"

        def listed(value: Any) -> None:
            if value is not None and value is not FORBIDDEN:
                self._descend(self._kinds[kind], parent, value[0])

        self._reads.add(self._session.children(parent, watch), listed)

    def read(self, paths: Sequence[str]) -> None:
        """Request reads of nodes at these paths below the tree's root."""
        for path in paths:
            self._kinds[path.partition("/")[0]].request([f"{self._root}/{path}"])

    async def run(self) -> None:
        """Read all requested nodes.

        Raises:
            ZookeeperError: A call failed; the walk is incomplete.
            UnavailableError: The connection went down.
        """
        try:
            await self._reads.read_below(self._below, _PIECE)
        finally:
            # Queues refer to this walk, which refers to the mirror: a cycle of references would keep the mirror.
            self._reads.close()
            self._below.clear()

    @staticmethod
    def _counted(take: ValuesCallback, progress: LoadProgress) -> ValuesCallback:
        def counted(paths: Sequence[str], values: Sequence[Any]) -> None:
            take(paths, values)
            progress.add(len(paths))

        return counted

    def _descend(self, queue: ReadQueue, parent: str, names: list[str]) -> None:
        if self._progress is not None:
            self._progress.listed += len(names)
        if len(names) <= _PIECE:
            queue.request([f"{parent}/{name}" for name in sorted(names)])
            return
        pieces = (sorted(names[first : first + _SORTED]) for first in range(0, len(names), _SORTED))
        self._below.append((queue, (f"{parent}/{name}" for piece in pieces for name in piece)))

    def _read_users(self, paths: Sequence[str], values: Sequence[Any]) -> None:
        self._take(paths, values)
        # A Stat's tenth field is the number of children.
        self._lists.request(
            f"{path}/clients"
            for path, value in zip(paths, values, strict=True)
            if value is FORBIDDEN or (value is not None and value[1][9])
        )

    def _listed(self, parents: Sequence[str], values: Sequence[Any]) -> None:
        for parent, names in zip(parents, values, strict=True):
            if names and names is not FORBIDDEN:
                self._descend(self._pairs, parent, names)


async def delete(session: Session, paths: list[str]) -> None:
    """Delete nodes that other clients may also be deleting: in one transaction, or one by one when some are gone."""
    results = await session.multi([("delete", path) for path in paths])
    if any(isinstance(result, Exception) for result in results):
        window = Window()
        for path in paths:
            window.add(session.delete(path), _ignore)
        await window.done()


def _ignore(_value: Any) -> None:
    """Ignore a reply."""
