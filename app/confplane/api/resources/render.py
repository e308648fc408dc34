"""Resources as JSON, in the default and the full view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confplane.api.responses import number, timestamp
from confplane.domain.entities import Entity
from confplane.services.kraft.refresh import observed_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.domain.changes import Node
    from confplane.domain.facets import JsonValue
    from confplane.services.cluster_facet import ClusterFacet


def resource(cluster_facet: ClusterFacet, entity_id: str, declared: Mapping[str, JsonValue]) -> dict[str, Any]:
    """Return a resource in the default view."""
    return {"id": entity_id, cluster_facet.facet.member: {key: number(value) for key, value in declared.items()}}


async def full_resource(
    cluster_facet: ClusterFacet,
    entity_id: str,
    stored: Mapping[str, str],
    *,
    node: Node | None,
    warnings: Sequence[str] = (),
    refreshed_at: int | None = None,
    members: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a resource in the full view: ``node`` unchanged, and ``stored`` as its map, actual or planned.

    ``refreshed_at`` is the time of the request's own refresh of an observed Kafka cluster, in milliseconds since the
    epoch. ``members`` are further members of the status.
    """
    entity = Entity.from_id(entity_id)
    observed = None if cluster_facet.laid_out else refreshed_at or observed_at(cluster_facet.store, entity)
    declared, etag = cluster_facet.tagged(entity, stored, node)
    managed = sorted(cluster_facet.managed_keys(entity) & declared.keys())
    fingerprints = await cluster_facet.fingerprints(entity, stored)
    return {
        **resource(cluster_facet, entity_id, declared),
        "entity": entity.as_dict(),
        "status": {
            "revision": None if node is None else str(node.mzxid),
            "etag": etag,
            "updatedAt": None if node is None else timestamp(node.mtime_ms),
            **({} if observed is None else {"observedAt": timestamp(observed)}),
            **({"managedKeys": managed} if managed else {}),
            **(members or {}),
            "warnings": list(warnings),
            **({} if fingerprints is None else {"fingerprints": fingerprints}),
        },
    }
