"""JSON that is rendered once for each node and then cached. Nodes never change, so a cached text remains valid.

- The entries of describes: a describe of 100,000 entities is a walk over them and some joins. A cached entry costs
  about 350 bytes.
- The effective values of one client, as polled by applications, for the nodes that determine them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import orjson

from confplane.api.responses import PIECE, PolledResponse, number
from confplane.domain.entities import CACHED_LENGTH, split_id
from confplane.domain.errors import CorruptZnodeError
from confplane.domain.facets import FacetName
from confplane.services.reads.describe import exact_client

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterable,
        AsyncIterator,
        Callable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.domain.facets import JsonValue
    from confplane.domain.filters import EntityFilter
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.registrations import ClientRegistration
    from confplane.services.reads.describe import DescribeService, EffectiveDescription, Selected

T = TypeVar("T")

_EntryCache = dict[str, tuple["Node", bytes | None]]

_DESCRIBED: Final = b'{"throttleTimeMs":%d,"errorCode":0,"errorMessage":null,"entries":['
_UNDELAYED: Final = _DESCRIBED % 0
_NOBODY: Final = b',"entityCompatibility":[]}'
_ENTRY_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of all cached entries."""
_ENTRY_OVERHEAD: Final = 200
"""Bytes of a cached entry in addition to its text."""
_RESPONSE_BYTES: Final = 32 << 20
"""Maximum bytes of the cached responses of one form."""
_RESPONSE_OVERHEAD: Final = 500
"""Overhead of a cached response in bytes: its key, its nodes, its entries in the ordered dict."""
_LONG: Final = 4_096
"""Maximum bytes of a response that is cached: about thirty configs."""


class EntryRenderer:
    """Renders entries and caches them. Not thread-safe: used by the event loop only.

    Args:
        describe: The entities and their values.
        slack: Number of cached entries of removed entities that starts a cleanup.
        most: Maximum number of bytes of all cached entries; further entries are rendered each time.
    """

    def __init__(self, describe: DescribeService, *, slack: int = 10_000, most: int = _ENTRY_BYTES) -> None:
        self._describe = describe
        self._slack = slack
        self._most = most
        self._cached = 0
        self._cache: dict[tuple[str, str], _EntryCache] = {}

    async def render(
        self,
        cluster_facet: ClusterFacet,
        selected: AsyncIterable[Iterable[Selected]],
        skipped: list[str],
        *,
        everything: bool = False,
    ) -> AsyncIterator[list[bytes]]:
        """Yield the entries of selected entities in slices, in the order of their ids, each as a whole JSON object.

        An entity that declares nothing has an entry only if clients are registered for it.

        Args:
            cluster_facet: The facet of the cluster.
            selected: The entities, in slices.
            skipped: Gets the paths of the znodes that can't be read.
            everything: The selected entities are all that the caller may see of the facet. If these are all entities,
                other cached entries may be dropped.
        """
        kept = self._cache.setdefault((cluster_facet.store.name, cluster_facet.name.value), {})
        cleans = everything and cluster_facet.access is None
        ids: set[str] = set()
        async for part in selected:
            found = list(self._rendered(cluster_facet, kept, part, skipped))
            if cleans:
                ids.update([entity_id for entity_id, _ in found if entity_id in kept])
            yield [ready for _, ready in found]
        if cleans and len(kept) > len(ids) + self._slack:
            for entity_id in kept.keys() - ids:
                self._cached -= _size(kept.pop(entity_id)[1])

    def _rendered(
        self, cluster_facet: ClusterFacet, kept: _EntryCache, part: Iterable[Selected], skipped: list[str]
    ) -> Iterator[tuple[str, bytes]]:
        """Yield the entries of a slice with their ids; append the paths of unreadable znodes to ``skipped``."""
        with_clients = cluster_facet.name is FacetName.CLIENT_CONFIGS
        for entity_id, node, known in part:
            found = kept.get(entity_id)
            if found is not None and found[0] is node:
                ready = found[1]
            else:
                try:
                    ready = self._ready(cluster_facet, entity_id, node)
                except CorruptZnodeError as error:
                    skipped.append(error.path)
                    ready = None
                else:
                    self._keep(kept, entity_id, node, ready)
            if known:
                yield entity_id, _with_clients(_head(entity_id, {}) if ready is None else ready, known)
            elif ready is not None:
                yield entity_id, ready + _NOBODY if with_clients else ready

    def _keep(self, kept: _EntryCache, entity_id: str, node: Node | None, ready: bytes | None) -> None:
        before = kept.pop(entity_id, None)
        if before is not None:
            self._cached -= _size(before[1])
        if node is not None and self._cached + _size(ready) <= self._most:
            kept[entity_id] = (node, ready)
            self._cached += _size(ready)

    def _ready(self, cluster_facet: ClusterFacet, entity_id: str, node: Node | None) -> bytes | None:
        """Return an entry to cache, or None if nothing is declared. It is left open if the facet lists clients.

        Raises:
            CorruptZnodeError: The node can't be read.
        """
        declared = self._describe.declared(cluster_facet, entity_id, node)
        if not declared:
            return None
        return (_head if cluster_facet.name is FacetName.CLIENT_CONFIGS else entry)(entity_id, declared)


