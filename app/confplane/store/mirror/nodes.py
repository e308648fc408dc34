"""The in-memory copy of a cluster's entity nodes, and its indexes. Only the event loop touches it.

The copy is built for a million entities: a node is one named tuple, its keys and short values are shared strings, the
zxids of one transaction are one integer object, an index holds ids and nothing else. A value never replaces one with a
higher mzxid, so the order of two readers of a node does not matter.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from sortedcontainers import SortedList

from confplane.domain.changes import Node
from confplane.domain.entities import Entity, EntityType, sanitize
from confplane.services.cooperative_yielding import PIECE, TimeSlice
from confplane.store.mirror.list_sizes import ListSizes, list_position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from confplane.domain.access.ranges import NameRanges
    from confplane.domain.facets import Tree
    from confplane.store.mirror.journal import MirrorJournal
    from confplane.store.znodes import Content

    ChangeCallback = Callable[..., None]

_AFTER_ALL: Final = "\x7f"
"""Ids are ASCII below this character, so a prefix followed by it ends the range of the prefix."""
_OWNERS_CACHED: Final = 10_000
_CLIENT: Final = f"{EntityType.CLIENT_ID}"
_PAIR: Final = f"{EntityType.USER},{EntityType.CLIENT_ID}"
_FEW: Final = 1000
"""The greatest number of ids that are kept in order as a plain list."""
_SHAPES: Final = 1000
"""The greatest number of cached sets of keys, each with the facets that own one of them."""
_NUMBERS: Final = 4096
"""The greatest number of cached numbers, which neighbours share."""


@dataclass(frozen=True, slots=True)
class FacetIndex:
    """A facet's description for the mirror's index."""

    tree: Tree
    """The tree of the facet's nodes."""
    owns: Callable[[Entity, str], bool]
    """Decides whether a stored key of an entity belongs to the facet, by the entity's types and not by its names."""
    covers: Callable[[Entity], bool]
    """Decides whether the facet can have an entity at all: an unreadable node of such an entity is counted as the
    facet's."""
    also: Tree | None = None
    """Another tree that may have the facet's nodes."""


