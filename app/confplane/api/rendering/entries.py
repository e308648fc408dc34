"""The entries of describes as JSON, cached per node.

Nodes never change, so an entity's declared values are rendered once and then reused as bytes: a describe of 100,000
entities is a walk over them and one join. A cached entry costs about 350 bytes for each entity that was ever described.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from confplane.api.responses import number
from confplane.domain.entities import split_id
from confplane.domain.errors import CorruptZnodeError
from confplane.domain.facets import FacetName

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence

    from confplane.domain.changes import Node
    from confplane.domain.facets import JsonValue
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.registrations import ClientRegistration
    from confplane.services.reads.describe import DescribeService, Selected

_EntryCache = dict[str, tuple["Node", bytes | None]]

_DESCRIBED: Final = b'{"throttleTimeMs":%d,"errorCode":0,"errorMessage":null,"entries":['
_UNDELAYED: Final = _DESCRIBED % 0
_NOBODY: Final = b',"entityCompatibility":[]}'


class RenderedEntries(NamedTuple):
    """A describe as JSON: the entries in the order of their ids, and the paths of the znodes that can't be read."""

    entries: list[bytes]
    skipped: list[str]


class EntryRenderer:
    """Renders entries and caches them. Not thread-safe: used by the event loop only.

    Args:
        describe: The entities and their values.
        slack: Number of cached entries of removed entities that starts a cleanup.
    """

    def __init__(self, describe: DescribeService, *, slack: int = 10_000) -> None:
        self._describe = describe
        self._slack = slack
        self._cache: dict[tuple[str, str], _EntryCache] = {}

    async def render(
        self, cluster_facet: ClusterFacet, selected: AsyncIterable[Iterable[Selected]], *, everything: bool = False
    ) -> RenderedEntries:
        """Return the entries of selected entities, each as a whole JSON object.

        An entity that declares nothing has an entry only if clients are registered for it.

        Args:
            cluster_facet: The facet of the cluster.
            selected: The entities, in slices.
            everything: The selected entities are all that the caller may see of the facet. If these are all entities,
                other cached entries may be dropped.
        """
        key = cluster_facet.store.name, cluster_facet.name.value
        kept = self._cache.setdefault(key, {})
        rendered = RenderedEntries([], [])
        ids: list[str] = []
        async for part in selected:
            for entity_id, ready in self._rendered(cluster_facet, kept, part, rendered.skipped):
                ids.append(entity_id)
                rendered.entries.append(ready)
        if everything and cluster_facet.access is None and len(kept) > len(ids) + self._slack:
            self._cache[key] = {entity_id: kept[entity_id] for entity_id in ids if entity_id in kept}
        return rendered

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
                    if node is not None:
                        kept[entity_id] = (node, ready)
            if known:
                yield entity_id, _with_clients(_head(entity_id, {}) if ready is None else ready, known)
            elif ready is not None:
                yield entity_id, ready + _NOBODY if with_clients else ready

    def _ready(self, cluster_facet: ClusterFacet, entity_id: str, node: Node | None) -> bytes | None:
        """Return an entry to cache, or None if nothing is declared. It is left open if the facet lists clients.

        Raises:
            CorruptZnodeError: The node can't be read.
        """
        declared = self._describe.declared(cluster_facet, entity_id, node)
        if not declared:
            return None
        return (_head if cluster_facet.name is FacetName.CLIENT_CONFIGS else entry)(entity_id, declared)


def entry(entity_id: str, declared: Mapping[str, JsonValue]) -> bytes:
    """Return one entry without its known clients."""
    return _head(entity_id, declared) + b"}"


def described(entries: Iterable[bytes], skipped: Sequence[str], *, throttle_ms: int = 0) -> bytes:
    """Return the answer of a describe.

    Args:
        entries: The entries.
        skipped: The paths of the znodes that can't be read.
        throttle_ms: Milliseconds that the caller should wait before the next request.
    """
    return _DESCRIBED % throttle_ms + b",".join(entries) + b'],"skipped":' + orjson.dumps(skipped) + b"}"


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