def _size(ready: bytes | None) -> int:
    return _ENTRY_OVERHEAD + (0 if ready is None else len(ready))


def entry(entity_id: str, declared: Mapping[str, JsonValue]) -> bytes:
    """Return one entry without its known clients."""
    return _head(entity_id, declared) + b"}"


class Form(NamedTuple):
    """A form of a response with many entries, such as JSON, or a line of JSON for each entry and one for the rest."""

    media_type: str
    joined: Callable[[list[bytes], bool], bytes]
    """Returns a piece with some entries, the first of all or later ones."""
    head: Callable[[int], bytes]
    """Returns the text before the entries, with the milliseconds to wait before the next request."""
    tail: Callable[[int, Sequence[str]], bytes]
    """Returns the text after the entries, with these milliseconds and the paths of the znodes that can't be read."""


async def pieces(parts: AsyncIterable[Sequence[bytes]], form: Form) -> AsyncGenerator[bytes, None]:
    """Yield the entries of a response in pieces of at least :data:`PIECE` bytes but the last."""
    waiting: list[bytes] = []
    size, first = 0, True
    async for part in parts:
        waiting += part
        size += sum(map(len, part))
        if size >= PIECE:
            yield form.joined(waiting, first)
            waiting, size, first = [], 0, False
    if waiting:
        yield form.joined(waiting, first)


def _tail(skipped: Sequence[str]) -> bytes:
    return b'],"skipped":' + orjson.dumps(skipped) + b"}"


def _last_line(throttle_ms: int, skipped: Sequence[str]) -> bytes:
    rest = {"throttleTimeMs": throttle_ms, "errorCode": 0, "errorMessage": None, "skipped": skipped}
    return orjson.dumps(rest, option=orjson.OPT_APPEND_NEWLINE)


WHOLE: Final = Form(
    "application/json",
    lambda entries, first: (b"" if first else b",") + b",".join(entries),
    lambda throttle_ms: _DESCRIBED % throttle_ms,
    lambda _, skipped: _tail(skipped),
)
LINES: Final = Form(
    "application/x-ndjson",
    lambda entries, _: b"\n".join([*entries, b""]),
    lambda _: b"",
    _last_line,
)


def described(entries: Iterable[bytes], skipped: Sequence[str]) -> bytes:
    """Return the answer of a describe that the caller need not wait after."""
    return _UNDELAYED + b",".join(entries) + _tail(skipped)


def delayed(answer: bytes, throttle_ms: int) -> bytes:
    """Return a cached answer of a describe, with the milliseconds that the caller should wait."""
    return answer if throttle_ms == 0 else _DESCRIBED % throttle_ms + answer.removeprefix(_UNDELAYED)


def _with_clients(head: bytes, known: Sequence[ClientRegistration]) -> bytes:
    """Return an entry with its known clients, from an entry that is still open."""
    return head + b',"entityCompatibility":' + orjson.dumps([compatibility(each) for each in known]) + b"}"


def _head(entity_id: str, declared: Mapping[str, JsonValue]) -> bytes:
    """Return an entry that is still open: without the closing brace, so that more members can follow."""
    return orjson.dumps({"entity": _entity_data(entity_id), "values": _values(declared)})[:-1]


def _entity_data(entity_id: str) -> list[dict[str, str | None]]:
    """Return an entity in the form of the RPCs."""
    return [{"entityType": kind, "entityName": name} for kind, name in split_id(entity_id)]


def _values(declared: Mapping[str, JsonValue]) -> list[dict[str, Any]]:
    """Return values in the form of the RPCs."""
    return [{"key": key, "value": number(value)} for key, value in declared.items()]