class TreeMirror:
    """One tree: nodes by id, all ids in order, ids per facet in order, ids by client-id.

    Args:
        facets: The facets that read this tree, by name.
    """

    def __init__(self, facets: Mapping[str, FacetIndex]) -> None:
        self.nodes: dict[str, Node] = {}
        self.defective = 0
        self.newest = 0
        """The revision of the newest node ever taken; 0 before the first."""
        self.on_change: ChangeCallback | None = None
        """Called with each change of a node; None in a copy that is being loaded."""
        self.list_sizes = ListSizes()
        # For each call of moment() under way: the entities that changed since it began, as they were before.
        self._moments: list[dict[str, Node | None]] = []
        self._facets = dict(facets)
        self._ids: SortedList[str] = SortedList()
        self._facet_ids: dict[str, SortedList[str]] = {name: SortedList() for name in facets}
        # By the client-id component in the spelling of ids, "" for the default: the id, or several in order.
        self._by_client: dict[str, str | list[str] | SortedList[str]] = {}
        self._owners: dict[tuple[str, str], tuple[str, ...]] = {}
        self._shapes: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
        self._numbers: dict[int, int] = {}

    # -- reading

    def with_keys(
        self, facet: str, *, after: str | None, prefix: str, within: NameRanges | None = None
    ) -> Iterator[Node]:
        """Iterate over the nodes with keys of a facet, by id."""
        if within is not None:
            yield from self._with_keys_within(facet, after, prefix, within)
            return
        low, inclusive = (prefix or None), (True, True)
        if after is not None and after >= prefix:
            low, inclusive = after, (False, True)
        high = prefix + _AFTER_ALL if prefix else None
        nodes = self.nodes
        for entity_id in self._facet_ids[facet].irange(low, high, inclusive=inclusive):
            yield nodes[entity_id]

    async def moment(
        self,
        facet: str,
        *,
        prefix: str = "",
        client_id: tuple[str | None] | None = None,
        within: NameRanges | None = None,
    ) -> list[Node]:
        """Return nodes with keys of a facet as they were when the call began, by id; gathered in slices.

        With ``client_id`` they are only those whose client-id has the name in the tuple.
        """
        before: dict[str, Node | None] = {}
        found: list[Node] = []
        after = ""

        def restored(part: list[Node], end: str) -> list[Node]:
            """Return a slice with its entities as they were before; the slice reaches to the id ``end``."""
            changed = [entity_id for entity_id in before if after < entity_id <= end]
            if not changed:
                return part
            old = (node for node in map(before.__getitem__, changed) if node is not None and selected(node))
            return sorted([*old, *(node for node in part if node.id not in before)], key=_id)

        def selected(node: Node) -> bool:
            inside = within is None or node.id in within
            named = client_id is None or list_position(node.id)[1:] == (_CLIENT, _spelled(client_id[0]))
            return inside and named and node.id.startswith(prefix) and facet in self._facets_of(node)

        time_slice = TimeSlice()
        self._moments.append(before)
        try:
            while True:
                if client_id is None:
                    walk = self.with_keys(facet, after=after, prefix=prefix, within=within)
                else:
                    walk = self.with_client_id(client_id[0], after=after, within=within)
                part = list(itertools.islice(walk, PIECE))
                if not part:
                    return found + restored([], _AFTER_ALL)
                end = part[-1].id
                if client_id is not None:
                    part = [node for node in part if selected(node)]
                found += restored(part, end)
                after = end
                if time_slice.due:
                    await time_slice.pause()
        finally:
            self._moments = [each for each in self._moments if each is not before]

    def _with_keys_within(self, facet: str, after: str | None, prefix: str, within: NameRanges) -> Iterator[Node]:
        nodes, ids = self.nodes, self._facet_ids[facet]
        low = prefix if after is None or after < prefix else after + "\0"
        for start, end in within.between(low, prefix + _AFTER_ALL):
            for entity_id in ids.irange(start, end, inclusive=(True, False)):
                yield nodes[entity_id]

    def with_client_id(
        self, client_id: str | None, *, after: str | None = None, within: NameRanges | None = None
    ) -> Iterator[Node]:
        """Iterate over the nodes whose client-id has this name, by id."""
        found = self._by_client.get(_spelled(client_id), ())
        # A plain list is short: for each slice of a walk a sorted one is made of it.
        ids = found if type(found) is SortedList else SortedList((found,) if isinstance(found, str) else found)
        low = "" if after is None else after + "\0"
        whole = within is None or len(ids) <= len(within.starts)  # at the cost of the shorter of both
        for start, end in ((low, _AFTER_ALL),) if within is None or whole else within.between(low, _AFTER_ALL):
            for entity_id in ids.irange(start, end, inclusive=(True, False)):
                if not whole or within is None or entity_id in within:
                    yield self.nodes[entity_id]

    def page(self, after: str, size: int) -> list[Node]:
        """Return nodes in the order of their ids, from behind a given id."""
        ids = self._ids.irange(after, inclusive=(False, True))
        return [self.nodes[entity_id] for entity_id in itertools.islice(ids, size)]

    def below(self, prefix: str) -> list[str]:
        """List all ids with this prefix."""
        return list(self._ids.irange(prefix, prefix + _AFTER_ALL))

    def any_below(self, prefix: str) -> bool:
        """Return True where any id has this prefix."""
        return next(self._ids.irange(prefix, prefix + _AFTER_ALL), None) is not None

    def defects(self, limit: int) -> list[Node]:
        """Return some of the nodes with a defect."""
        found: list[Node] = []
        if self.defective:
            for node in self.nodes.values():
                if node.defect is not None:
                    found.append(node)
                    if len(found) == limit:
                        break
        return found

    def parts(self) -> list[list[object]]:
        """List the objects that the copy alone may hold: its nodes, the clients' names and lists, the users' ids."""
        return [
            list(self.nodes.values()),
            list(self._by_client),
            list(self._by_client.values()),
            self.list_sizes.users(),
        ]

    # -- changing

    def put(self, entity_id: str, content: Content, stat: Sequence[int]) -> bool:
        """Take a node as read (``stat`` is ZooKeeper's Stat); False when the copy has a newer one."""
        # One object for the equal numbers of neighbours.
        numbers = self._numbers
        if len(numbers) > _NUMBERS:
            numbers.clear()
        share = numbers.setdefault
        items, defect, extra = content
        # Stat: czxid, mzxid, ctime, mtime, version. A bare tuple costs less than a call of Node.
        fields = (
            entity_id,
            items,
            stat[4],
            share(stat[0], stat[0]),
            share(stat[1], stat[1]),
            share(stat[3], stat[3]),
            defect,
            extra,
        )
        return self.put_node(tuple.__new__(Node, fields))

    def put_node(self, node: Node) -> bool:
        """Take a node; False when the copy has a newer one."""
        old = self.nodes.get(node[0])
        if old is None:
            self._add(node)
        elif old.mzxid >= node.mzxid:
            return old.mzxid == node.mzxid
        else:
            # One id object for all indexes.
            node = node._replace(id=old.id)
            self.nodes[old.id] = node
            self._index_facets(old.id, self._facets_of(old), self._facets_of(node))
            self.defective -= old.defect is not None
        for before in self._moments:
            before.setdefault(node.id, old)
        if node.mzxid > self.newest:  # noqa: PLR1730 - a call of max() for each node of a load costs more
            self.newest = node.mzxid
        if node.defect is not None:
            self.defective += 1
        if self.on_change is not None:
            self.on_change(node.id, old, node)
        return True

    def _add(self, node: Node) -> None:
        entity_id = node[0]
        self.nodes[entity_id] = node
        self._ids.add(entity_id)
        for facet in self._facets_of(node):
            self._facet_ids[facet].add(entity_id)
        place = _, kind, name = list_position(entity_id)
        self.list_sizes.add(*place)
        if kind != _CLIENT:
            return
        others = self._by_client.setdefault(name, entity_id)
        if others is entity_id:
            return
        # By type: isinstance calls Python code of SortedList's abstract base class.
        if type(others) is SortedList:
            others.add(entity_id)
        elif type(others) is list:
            insort(others, entity_id)
            if len(others) > _FEW:
                self._by_client[name] = SortedList(others)
        elif type(others) is str:
            self._by_client[name] = sorted((others, entity_id))

    def _index_facets(self, entity_id: str, before: tuple[str, ...], now: tuple[str, ...]) -> None:
        if before != now:
            for name in before:
                if name not in now:
                    self._facet_ids[name].remove(entity_id)
            for name in now:
                if name not in before:
                    self._facet_ids[name].add(entity_id)

    def remove(self, entity_id: str, seen_at: int = 0) -> None:
        """Forget an absent node, at a revision where one is known."""
        old = self.nodes.pop(entity_id, None)
        if old is None:
            return
        for before in self._moments:
            before.setdefault(old.id, old)
        place = _, kind, name = list_position(entity_id)
        self.list_sizes.drop(*place)
        if self.on_change is not None:
            self.on_change(old.id, old, None, seen_at)
        self.defective -= old.defect is not None
        for facet in self._facets_of(old):
            self._facet_ids[facet].remove(entity_id)
        self._ids.remove(entity_id)
        if kind != _CLIENT:
            return
        others = self._by_client[name]
        if isinstance(others, str):
            del self._by_client[name]
            return
        del others[bisect_left(others, entity_id) if isinstance(others, list) else others.index(entity_id)]
        if len(others) == 1:
            [self._by_client[name]] = others

    def remove_below(self, prefix: str, seen_at: int = 0) -> None:
        """Forget all nodes with this prefix of their ids."""
        for entity_id in self.below(prefix):
            self.remove(entity_id, seen_at)

    def _facets_of(self, node: Node) -> tuple[str, ...]:
        items = node.items
        if not items:
            return () if node.defect is None else self._covering(Entity.from_id(node.id))
        shape = kind, keys = _kind_of(node.id), items[::2]
        found = self._shapes.get(shape)
        if found is None:
            if len(self._shapes) >= _SHAPES:
                self._shapes.clear()
            owners = {name for key in keys for name in self._owners_of(kind, key, node.id)}
            found = self._shapes[shape] = tuple(name for name in self._facets if name in owners)
        return found

    def _owners_of(self, kind: str, key: str, entity_id: str) -> tuple[str, ...]:
        owners = self._owners.get((kind, key))
        if owners is None:
            entity = Entity.from_id(entity_id)
            owners = tuple(name for name, facet in self._facets.items() if facet.owns(entity, key))
            if len(self._owners) >= _OWNERS_CACHED:
                self._owners.clear()
            self._owners[kind, key] = owners
        return owners

    def _covering(self, entity: Entity) -> tuple[str, ...]:
        return tuple(name for name, facet in self._facets.items() if facet.covers(entity))


