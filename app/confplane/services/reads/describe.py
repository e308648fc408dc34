"""Describe: reads of the mirror. Nothing here waits for ZooKeeper or Postgres.

A scan takes one moment of the mirror and then works through it in slices: a describe of a million entities shares the
event loop with other requests and still answers one consistent state.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from itertools import islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, TypeVar

from confplane.domain.access.operations import Operation
from confplane.domain.access.ranges import LAST, NameRanges
from confplane.domain.base64url import decode_base64url, encode_base64url
from confplane.domain.changes import stored
from confplane.domain.entities import Entity, EntityType, sanitize, split_id
from confplane.domain.errors import CorruptZnodeError, InvalidRequestError, NothingSetError
from confplane.domain.etags import etag_of
from confplane.domain.facets import FacetName, full_path
from confplane.domain.resolution import levels_of, resolve
from confplane.services.cooperative_yielding import next_turn
from confplane.services.ports.pages import PAGE_BYTES
from confplane.services.ports.registrations import ClientRegistration
from confplane.services.reads.registrations import SupportedKeys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    from confplane.domain.changes import Node
    from confplane.domain.facets import JsonValue
    from confplane.domain.filters import EntityFilter
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.registrations import RegistrationLog

T = TypeVar("T")

SLICE = 500
"""Nodes read between two pauses for other requests: about a millisecond."""
_PER_UNIT = 10
"""Nodes left out by their keys that cost one unit: each takes 0.5 to 0.8 µs, and an item of a list 6 to 7."""
MAX_VISITED = 10_000
"""Nodes after which a page of a list ends, whether or not they are in the list."""
_MAX_CONFIG_NAME = 249


Selected = tuple[str, "Node | None", "Sequence[ClientRegistration]"]
"""An entity of a describe: its id, its node (None for an entity that has registrations alone), its registrations."""


@dataclass(frozen=True, slots=True)
class RegistrationRequest:
    """The registration that a client sends along with a describe."""

    supported_configs: tuple[str, ...]
    software_name: str | None
    software_version: str | None


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Filters of a list; None means any. In ``names`` a name None is the default entity."""

    id: str | None = None
    names: Mapping[str, str | None] = field(default_factory=dict)
    key: str | None = None
    kind: tuple[str, ...] | None = None
    page_size: int = 100
    page_token: str | None = None
    prefix: str = ""
    """The beginning of the name; of a pair, of the user's name."""


@dataclass(frozen=True, slots=True)
class DescribePage:
    """One page of a list, ordered by id. It may be empty and yet have a token."""

    items: list[tuple[Node, dict[str, JsonValue]]]
    next_page_token: str | None
    skipped: list[str]
    visited: int
    """The number of nodes that were read for the page, whether or not they are in it."""
    without_key: int = 0
    """The number of these that the names of their keys alone left out, in a tenth of the usual time."""

    @property
    def units(self) -> int:
        """The units that the page costs, in proportion to its time."""
        return self.visited - self.without_key + self.without_key // _PER_UNIT


@dataclass(frozen=True, slots=True)
class DescribedLevel:
    """One level that was read for effective values."""

    level: int
    entity_id: str
    reason: str
    shared_by: str | None
    declared: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class DescribedSynonym:
    """A level's value of one key."""

    source: str
    level: int
    value: JsonValue


@dataclass(frozen=True, slots=True)
class DescribedValue:
    """One key's effective value, and every level that sets it, the winner first."""

    key: str
    value: JsonValue
    source: str
    synonyms: list[DescribedSynonym]


@dataclass(frozen=True, slots=True)
class EffectiveDescription:
    """The effective values of an entity. A key that no level sets is absent: for quotas that is "unlimited"."""

    entity: Entity
    values: list[DescribedValue]
    levels: list[DescribedLevel]
    warnings: list[str]


