"""Resources as JSON, in the default and the full view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confplane.api.responses import number, timestamp
from confplane.domain.entities import Entity
from confplane.services.kraft.fresh import observed_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.domain.changes import Node
    from confplane.domain.facets import JsonValue
    from confplane.services.collections import Collection


def resource(collection: Collection, entity_id: str, declared: Mapping[str, JsonValue]) -> dict[str, Any]:
    """Return a resource in the default view."""
    return {"id": entity_id, collection.facet.member: {key: number(value) for key, value in declared.items()}}


async def full_resource(
    collection: Collection,
    entity_id: str,
    stored: Mapping[str, str],
    *,
    node: Node | None,
    warnings: Sequence[str] = (),
    looked_at: int | None = None,
    applied: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a resource in the full view: ``node`` as it is, ``stored`` as its map, real or planned.

    ``looked_at`` is the time of the request's own look at an observed Kafka cluster, milliseconds since the epoch;
    ``applied`` the member with the entity's standing there, empty where there is none.
    """
    entity = Entity.from_id(entity_id)
    observed = None if collection.laid_out else looked_at or observed_at(collection.store, entity)
    declared, etag = collection.tagged(entity, stored, node)
    fingerprints = await collection.fingerprints(entity, stored)
    return {
        **resource(collection, entity_id, declared),
        "entity": entity.as_dict(),
        "status": {
            "revision": None if node is None else str(node.mzxid),
            "etag": etag,
            "updatedAt": None if node is None else timestamp(node.mtime_ms),
            **({} if observed is None else {"observedAt": timestamp(observed)}),
            **(applied or {}),
            "warnings": list(warnings),
            **({} if fingerprints is None else {"fingerprints": fingerprints}),
        },
    }