def compatibility(found: ClientRegistration) -> dict[str, Any]:
    """Return a registration in the form of a describe."""
    return {
        "clientInformation": {"softwareName": found.software_name, "softwareVersion": found.software_version},
        "supportedConfigs": list(found.supported_configs),
    }


class EffectiveValueRenderer:
    """Renders the effective values of one client and caches the responses. Used by the event loop only.

    Nodes never change, so a response is valid as long as the nodes of its levels are the same.
    """

    def __init__(self, describe: DescribeService, *, most_bytes: int = _RESPONSE_BYTES) -> None:
        self._describe = describe
        self._resolved = _ResponseCache[bytes](most_bytes)
        self._effective = _ResponseCache[PolledResponse](most_bytes)

    def resolved(self, cluster_facet: ClusterFacet, wanted: EntityFilter) -> bytes:
        """Return a describe's answer with the effective configs of the client that a filter names.

        Raises:
            InvalidRequestError: The filter does not name an exact user, or its client-id is not exact.
            ForbiddenError: The caller may not resolve the client.
            CorruptZnodeError: One of the nodes that determine the values can't be read.
        """
        entity = exact_client(wanted, "resolveEntity")
        nodes = self._describe.deciding(cluster_facet, entity)
        found = self._resolved.find(cluster_facet, entity, nodes)
        if found is None:
            found = described([entry(entity.id, self._describe.decided(cluster_facet, nodes))], [])
            self._resolved.keep(cluster_facet, entity, nodes, found, len(found))
        return found

    def effective(self, cluster_facet: ClusterFacet, entity: Entity) -> PolledResponse:
        """Return the effective quotas or client configs of an entity with their sources.

        Raises:
            InvalidRequestError: The facet has no entities of this type.
            ForbiddenError: The caller may not describe the entity, or resolve it in the case of client configs.
            CorruptZnodeError: One of the nodes that determine the values can't be read.
        """
        nodes = self._describe.deciding(cluster_facet, entity)
        found = self._effective.find(cluster_facet, entity, nodes)
        if found is None:
            effective, etag = self._describe.effective(cluster_facet, entity, nodes)
            found = PolledResponse.of(_content(cluster_facet, effective), etag)
            self._effective.keep(cluster_facet, entity, nodes, found, len(found.body))
        return found


class _ResponseCache(Generic[T]):
    """The responses of one form, each with the nodes that it was made from. The oldest are evicted first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        # Ordered by a linked list: finding the first entry of a plain dict becomes slower with each removed entry.
        self._answers: OrderedDict[tuple[str, str, str], tuple[tuple[Node | None, ...], T, int]] = OrderedDict()
        self._bytes = 0

    def find(self, cluster_facet: ClusterFacet, entity: Entity, nodes: tuple[Node | None, ...]) -> T | None:
        """Return the response that was made from these nodes, or None if it is not cached."""
        found = self._answers.get((cluster_facet.store.name, cluster_facet.name, entity.id))
        return found[1] if found is not None and found[0] == nodes else None

    def keep(
        self, cluster_facet: ClusterFacet, entity: Entity, nodes: tuple[Node | None, ...], answer: T, length: int
    ) -> None:
        """Cache a response of a length in bytes, unless the entity's name or the response is long."""
        key = cluster_facet.store.name, cluster_facet.name, entity.id
        if (replaced := self._answers.pop(key, None)) is not None:
            self._bytes -= replaced[2]
        if length > _LONG or len(entity.id) > CACHED_LENGTH:
            return
        size = length + len(entity.id) + _RESPONSE_OVERHEAD
        self._answers[key] = nodes, answer, size
        self._bytes += size
        while self._bytes > self._most_bytes:
            self._bytes -= self._answers.popitem(last=False)[1][2]


def _content(cluster_facet: ClusterFacet, found: EffectiveDescription) -> dict[str, Any]:
    """Return effective values with their sources, as JSON."""
    return {
        "id": found.entity.id,
        "entity": found.entity.as_dict(),
        cluster_facet.facet.member: [
            {
                "key": item.key,
                "value": number(item.value),
                "source": item.source,
                "synonyms": [
                    {"source": synonym.source, "level": synonym.level, "value": number(synonym.value)}
                    for synonym in item.synonyms
                ],
            }
            for item in found.values
        ],
        "levels": [
            {
                "level": level.level,
                "id": level.entity_id,
                "reason": level.reason,
                "sharedBy": level.shared_by,
                cluster_facet.facet.member: {key: number(value) for key, value in level.declared.items()},
            }
            for level in found.levels
        ],
        "warnings": list(found.warnings),
    }