class DescribeService:
    """Reads. One instance serves all clusters of a process.

    Args:
        registrations: The registrations of clients.
        max_visited: The number of nodes after which a page of a list ends.
    """

    def __init__(self, registrations: RegistrationLog, *, max_visited: int = MAX_VISITED) -> None:
        self._registrations = registrations
        self._max_visited = max_visited
        self.supported_keys = SupportedKeys()
        """The supported configs that registrations keep."""

    # ------------------------------------------------------------ single entities

    def node(self, cluster_facet: ClusterFacet, entity_id: str) -> Node:
        """Return the node of an entity by its canonical id.

        Raises:
            ForbiddenError: The caller may not describe the entity.
            InvalidRequestError: The facet has no entities of this type.
            NothingSetError: The entity has no node.
        """
        node = cluster_facet.get(entity_id)
        if node is None:
            entity = _entity(entity_id)
            cluster_facet.facet.check_entity(entity)
            raise nothing_declared(cluster_facet, entity)
        return node

    def content(self, cluster_facet: ClusterFacet, node: Node) -> tuple[dict[str, JsonValue], str]:
        """Return the content that a node declares in a facet, and its ETag.

        Raises:
            InvalidRequestError: The facet has no entities of this type.
            NothingSetError: The node declares nothing in this facet.
            CorruptZnodeError: The node can't be read.
        """
        entity = _entity(node.id)
        declared, etag = _read(cluster_facet, entity, node, partial(cluster_facet.tagged, node=node))
        if etag is None:
            cluster_facet.facet.check_entity(entity)
            raise nothing_declared(cluster_facet, entity)
        return declared, etag

    def effective(
        self, cluster_facet: ClusterFacet, entity: Entity, nodes: Sequence[Node | None]
    ) -> tuple[EffectiveDescription, str]:
        """Return the effective values of an entity by the nodes that decide them, with every level, and an ETag.

        Raises:
            CorruptZnodeError: The znode of a level can't be read, so the result can't be known.
        """
        decode = cluster_facet.facet.decode
        found_at: dict[str, dict[str, str]] = {}
        levels: list[DescribedLevel] = []
        deciding = levels_of(cluster_facet.name, entity)
        for each, node in zip(deciding, nodes, strict=True):
            level_entity = _entity(each.entity_id)
            declared = self._declared(cluster_facet, level_entity, node)
            found_at[each.entity_id] = cluster_facet.own(level_entity, stored(node))
            levels.append(DescribedLevel(each.level, each.entity_id, each.reason, each.shared_by, declared))
        found = resolve(cluster_facet.name, deciding, found_at)
        values = [
            DescribedValue(
                key,
                decode(entity, key, resolved.value),
                resolved.source.entity_id,
                [
                    DescribedSynonym(level.entity_id, level.level, decode(entity, key, value))
                    for level, value in resolved.synonyms
                ],
            )
            for key, resolved in found.items()
        ]
        warnings = cluster_facet.facet.remarks(entity)
        state: dict[str, JsonValue] = {
            f"{level.level} {key}": value for level in levels for key, value in level.declared.items()
        }
        return EffectiveDescription(entity, values, levels, warnings), etag_of(state) or '"none"'

    # ------------------------------------------------------------ filters

    async def select(self, cluster_facet: ClusterFacet, wanted: EntityFilter) -> AsyncIterator[list[Selected]]:
        """Yield the entities that a filter selects, ordered by id, in slices, with pauses for other requests.

        The nodes are of one moment of the mirror. Of client configs, entities with registrations but no declared
        configs are among them: KIP-649 keeps both in one place. Entities that the caller may not describe are left out.

        Raises:
            ForbiddenError: The filter names one entity exactly, and the caller may not describe it.
        """
        if wanted.impossible:
            return
        nodes = await self._search(cluster_facet, wanted)
        walk: Iterator[tuple[str, Node | None]] = ((node.id, node) for node in nodes)
        with_clients = cluster_facet.name is FacetName.CLIENT_CONFIGS
        if with_clients and (apart := await self._registered_apart(cluster_facet, wanted, nodes)):
            walk = merge(walk, ((entity_id, None) for entity_id in apart), key=_by_id)
        matches = None if wanted.everything else wanted.matches
        cluster, registrations = cluster_facet.store.name, self._registrations.compatibility
        while part := list(islice(walk, SLICE)):
            yield [
                (entity_id, node, registrations(cluster, entity_id) if with_clients else ())
                for entity_id, node in part
                if matches is None or matches(_entity(entity_id))
            ]
            if len(part) < SLICE:  # the last one: the rest of the request is short
                return
            await next_turn()

    def deciding(self, cluster_facet: ClusterFacet, entity: Entity) -> tuple[Node | None, ...]:
        """Return the nodes that decide an entity's quotas or client configs, most specific first.

        Raises:
            InvalidRequestError: The facet has no entities of this type.
            ForbiddenError: The caller may not describe the entity, or resolve it in the case of client configs.
        """
        cluster_facet.facet.check_entity(entity)
        cluster_facet = cluster_facet.around(entity)
        return tuple([cluster_facet.get(level.entity_id) for level in levels_of(cluster_facet.name, entity)])

    def decided(self, cluster_facet: ClusterFacet, nodes: Sequence[Node | None]) -> dict[str, JsonValue]:
        """Return the effective client configs by the nodes that decide them, ordered by key.

        Raises:
            CorruptZnodeError: One of the nodes can't be read.
        """
        found: dict[str, JsonValue] = {}
        for node in reversed(nodes):
            if node is not None:
                found |= self._declared(cluster_facet, _entity(node.id), node)
        return dict(sorted(found.items()))

    def register(self, cluster_facet: ClusterFacet, wanted: EntityFilter, request: RegistrationRequest) -> bool:
        """Take the registration that came with a describe. The answer never waits for it.

        Returns:
            False if the caller may not report for the client: its registration is ignored, and its poll answered.

        Raises:
            InvalidRequestError: The filter has no exact user, the software has no name, or a config name is not valid.
        """
        entity = exact_client(wanted, "supportedConfigs")
        if request.software_name is None or request.software_version is None:
            raise InvalidRequestError(
                "supportedConfigs needs clientInformation with softwareName and softwareVersion",
                pointer="/clientInformation",
            )
        for index, name in enumerate(request.supported_configs):
            if not name or len(name) > _MAX_CONFIG_NAME:
                raise InvalidRequestError("A supported config has no name", pointer=f"/supportedConfigs/{index}")
        access = cluster_facet.access
        if access is not None and not access.allows(cluster_facet.store.name, Operation.REPORT, entity.id):
            return False
        software = request.software_name, request.software_version
        self._registrations.record(
            ClientRegistration(
                cluster_facet.store.name,
                entity.id,
                request.software_name,
                request.software_version,
                self.supported_keys.known(cluster_facet, entity, software, request.supported_configs),
            )
        )
        return True

    # ------------------------------------------------------------ lists

    async def page(
        self, cluster_facet: ClusterFacet, query: ListQuery, only: Callable[[Entity], Awaitable[bool]] | None = None
    ) -> DescribePage:
        """Return one page of a facet's entities. A page ends early after large rows, and after many visited nodes.

        Args:
            cluster_facet: The facet of a cluster.
            query: The filters.
            only: A further filter; None: every entity.

        Raises:
            InvalidRequestError: The page token is not valid.
            InvalidEntityIdError: ``id`` is not an entity id.
            ForbiddenError: ``id`` names an entity that the caller may not describe.
        """
        after = None if query.page_token is None else decode_token(query.page_token, _canonical)
        items: list[tuple[Node, dict[str, JsonValue]]] = []
        skipped: list[str] = []
        size = visited = without_key = 0
        async for node in self.candidates(cluster_facet, query, after):
            if visited == self._max_visited:
                return DescribePage(items, _token_after(after), skipped, visited, without_key)
            # The cheapest check is first: with it a page of a list by key takes milliseconds, not a tenth of a second.
            if query.key is not None and node.defect is None and query.key not in node.items[::2]:
                without_key += 1
            elif declared := await self._listed(cluster_facet, query, node, only, skipped):
                size += len(node.id) + sum(map(len, node.items))
                if len(items) == query.page_size or (items and size > PAGE_BYTES):
                    return DescribePage(items, _token_after(after), skipped, visited, without_key)
                items.append((node, declared))
            visited += 1
            after = node.id
        return DescribePage(items, None, skipped, visited, without_key)

    async def _listed(
        self,
        cluster_facet: ClusterFacet,
        query: ListQuery,
        node: Node,
        only: Callable[[Entity], Awaitable[bool]] | None,
        skipped: list[str],
    ) -> dict[str, JsonValue]:
        """Return what a node declares if the filters of a list select it, otherwise nothing.

        The path of a node that can't be read is added to ``skipped``.
        """
        entity = _entity(node.id)
        if not (cluster_facet.facet.entity_types.issuperset(entity.types) and selected(entity, query)):
            return {}
        try:
            declared = self._declared(cluster_facet, entity, node)
        except CorruptZnodeError as error:
            skipped.append(error.path)
            return {}
        if query.key is not None and query.key not in declared:
            return {}
        return declared if only is None or not declared or await only(entity) else {}

    # ------------------------------------------------------------ inside

    def declared(self, cluster_facet: ClusterFacet, entity_id: str, node: Node | None) -> dict[str, JsonValue]:
        """Return the content that a node declares in a facet; empty if there is no node.

        Raises:
            CorruptZnodeError: The node or a value can't be read.
        """
        return self._declared(cluster_facet, _entity(entity_id), node)

    def _declared(self, cluster_facet: ClusterFacet, entity: Entity, node: Node | None) -> dict[str, JsonValue]:
        return _read(cluster_facet, entity, node, cluster_facet.declared)

    async def _search(self, cluster_facet: ClusterFacet, wanted: EntityFilter) -> list[Node]:
        """Return nodes as of one point in time, ordered by id: all nodes that the filter selects, and a few more."""
        if wanted.exact_entity is not None:
            node = cluster_facet.get(wanted.exact_entity.id)
            return [] if node is None else [node]
        if wanted.user_prefix is not None:
            user = wanted.user_prefix.removesuffix(",")
            return await cluster_facet.moment(within=NameRanges((user,), (f"{user}-",)))
        if wanted.client_id is not None:
            return await cluster_facet.moment(client_id=wanted.client_id)
        prefix = EntityType.IP.value if EntityType.IP in wanted.components else ""
        return await cluster_facet.moment(prefix=prefix)

    async def candidates(self, cluster_facet: ClusterFacet, query: ListQuery, after: str | None) -> AsyncIterator[Node]:
        """Yield the nodes after ``after``, ordered by id: a superset of the list's, each slice from one moment."""
        walks = [partial(cluster_facet.with_keys, prefix=prefix) for prefix in _prefixes(query)]
        first = _first(query)
        if first is not None:
            node = cluster_facet.find(first.id) if query.id is None else cluster_facet.get(first.id)
            if node is not None and (after is None or node.id > after):
                yield node
            if query.id is not None or first.types != (EntityType.USER,):
                return
            walks = [partial(cluster_facet.with_keys, prefix=f"{first.id},")]
        elif "client-id" in query.names:
            walks = [partial(cluster_facet.with_client_id, query.names["client-id"])]
        for walk in walks:
            while nodes := list(islice(walk(after=after), SLICE)):
                for node in nodes:
                    yield node
                after = nodes[-1].id
                await next_turn()

    async def _registered_apart(
        self, cluster_facet: ClusterFacet, wanted: EntityFilter, nodes: Sequence[Node]
    ) -> list[str]:
        """Return the ids of a filter's entities that have registrations and none of these ordered nodes, in order."""
        cluster, exact = cluster_facet.store.name, wanted.exact_entity
        if exact is not None:
            candidates = [exact.id] if self._registrations.compatibility(cluster, exact.id) else []
        else:
            candidates = list(self._registrations.registered(cluster, within=cluster_facet.visible))
        apart: list[str] = []
        for position, entity_id in enumerate(candidates):
            if position % SLICE == SLICE - 1:
                await next_turn()
            at = bisect_left(nodes, entity_id, key=_node_id)
            present = at < len(nodes) and nodes[at].id == entity_id
            if not present and wanted.matches(_entity(entity_id)):
                apart.append(entity_id)
        return sorted(apart)


