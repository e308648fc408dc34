"""Registrations (KIP-649): the dynamic configs that client software supports, per entity."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from confplane.api.clients.models import Software
from confplane.api.dependencies import CallDep, OpaquePageToken, PageSize
from confplane.api.models import AnswerModel, Count, EntityId, EntityNames, Page, Time
from confplane.api.rendering import compatibility
from confplane.api.responses import json_response, page_response
from confplane.api.routing.operations import Effect, RouteOperation, read
from confplane.api.routing.routes import Routes
from confplane.api.services import RegistrationsDep
from confplane.domain import id_patterns
from confplane.domain.entities import Entity, split_id
from confplane.domain.errors import InvalidRequestError
from confplane.domain.texts import rfc3339
from confplane.services.limits import LimitClass
from confplane.services.ports.registrations import ClientRegistration
from confplane.services.reads import registrations

routes = Routes(tag="registrations")

_Id = Annotated[
    str | None,
    Query(
        alias="id",
        description="Entity id: `user=alice` or `user=alice,client-id=billing`",
        json_schema_extra={"pattern": id_patterns.ANY_ID},
    ),
]


class RegistrationData(AnswerModel):
    """The configs that one client software says it supports, for one entity."""

    id: EntityId
    entity: EntityNames
    client_information: Software
    supported_configs: list[str]
    first_seen_at: Time
    last_seen_at: Time


class RegistrationPage(Page[RegistrationData]):
    """A page, ordered by entity id."""


class ClearedRegistrations(AnswerModel):
    """The number of registrations that were hidden."""

    cleared: Count


@routes.get(
    "/v1/clusters/{cluster}/registrations",
    read("List registrations, ordered by entity id", RegistrationPage, limit=LimitClass.BULK, problems=(503,)),
)
async def list_registrations(
    call: CallDep,
    log: RegistrationsDep,
    *,
    entity_id: _Id = None,
    page_size: PageSize = 100,
    page_token: OpaquePageToken = None,
) -> Response:
    """The `supportedConfigs` that clients sent; a new registration shows within seconds."""
    found, cursor = await registrations.search(
        log,
        call.access,
        call.cluster.name,
        entity_id=None if entity_id is None else Entity.from_id(entity_id, pointer="id").id,
        page_size=page_size,
        after=page_token,
    )
    call.charge(LimitClass.BULK, len(found))
    items = [_registration(*row) for row in found]
    return page_response(call.request, items, cursor)


@routes.delete(
    "/v1/clusters/{cluster}/registrations",
    RouteOperation(
        "Clear the registrations of one entity, or of all",
        {200: ClearedRegistrations},
        effect=Effect.CLEARING,
        limit=LimitClass.WRITE,
        problems=(503,),
    ),
)
async def clear_registrations(
    call: CallDep,
    log: RegistrationsDep,
    *,
    entity_id: _Id = None,
    everything: Annotated[bool, Query(alias="all", description="All entities of the cluster")] = False,
) -> Response:
    """A cleared registration returns as soon as a client registers again."""
    if (entity_id is None) is not everything:
        raise InvalidRequestError("Say what to clear: either id=<entity id> or all=true", pointer="id")
    entity = None if entity_id is None else Entity.from_id(entity_id, pointer="id").id
    cleared = await registrations.clear(
        log,
        call.access,
        call.cluster.name,
        entity_id=entity,
        validate_only=call.validate_only,
    )
    return json_response(call.request, {"cleared": cleared})


def _registration(found: ClientRegistration, first_seen: datetime, last_seen: datetime) -> dict[str, Any]:
    """Return a registration in the form of its own collection."""
    return {
        "id": found.entity_id,
        "entity": dict(split_id(found.entity_id)),
        **compatibility(found),
        "firstSeenAt": rfc3339(first_seen),
        "lastSeenAt": rfc3339(last_seen),
    }
