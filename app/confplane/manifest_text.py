"""Manifests as text, written entity by entity: those of ``confplane export`` and those of the API's exports."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from confplane.domain.manifests import API_VERSION, KIND, MEMBERS
from confplane.strict_yaml import dump_item, dump_members

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from confplane.domain.facets import FacetName

V = TypeVar("V")


def manifest_head(cluster: str, owner: str | None = None) -> str:
    """Return the lines before the member ``entities``. They name no cluster, so that the manifest fits any."""
    return (
        f"# Configs of the cluster {cluster}, for `confplane apply`. A secret is null, and kept.\n"
        f"apiVersion: {API_VERSION}\nkind: {KIND}\n" + ("" if owner is None else dump_members({"owner": owner}))
    )


class LabelsOfOwner:
    """The labels that an owner gave the entities of an export, as one manifest can have them: for all entities."""

    def __init__(self) -> None:
        self._found: list[dict[str, str]] = []

    def add(self, labels: Mapping[str, str]) -> None:
        """Add the labels of an entity."""
        if len(self._found) <= 1 and dict(labels) not in self._found:
            self._found.append(dict(labels))

    @property
    def members(self) -> dict[str, dict[str, str]]:
        """The member ``labels`` of the manifest; absent if there are none, or not all entities have the same."""
        return {"labels": self._found[0]} if len(self._found) == 1 and self._found[0] else {}

    @property
    def text(self) -> str:
        """The member after the last entity."""
        if len(self._found) > 1:
            return "# The labels of the entities differ, so the manifest has none.\n"
        return dump_members(self.members) if self.members else ""


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