_by_id = itemgetter(0)
_node_id = attrgetter("id")


def nothing_declared(cluster_facet: ClusterFacet, entity: Entity) -> NothingSetError:
    """Return the error for an entity without keys of a facet."""
    return NothingSetError(f"{entity.id} has no {cluster_facet.name}")


_TYPES = {kind.value: kind for kind in EntityType}


def _entity(entity_id: str) -> Entity:
    """Return the entity of an id known to be canonical."""
    return Entity(tuple((_TYPES[kind], name) for kind, name in split_id(entity_id)))


def _first(query: ListQuery) -> Entity | None:
    """Return the first entity of a list, and its only one unless it is a user with pairs; None: any may be first."""
    if query.id is not None:
        return Entity.from_id(query.id, pointer="id")
    kind = next((kind for kind in EntityType if kind is not EntityType.CLIENT_ID and kind in query.names), None)
    return None if kind is None else Entity(((kind, query.names[kind]),))


def span(query: ListQuery) -> NameRanges:
    """Return the range of ids that a list may have."""
    first = _first(query)
    if query.id is not None and first is not None:
        return NameRanges((first.id,), (f"{first.id}!",))
    if first is not None:
        return NameRanges((first.id,), (f"{first.id}-",))
    prefixes = _prefixes(query)
    return NameRanges(tuple(prefixes), tuple(prefix + LAST for prefix in prefixes))


