"""The RPC-style methods of KIP-546 and KIP-649, and effective values: one code for client quotas and client configs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from app.api import batches, looks
from app.api.rendered.entries import described
from app.api.responses import json_bytes, number
from app.api.routing.preconditions import entry_precondition
from app.domain.entities import Entity
from app.domain.errors import InvalidRequestError
from app.domain.ops import Op, OpType
from app.services.changes.edits import Edit, EditResult
from app.services.limits import LimitClass

if TYPE_CHECKING:
    from starlette.responses import Response

    from app.api.clients.models import Alter
    from app.api.context import Call
    from app.api.resources.routes import Resolve
    from app.domain.facets import FacetName
    from app.domain.filters import EntityFilter
    from app.services.collections import Collection
    from app.services.reads.describe import Effective


async def describe(call: Call, name: FacetName, wanted: EntityFilter) -> Response:
    """Answer a describe with the entities that a filter selects."""
    await looks.everything(call, name)
    collection = call.collection(name)
    selected = call.services.describe.select(collection, wanted)
    rendered = await call.services.entries.render(collection, selected, everything=wanted.everything)
    call.charge(LimitClass.BULK, len(rendered.entries))
    answer = described(rendered.entries, rendered.skipped, throttle_ms=call.throttle_ms(LimitClass.BULK))
    return json_bytes(call.cluster, answer)


async def alter(call: Call, name: FacetName, body: Alter[Any]) -> Response:
    """Answer an alter with one result per entry."""
    return await batches.alter(call, name, body, body.entries, _edit, _echo, member="entries")


def resolving(name: FacetName) -> Resolve:
    """Return the function that finds the effective values of a client in a facet."""

    async def resolve(call: Call, entity: Entity) -> tuple[dict[str, Any], str]:
        collection = call.collection(name)
        found, etag = call.services.describe.effective(collection, entity)
        return _effective(collection, found), etag

    return resolve


def _edit(index: int, entry: Any) -> Edit | EditResult:
    pointer = f"/entries/{index}"
    ops = tuple(
        Op(op.key, OpType.DELETE, pointer=f"{pointer}/ops/{position}")
        if op.remove
        else Op(op.key, OpType.SET, op.value, f"{pointer}/ops/{position}")
        for position, op in enumerate(entry.ops)
    )
    entity = Entity(())
    try:
        entity = Entity.from_components(
            ((component.entity_type, component.entity_name) for component in entry.entity), pointer=f"{pointer}/entity"
        )
        precondition = entry_precondition(entry.etag, pointer=f"{pointer}/etag")
    except InvalidRequestError as error:
        return EditResult(Edit(entity, ops, pointer=pointer), error)
    return Edit(entity, ops, precondition=precondition, pointer=f"{pointer}/entity")


def _echo(entry: Any) -> dict[str, Any]:
    return {"entity": [{"entityType": item.entity_type, "entityName": item.entity_name} for item in entry.entity]}


def _effective(collection: Collection, found: Effective) -> dict[str, Any]:
    """Return the effective values with their sources."""
    return {
        "id": found.entity.id,
        "entity": found.entity.as_dict(),
        collection.facet.member: [
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
                collection.facet.member: {key: number(value) for key, value in level.declared.items()},
            }
            for level in found.levels
        ],
        "warnings": list(found.warnings),
    }
