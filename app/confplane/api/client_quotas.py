"""Client quotas: the RPC-style methods of KIP-546, and the resources."""

from dataclasses import replace
from typing import Annotated, Final

from starlette.responses import Response

from confplane.api import kraft, reverts
from confplane.api.clients import models, rpc
from confplane.api.dependencies import CallDep, Consistency, IfNoneMatch, OpaquePageToken, PageSize
from confplane.api.resources import handlers, past
from confplane.api.resources.filters import Label, ListFilters, Owner
from confplane.api.reverts import RevertEntity
from confplane.api.routing.operations import change, partly, read
from confplane.api.routing.paths import entity_in_path
from confplane.api.routing.preconditions import ConditionalHeadersDep
from confplane.api.routing.routes import Routes
from confplane.api.schedules import Temporary
from confplane.api.services import (
    AlterDep,
    DescribeDep,
    EffectiveValuesDep,
    EntryRendererDep,
    HistoryDep,
    ResourceReadsDep,
    RevertsDep,
)
from confplane.domain import id_patterns
from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName
from confplane.services.limits import LimitClass

routes = Routes(tag="client-quotas")
_OF: Final = handlers.ResourceOperations.of(
    "client quotas",
    page=models.ClientQuotasList,
    resource=models.ClientQuotasResource,
    effective=models.EffectiveClientQuotas,
)
_Entity = Annotated[Entity, entity_in_path(id_patterns.QUOTA_ID, "user=alice")]


@routes.get("/v1/clusters/{cluster}/client-quotas", _OF.listing, checks=[Consistency])
async def list_client_quotas(  # noqa: PLR0913 - one argument a parameter is FastAPI's way
    call: CallDep,
    reads: ResourceReadsDep,
    *,
    filters: ListFilters,
    entity_id: handlers.EntityId = None,
    page_size: PageSize = 100,
    page_token: OpaquePageToken = None,
    at: past.At = None,
    owner: Owner = None,
    label: Label = None,
) -> Response:
    """The entities that the caller may describe, in the order of their ids."""
    query = replace(filters, id=entity_id, page_size=page_size, page_token=page_token)
    return await handlers.page(call, reads, FacetName.CLIENT_QUOTAS, query, at=at, owner=owner, label=label)


@routes.post("/v1/clusters/{cluster}/client-quotas", _OF.create, checks=[Temporary])
async def create_client_quotas(
    call: CallDep, alter: AlterDep, conditions: ConditionalHeadersDep, body: models.NewClientQuotas
) -> Response:
    """Refused with 409 if the entity has other content."""
    return await handlers.create(call, alter, FacetName.CLIENT_QUOTAS, conditions, body)


@routes.get("/v1/clusters/{cluster}/client-quotas/{id:path}/effective", _OF.effective, checks=[Consistency])
async def effective_client_quotas(
    call: CallDep, values: EffectiveValuesDep, entity: _Entity, if_none_match: IfNoneMatch = None
) -> Response:
    """Also for an entity without client quotas of its own."""
    await kraft.refresh_levels(call, FacetName.CLIENT_QUOTAS, [entity])
    found = values.effective(call.cluster_facet(FacetName.CLIENT_QUOTAS), entity)
    return handlers.polled(call.cluster, found, if_none_match)


@routes.post("/v1/clusters/{cluster}/client-quotas/{id:path}:revert", reverts.ENTITY)
async def revert_client_quotas(
    call: CallDep, service: RevertsDep, entity: _Entity, conditions: ConditionalHeadersDep, body: RevertEntity
) -> Response:
    """Revert the client quotas of an entity."""
    return await reverts.revert_entity(call, service, FacetName.CLIENT_QUOTAS, entity, conditions, body)


@routes.get("/v1/clusters/{cluster}/client-quotas/{id:path}/history", past.HISTORY)
async def history_client_quotas(
    call: CallDep, history: HistoryDep, entity: _Entity, page_size: PageSize = 100, page_token: OpaquePageToken = None
) -> Response:
    """List the changes of the client quotas of an entity."""
    return await past.history(call, history, FacetName.CLIENT_QUOTAS, entity, page_size, page_token)


@routes.get("/v1/clusters/{cluster}/client-quotas/{id:path}/diff", past.DIFF)
async def diff_client_quotas(
    call: CallDep, history: HistoryDep, entity: _Entity, from_: past.From = None, to: past.To = None
) -> Response:
    """Compare the client quotas of an entity at two moments."""
    return await past.diff(call, history, FacetName.CLIENT_QUOTAS, entity, from_, to)


@routes.get("/v1/clusters/{cluster}/client-quotas/{id:path}", _OF.get, checks=[Consistency])
async def get_client_quotas(
    call: CallDep,
    reads: ResourceReadsDep,
    entity: _Entity,
    if_none_match: IfNoneMatch = None,
    at: past.At = None,
    absent: handlers.Absent = None,
) -> Response:
    """404 for an entity without client quotas."""
    return await handlers.get(call, reads, FacetName.CLIENT_QUOTAS, entity, if_none_match, at=at, absent=absent)


@routes.put("/v1/clusters/{cluster}/client-quotas/{id:path}", _OF.put, checks=[Temporary])
async def put_client_quotas(
    call: CallDep, alter: AlterDep, entity: _Entity, conditions: ConditionalHeadersDep, body: models.ClientQuotasBody
) -> Response:
    """Keys that the body does not have are removed."""
    return await handlers.put(call, alter, FacetName.CLIENT_QUOTAS, entity, conditions, body)


@routes.delete("/v1/clusters/{cluster}/client-quotas/{id:path}", _OF.delete, checks=[Temporary])
async def delete_client_quotas(
    call: CallDep, alter: AlterDep, entity: _Entity, conditions: ConditionalHeadersDep
) -> Response:
    """404 if the entity has none."""
    return await handlers.delete(call, alter, FacetName.CLIENT_QUOTAS, entity, conditions)


@routes.post(
    "/v1/clusters/{cluster}/client-quotas:describe",
    read("Describe client quotas by a filter (KIP-546)", rpc.described(models.DescribedQuotas), limit=LimitClass.BULK),
    checks=[Consistency],
)
async def describe_client_quotas(
    call: CallDep, describe: DescribeDep, renderer: EntryRendererDep, body: models.DescribeClientQuotas
) -> Response:
    """Entities that match every component; not strict, they may have further components."""
    return await rpc.describe(call, describe, renderer, FacetName.CLIENT_QUOTAS, body.filter)


@routes.post(
    "/v1/clusters/{cluster}/client-quotas:alter",
    change(
        "Alter client quotas (KIP-546)",
        partly(models.AlteredQuotas, "Some entries failed"),
        problems=(412,),
        problem=models.AlterQuotasProblem,
    ),
    checks=[Temporary],
)
async def alter_client_quotas(call: CallDep, alter: AlterDep, body: models.AlterClientQuotas) -> Response:
    """One result per entry, in order; entries are independent unless `atomic`."""
    return await rpc.alter(call, alter, FacetName.CLIENT_QUOTAS, body)