def _prefixes(query: ListQuery) -> list[str]:
    """Return the beginnings of the ids that a list may have, in their order."""
    kinds = sorted(EntityType) if query.kind is None else query.kind[:1]
    if not query.prefix:
        return [""] if query.kind is None else [*kinds]
    # An escaped beginning of a name is the beginning of the escaped name, because bytes are escaped one by one.
    escaped = sanitize(query.prefix).replace("%", "~")
    return [f"{kind}={escaped}" for kind in kinds]


def exact_client(wanted: EntityFilter, why: str) -> Entity:
    """Return the client that a filter names, for a member of the request that needs one.

    Raises:
        InvalidRequestError: The filter has no exact user, or a client-id that is not exact.
    """
    entity = wanted.exact_client
    if entity is None:
        raise InvalidRequestError(
            f"{why} needs a component with an exact user, and an exact client-id or none", pointer="/components"
        )
    return entity


def selected(entity: Entity, query: ListQuery) -> bool:
    """Return True for an entity that the filters of a list select, but for the filter by key."""
    names = dict(entity.components)
    if query.kind is not None and tuple(kind.value for kind in entity.types) != query.kind:
        return False
    if query.prefix and not (entity.components[0][1] or "").startswith(query.prefix):
        return False
    return all((kind := _TYPES[name]) in names and names[kind] == wanted for name, wanted in query.names.items())


