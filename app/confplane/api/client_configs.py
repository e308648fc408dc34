"""Client configs: the RPC-style methods of KIP-649, and the resources."""

from dataclasses import replace
from typing import Annotated, Final

from starlette.responses import Response

from confplane.api import kraft, reverts
from confplane.api.applied import Applied, applied_filter
from confplane.api.clients import models, rpc
from confplane.api.dependencies import Call, CallDep, Consistency, IfNoneMatch, OpaquePageToken, PageSize
from confplane.api.rendering import delayed
from confplane.api.resources import handlers, past
from confplane.api.resources.filters import Label, ListFilters, Owner
from confplane.api.responses import json_bytes
from confplane.api.reverts import RevertEntity
from confplane.api.routing.bounded import while_wanted
from confplane.api.routing.operations import change, partly, read
from confplane.api.routing.paths import entity_in_path
from confplane.api.routing.preconditions import ConditionalHeadersDep
from confplane.api.routing.routes import Routes
from confplane.api.schedules import Temporary
from confplane.api.services import (
    AlterDep,
    AppliedDep,
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
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.limits import BYTES_OF_UNIT, LimitClass
from confplane.services.reads.describe import DescribeService, RegistrationRequest

_IGNORED: Final = (b"confplane-registration", b"ignored")

routes = Routes(tag="client-configs")
_OF: Final = handlers.ResourceOperations.of(
    "client configs",
    page=models.ClientConfigsList,
    resource=models.ClientConfigsResource,
    effective=models.EffectiveClientConfigs,
)
_Entity = Annotated[Entity, entity_in_path(id_patterns.CONFIG_ID, "user=alice")]


@routes.get("/v1/clusters/{cluster}/client-configs", _OF.listing, checks=[Consistency])
async def list_client_configs(  # noqa: PLR0913 - one argument a parameter is FastAPI's way
    call: CallDep,
    reports: AppliedDep,
    reads: ResourceReadsDep,
    *,
    filters: ListFilters,
    entity_id: handlers.EntityId = None,
    page_size: PageSize = 100,
    page_token: OpaquePageToken = None,
    at: past.At = None,
    owner: Owner = None,
    label: Label = None,
    applied: Applied = None,
) -> Response:
    """The entities that the caller may describe, in the order of their ids."""
    query = replace(filters, id=entity_id, page_size=page_size, page_token=page_token)
    test = applied_filter(reports, call.cluster_facet(FacetName.CLIENT_CONFIGS), wanted=applied)
    return await handlers.page(
        call, reads, FacetName.CLIENT_CONFIGS, query, at=at, owner=owner, label=label, applied=test
    )


@routes.post("/v1/clusters/{cluster}/client-configs", _OF.create, checks=[Temporary])
async def create_client_configs(
    call: CallDep, alter: AlterDep, conditions: ConditionalHeadersDep, body: models.NewClientConfigs
) -> Response:
    """Refused with 409 if the entity has other content."""
    return await handlers.create(call, alter, FacetName.CLIENT_CONFIGS, conditions, body)


@routes.get("/v1/clusters/{cluster}/client-configs/{id:path}/effective", _OF.effective, checks=[Consistency])
async def effective_client_configs(
    call: CallDep, values: EffectiveValuesDep, entity: _Entity, if_none_match: IfNoneMatch = None
) -> Response:
    """Also for an entity without client configs of its own."""
    await kraft.refresh_levels(call, FacetName.CLIENT_CONFIGS, [entity])
    found = values.effective(call.cluster_facet(FacetName.CLIENT_CONFIGS), entity)
    return handlers.polled(call.cluster, found, if_none_match)


@routes.post("/v1/clusters/{cluster}/client-configs/{id:path}:revert", reverts.ENTITY)
async def revert_client_configs(
    call: CallDep, service: RevertsDep, entity: _Entity, conditions: ConditionalHeadersDep, body: RevertEntity
) -> Response:
    """Revert the client configs of an entity."""
    return await reverts.revert_entity(call, service, FacetName.CLIENT_CONFIGS, entity, conditions, body)


@routes.get("/v1/clusters/{cluster}/client-configs/{id:path}/history", past.HISTORY)
async def history_client_configs(
    call: CallDep, history: HistoryDep, entity: _Entity, page_size: PageSize = 100, page_token: OpaquePageToken = None
) -> Response:
    """List the changes of the client configs of an entity."""
    return await past.history(call, history, FacetName.CLIENT_CONFIGS, entity, page_size, page_token)


@routes.get("/v1/clusters/{cluster}/client-configs/{id:path}/diff", past.DIFF)
async def diff_client_configs(
    call: CallDep, history: HistoryDep, entity: _Entity, from_: past.From = None, to: past.To = None
) -> Response:
    """Compare the client configs of an entity at two moments."""
    return await past.diff(call, history, FacetName.CLIENT_CONFIGS, entity, from_, to)


@routes.get("/v1/clusters/{cluster}/client-configs/{id:path}", _OF.get, checks=[Consistency])
async def get_client_configs(
    call: CallDep,
    reads: ResourceReadsDep,
    entity: _Entity,
    if_none_match: IfNoneMatch = None,
    at: past.At = None,
    absent: handlers.Absent = None,
) -> Response:
    """404 for an entity without client configs."""
    return await handlers.get(call, reads, FacetName.CLIENT_CONFIGS, entity, if_none_match, at=at, absent=absent)


@routes.put("/v1/clusters/{cluster}/client-configs/{id:path}", _OF.put, checks=[Temporary])
async def put_client_configs(
    call: CallDep, alter: AlterDep, entity: _Entity, conditions: ConditionalHeadersDep, body: models.ClientConfigsBody
) -> Response:
    """Keys that the body does not have are removed."""
    return await handlers.put(call, alter, FacetName.CLIENT_CONFIGS, entity, conditions, body)


@routes.delete("/v1/clusters/{cluster}/client-configs/{id:path}", _OF.delete, checks=[Temporary])
async def delete_client_configs(
    call: CallDep, alter: AlterDep, entity: _Entity, conditions: ConditionalHeadersDep
) -> Response:
    """404 if the entity has none."""
    return await handlers.delete(call, alter, FacetName.CLIENT_CONFIGS, entity, conditions)


@routes.post(
    "/v1/clusters/{cluster}/client-configs:describe",
    read(
        "Describe client configs by a filter, or resolve them for one client (KIP-649)",
        rpc.described(models.DescribedConfigs),
        limit=LimitClass.READ,
    ),
    checks=[Consistency],
)
async def describe_client_configs(
    call: CallDep,
    describe: DescribeDep,
    values: EffectiveValuesDep,
    renderer: EntryRendererDep,
    body: models.DescribeClientConfigs,
) -> Response:
    """Polled by applications: with `resolveEntity` the answer is the one set of configs effective for them.

    A registration (`supportedConfigs`) needs REPORT on the user. A caller without it gets its answer all the same, with
    the header `Confplane-Registration: ignored`. With `resolveEntity` the answer is always JSON.
    """
    cluster_facet = call.cluster_facet(FacetName.CLIENT_CONFIGS)
    if body.resolve_entity:
        answer = values.resolved(cluster_facet, body.filter)
        registered = _register(call, describe, cluster_facet, body)
        response = json_bytes(call.cluster, delayed(answer, call.throttle_ms(LimitClass.READ)))
    else:
        call.take(LimitClass.BULK)
        registered = _register(call, describe, cluster_facet, body)
        work = rpc.describe(call, describe, renderer, FacetName.CLIENT_CONFIGS, body.filter)
        response = await (work if body.brief else while_wanted(call.request, work))
    if not registered:
        response.raw_headers.append(_IGNORED)
    return response


def _register(
    call: Call, describe: DescribeService, cluster_facet: ClusterFacet, body: models.DescribeClientConfigs
) -> bool:
    """Take the registration of a describe that has one; return False if it is ignored."""
    if body.supported_configs is None:
        return True
    information = body.client_information
    # Beyond the request itself, so that a poll with a usual registration costs what any poll costs.
    call.charge(LimitClass.READ, sum(map(len, body.supported_configs)) // BYTES_OF_UNIT)
    return describe.register(
        cluster_facet,
        body.filter,
        RegistrationRequest(
            tuple(body.supported_configs),
            None if information is None else information.software_name,
            None if information is None else information.software_version,
        ),
    )


@routes.post(
    "/v1/clusters/{cluster}/client-configs:alter",
    change(
        "Alter client configs (KIP-649)",
        partly(models.AlteredConfigs, "Some entries failed"),
        problems=(412,),
        problem=models.AlterConfigsProblem,
    ),
    checks=[Temporary],
)
async def alter_client_configs(call: CallDep, alter: AlterDep, body: models.AlterClientConfigs) -> Response:
    """One result per entry, in order; entries are independent unless `atomic`.

    A user and its pairs are levels of the same configs: each is checked against the result of the entries before it.
    """
    return await rpc.alter(call, alter, FacetName.CLIENT_CONFIGS, body)
