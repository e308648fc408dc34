"""The effective values of one client, as polled by applications, rendered once for the nodes that determine them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from confplane.api.rendering.entries import described, entry
from confplane.api.responses import PolledResponse, number
from confplane.domain.entities import CACHED_LENGTH
from confplane.services.reads.describe import exact_client

if TYPE_CHECKING:
    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.domain.filters import EntityFilter
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.reads.describe import DescribeService, EffectiveDescription

T = TypeVar("T")

_MOST_BYTES: Final = 32 << 20
"""Maximum bytes of the cached responses of one form."""
_OVERHEAD_BYTES: Final = 500
"""Overhead of a cached response in bytes: its key, its nodes, its entries in the ordered dict."""
_LONG: Final = 4_096
"""Maximum bytes of a response that is cached: about thirty configs."""


class EffectiveValueRenderer:
    """Renders the effective values of one client and caches the responses. Used by the event loop only.

    Nodes never change, so a response is valid as long as the nodes of its levels are the same.
    """

    def __init__(self, describe: DescribeService, *, most_bytes: int = _MOST_BYTES) -> None:
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
        size = length + len(entity.id) + _OVERHEAD_BYTES
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
