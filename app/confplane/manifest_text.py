"""Manifests as text, written entity by entity: those of ``confplane export`` and those of the API's exports."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from confplane.domain.manifests import API_VERSION, KIND, MEMBERS
from confplane.strict_yaml import dump_item

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from confplane.domain.facets import FacetName

V = TypeVar("V")


def manifest_head(cluster: str) -> str:
    """Return the lines before the member ``entities``. They name no cluster, so that the manifest fits any."""
    return (
        f"# Configs of the cluster {cluster}, for `confplane apply`. A secret is null, and kept.\n"
        f"apiVersion: {API_VERSION}\nkind: {KIND}\n"
    )


NO_ENTITIES = "entities: []\n"
"""The member of a manifest without entities."""
ENTITIES = "entities:\n"
"""The line before the first entity."""


def entity_text(entity_id: str, facets: Mapping[FacetName, Mapping[str, object]]) -> str:
    """Return an entity as an item of a YAML list."""
    return dump_item(entity_member(entity_id, facets))


def entity_member(entity_id: str, facets: Mapping[FacetName, V]) -> dict[str, str | V]:
    """Return an entity as an element of the member ``entities``."""
    return {"id": entity_id} | {MEMBERS[facet]: values for facet, values in facets.items()}


async def join_facets(
    lists: Mapping[FacetName, AsyncIterator[tuple[str, V]]],
) -> AsyncIterator[tuple[str, dict[FacetName, V]]]:
    """Yield each entity with its content in each facet. The lists of the facets are ordered by the entities' ids."""
    heads = {facet: await anext(items, None) for facet, items in lists.items()}
    while ids := [head[0] for head in heads.values() if head is not None]:
        first = min(ids)
        found: dict[FacetName, V] = {}
        for facet, head in heads.items():
            if head is not None and head[0] == first:
                found[facet] = head[1]
                heads[facet] = await anext(lists[facet], None)
        yield first, found
