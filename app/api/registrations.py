"""Registrations (KIP-649): the dynamic configs that client software supports, per entity."""

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from app.api import patterns, schemas, views
from app.api.context import ClusterDep, CommonDep, PageSize, ServicesDep, ViewDep
from app.api.operations import Effect, Operation
from app.api.responses import json_response
from app.api.routes import Routes
from app.domain.entities import Entity
from app.domain.errors import InvalidRequestError

routes = Routes("/v1/clusters/{cluster}/registrations", tag="registrations")

_Id = Annotated[
    str | None,
    Query(
        alias="id",
        description="Entity id: `user=alice` or `user=alice,client-id=billing`",
        json_schema_extra={"pattern": patterns.ANY_ID},
    ),
]


@routes.get(
    "",
    Operation(
        "listRegistrations",
        "List registrations, ordered by entity id",
        {200: schemas.RegistrationPage},
        effect=Effect.NOTHING,
        tagged=False,
        problems=(503,),
    ),
)
async def list_registrations(
    request: Request,
    *,
    cluster: ClusterDep,
    services: ServicesDep,
    _: ViewDep,
    entity_id: _Id = None,
    page_size: PageSize = 100,
    page_token: Annotated[
        str | None, Query(alias="pageToken", description="nextPageToken of the page before", max_length=8192)
    ] = None,
) -> Response:
    """The `supportedConfigs` that clients sent; a new registration shows within seconds."""
    found, cursor = await services.registrations.search(
        cluster.name,
        entity_id=None if entity_id is None else Entity.from_id(entity_id, pointer="id").id,
        page_size=page_size,
        after=page_token,
    )
    items = [views.registration(*row) for row in found]
    return json_response(request, {"items": items, "nextPageToken": cursor})


@routes.delete(
    "",
    Operation(
        "clearRegistrations",
        "Clear the registrations of one entity, or of all",
        {200: schemas.ClearedRegistrations},
        effect=Effect.CLEARING,
        tagged=False,
        problems=(503,),
    ),
)
async def clear_registrations(
    request: Request,
    cluster: ClusterDep,
    services: ServicesDep,
    common: CommonDep,
    *,
    entity_id: _Id = None,
    everything: Annotated[bool, Query(alias="all", description="All entities of the cluster")] = False,
) -> Response:
    """A cleared registration returns as soon as a client registers again."""
    if (entity_id is None) is not everything:
        raise InvalidRequestError("Say what to clear: either id=<entity id> or all=true", pointer="id")
    entity = None if entity_id is None else Entity.from_id(entity_id, pointer="id").id
    cleared = 0
    if not common.validate_only:
        cleared = await services.registrations.clear(
            cluster.name, entity_id=entity, principal=common.caller.principal, request_id=common.caller.request_id
        )
    return json_response(request, {"cleared": cleared})
