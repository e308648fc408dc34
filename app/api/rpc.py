"""The RPC-style methods of KIP-546 and KIP-649: describe and alter of client quotas and client configs."""

from typing import Annotated, Any

from fastapi import Body
from starlette.requests import Request
from starlette.responses import Response

from app.api import batches, examples, schemas
from app.api.context import ClusterDep, Common, CommonDep, Fresh, ServicesDep, ViewDep
from app.api.entries import described
from app.api.operations import Answer, Effect, Operation
from app.api.preconditions import entry_precondition
from app.api.responses import json_bytes
from app.api.routes import Routes
from app.domain.entities import Entity
from app.domain.errors import InvalidRequestError
from app.domain.facets import FacetName
from app.domain.filters import EntityFilter
from app.domain.ops import Op, OpType
from app.services.changes.edits import Edit, EditResult
from app.services.clusters import Cluster
from app.services.collections import Collection
from app.services.pace import in_slices
from app.services.reads.describe import RegistrationRequest

quotas = Routes("/v1/clusters/{cluster}", tag="client-quotas")
configs = Routes("/v1/clusters/{cluster}", tag="client-configs")


@quotas.post(
    "/client-quotas:describe",
    Operation(
        "describeClientQuotas",
        "Describe client quotas by a filter (KIP-546)",
        {200: schemas.DescribedQuotas},
        effect=Effect.NOTHING,
        tagged=False,
        problems=(),
    ),
    checks=[Fresh],
)
async def describe_client_quotas(
    cluster: ClusterDep,
    services: ServicesDep,
    _: ViewDep,
    body: Annotated[schemas.DescribeClientQuotas, Body(openapi_examples=examples.DESCRIBE_CLIENT_QUOTAS)],
) -> Response:
    """Entities that match every component; not strict, they may have further components."""
    return await _describe(cluster, services, FacetName.CLIENT_QUOTAS, body.filter)


@configs.post(
    "/client-configs:describe",
    Operation(
        "describeClientConfigs",
        "Describe client configs by a filter, or resolve them for one client (KIP-649)",
        {200: schemas.DescribedConfigs},
        effect=Effect.NOTHING,
        tagged=False,
        problems=(),
    ),
    checks=[Fresh],
)
async def describe_client_configs(
    cluster: ClusterDep,
    services: ServicesDep,
    _: ViewDep,
    body: Annotated[schemas.DescribeClientConfigs, Body(openapi_examples=examples.DESCRIBE_CLIENT_CONFIGS)],
) -> Response:
    """Polled by applications: with `resolveEntity` the answer is the one set of configs effective for them."""
    collection = cluster.collections[FacetName.CLIENT_CONFIGS]
    wanted = body.filter
    if body.supported_configs is not None:
        information = body.client_information
        services.describe.register(
            collection,
            wanted,
            RegistrationRequest(
                tuple(body.supported_configs),
                None if information is None else information.software_name,
                None if information is None else information.software_version,
            ),
        )
    if body.resolve_entity:
        return json_bytes(cluster, services.resolutions.answer(collection, wanted))
    return await _describe(cluster, services, FacetName.CLIENT_CONFIGS, wanted)


@quotas.post(
    "/client-quotas:alter",
    Operation(
        "alterClientQuotas",
        "Alter client quotas (KIP-546)",
        {200: schemas.AlteredQuotas, 207: Answer(schemas.AlteredQuotas, "Some entries failed")},
        effect=Effect.CHANGE,
        tagged=False,
        problems=(412,),
        problem=schemas.AlterQuotasProblem,
    ),
)
async def alter_client_quotas(
    request: Request,
    cluster: ClusterDep,
    services: ServicesDep,
    common: CommonDep,
    body: Annotated[schemas.AlterClientQuotas, Body(openapi_examples=examples.ALTER_CLIENT_QUOTAS)],
) -> Response:
    """One result per entry, in order; entries are independent unless `atomic`."""
    return await _alter(request, cluster.collections[FacetName.CLIENT_QUOTAS], services, common, body)


@configs.post(
    "/client-configs:alter",
    Operation(
        "alterClientConfigs",
        "Alter client configs (KIP-649)",
        {200: schemas.AlteredConfigs, 207: Answer(schemas.AlteredConfigs, "Some entries failed")},
        effect=Effect.CHANGE,
        tagged=False,
        problems=(412,),
        problem=schemas.AlterConfigsProblem,
    ),
)
async def alter_client_configs(
    request: Request,
    cluster: ClusterDep,
    services: ServicesDep,
    common: CommonDep,
    body: Annotated[schemas.AlterClientConfigs, Body(openapi_examples=examples.ALTER_CLIENT_CONFIGS)],
) -> Response:
    """One result per entry, in order; entries are independent unless `atomic`.

    A user and its pairs are levels of the same configs: each is checked against the result of the entries before it.
    """
    return await _alter(request, cluster.collections[FacetName.CLIENT_CONFIGS], services, common, body)


async def _describe(cluster: Cluster, services: ServicesDep, name: FacetName, wanted: EntityFilter) -> Response:
    collection = cluster.collections[name]
    selected = services.describe.select(collection, wanted)
    rendered = await services.entries.render(collection, selected, everything=wanted.everything)
    return json_bytes(cluster, described(rendered.entries, rendered.skipped))


async def _alter(
    request: Request, collection: Collection, services: ServicesDep, common: Common, body: Any
) -> Response:
    edits = await in_slices(lambda item: _edit(*item), enumerate(body.entries))
    results = await services.alter.alter(
        collection,
        edits,
        common.caller,
        validate_only=common.validate_only or body.validate_only,
        atomic=body.atomic,
    )
    return await batches.altered(request, collection, results, map(_echo, body.entries), member="entries")


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