class Mirror:
    """All trees of a cluster."""

    def __init__(self, trees: Mapping[Tree, Mapping[str, FacetIndex]]) -> None:
        self.trees = {tree: TreeMirror(facets) for tree, facets in trees.items()}
        self.unaddressed: dict[str, None] = {}
        """Paths of nodes whose names are not in Kafka's spelling: no request reaches them."""
        self.forbidden: dict[str, None] = {}
        """Paths of nodes that this identity may not read, by their ACL. A write meets them, and changes nothing."""

    def journal_to(self, journal: MirrorJournal) -> None:
        """Record each change from now on in a journal."""
        for tree, copy in self.trees.items():
            copy.on_change = partial(journal.record, tree)

    def record_unmapped(self, tree: Tree, path: str, *, unaddressed: bool, forbidden: bool) -> None:
        """Record whether a znode below a tree's root exists without a node in this mirror."""
        full = f"{tree.value}/{path}"
        before = full in self.unaddressed or full in self.forbidden
        _mark(self.unaddressed, full, present=unaddressed)
        _mark(self.forbidden, full, present=forbidden)
        if before != (unaddressed or forbidden):
            self.trees[tree].list_sizes.count_unmapped(path, present=not before)

    @property
    def has_unmapped(self) -> bool:
        """True if any znode exists without a node in this mirror."""
        return bool(self.unaddressed or self.forbidden)

    def longer_list(self, new: Sequence[tuple[Tree, str]], most: int) -> tuple[str, int] | None:
        """Return a parent whose list would take ``most`` bytes with new entities, and its size then; None without one.

        Args:
            new: The trees and the ids of the entities; some may exist.
            most: The limit, which a list has to stay below.
        """
        for tree, copy in self.trees.items():
            added: dict[str, None] = {}
            for _, entity_id in (each for each in new if each[0] is tree):
                # A user is created with its first client.
                both = entity_id.partition(",")[0], entity_id
                added.update(dict.fromkeys(each for each in both if each not in copy.nodes))
            for path, size in copy.list_sizes.with_more(added):
                if size >= most:
                    return f"{tree.value}/{path}", size
        return None

    def entities(self) -> int:
        """Return the number of nodes."""
        return sum(len(tree.nodes) for tree in self.trees.values())

    def newest(self) -> int:
        """Return the revision of the newest node ever taken; 0 before the first."""
        return max((tree.newest for tree in self.trees.values()), default=0)


_id = attrgetter("id")


def _mark(paths: dict[str, None], path: str, *, present: bool) -> None:
    if present:
        paths[path] = None
    else:
        paths.pop(path, None)


def _spelled(client_id: str | None) -> str:
    """Return the name of a client-id as in ids; "" for the default."""
    return "" if client_id is None else sanitize(client_id).replace("%", "~")


def _kind_of(entity_id: str) -> str:
    """Return a text for the types of an id: names have neither comma nor equals sign there."""
    return _PAIR if "," in entity_id else entity_id.partition("=")[0]
