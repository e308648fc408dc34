"""Registrations (KIP-649): which client software supports which dynamic configs, per entity."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from app.api import patterns, schemas, views
from app.api.context import ClusterDep, CommonDep, PageSize, ServicesDep, ViewDep
from app.api.docs import problems_of
from app.api.idempotency import refuse_key
from app.api.responses import json_response
from app.api.routes import StrictRoute
from app.domain.entities import Entity
from app.domain.errors import InvalidRequestError

router = APIRouter(prefix="/v1/clusters/{cluster}/registrations", tags=["registrations"], route_class=StrictRoute)

_Id = Annotated[
    str | None,
    Query(
        alias="id",
        description="Entity id: `user=alice` or `user=alice,client-id=billing`",
        json_schema_extra={"pattern": patterns.ANY_ID},
    ),
]


@router.get(
    "",
    operation_id="listRegistrations",
    summary="List registrations, ordered by entity id",
    response_model=schemas.RegistrationPage,
    responses=problems_of(400, 404, 503),
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
    """What clients sent as `supportedConfigs`; a new one shows within seconds."""
    found, cursor = await services.registrations.search(
        cluster.name,
        entity_id=None if entity_id is None else Entity.from_id(entity_id, pointer="id").id,
        page_size=page_size,
        after=page_token,
    )
    items = [views.registration(*row) for row in found]
    return json_response(request, {"items": items, "nextPageToken": cursor})


@router.delete(
    "",
    operation_id="clearRegistrations",
    summary="Clear the registrations of one entity, or of all",
    response_model=schemas.ClearedRegistrations,
    responses=problems_of(400, 404, 503),
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
    """They come back as soon as a client registers again."""
    if not common.validate_only:
        refuse_key(request)
    if (entity_id is None) is not everything:
        raise InvalidRequestError("Say what to clear: either id=<entity id> or all=true", pointer="id")
    entity = None if entity_id is None else Entity.from_id(entity_id, pointer="id").id
    cleared = 0
    if not common.validate_only:
        cleared = await services.registrations.clear(
            cluster.name, entity_id=entity, principal=common.caller.principal, request_id=common.caller.request_id
        )
    return json_response(request, {"cleared": cleared})