def _read(
    cluster_facet: ClusterFacet, entity: Entity, node: Node | None, reading: Callable[[Entity, Mapping[str, str]], T]
) -> T:
    """Read a node's map with a method of the cluster facet.

    Raises:
        CorruptZnodeError: The node or a value can't be read.
    """
    cluster_facet.check_readable(entity, node)
    try:
        return reading(entity, stored(node))
    except ValueError as error:
        raise CorruptZnodeError(
            full_path(cluster_facet.tree, entity), f"holds a value that can't be read: {error}"
        ) from None


def _token_after(entity_id: str | None) -> str | None:
    return None if entity_id is None else encode_token(entity_id)


def encode_token(text: str) -> str:
    """Return a place in a list as a page token."""
    return encode_base64url(text.encode())


def decode_token(token: str, parse: Callable[[str], T]) -> T:
    """Return the place of a page token.

    Args:
        token: The token.
        parse: Reads the token's text; a ValueError or an InvalidRequestError refuses it.

    Raises:
        InvalidRequestError: The token is not one that this API gave.
    """
    try:
        return parse(decode_base64url(token).decode())
    except (ValueError, InvalidRequestError):
        raise InvalidRequestError("pageToken is not one that this API gave", pointer="pageToken") from None


def _canonical(text: str) -> str:
    if Entity.from_id(text).id != text:
        raise ValueError(text)
    return text
