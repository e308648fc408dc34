"""Owners and labels of entities: members of the full view, and filters of lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query

from confplane.api import kraft
from confplane.domain.errors import UnavailableError
from confplane.domain.ownership import OWNER_PATTERN, OwnershipFilter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from confplane.api.dependencies import Call
    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.reads.owners import OwnerViews

Owner = Annotated[
    str | None,
    Query(
        description="Only entities of which this owner has keys. Changes of owners are seen within seconds",
        json_schema_extra={"pattern": OWNER_PATTERN},
    ),
]
Label = Annotated[
    str | None,
    Query(description="Only entities with this label: its name, =, and its value, as in `stage=production`"),
]


def selection(
    owners: OwnerViews, cluster_facet: ClusterFacet, owner: str | None, label: str | None
) -> Callable[[Entity], Awaitable[bool]] | None:
    """Return the predicate of a list's filters; None: every entity."""
    wanted = OwnershipFilter.parse(owner, label)
    return None if wanted is None else owners.selection(cluster_facet, wanted)


async def status_members(
    call: Call, owners: OwnerViews, cluster_facet: ClusterFacet, nodes: Sequence[Node]
) -> dict[str, dict[str, Any]]:
    """Return the members of the status that Postgres has, by entity id. None of them while it is unavailable."""
    found = await kraft.read_status(call, cluster_facet, nodes)
    try:
        ownerships = await owners.of_nodes(cluster_facet, nodes)
    except UnavailableError:
        return found
    for entity_id, ownership in ownerships.items():
        members = {"owners": dict(ownership.owners), "labels": {key: dict(of) for key, of in ownership.labels.items()}}
        found[entity_id] = {**found.get(entity_id, {}), **members}
    return found
