"""The RPC-style methods of topic and broker configs (KIP-226, KIP-339), and the answers about effective configs."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Final

import orjson
from fastapi import Body
from starlette.requests import Request
from starlette.responses import Response

from app.api import batches, examples, views
from app.api import config_schemas as schemas
from app.api.context import ClusterDep, CommonDep, Fresh, Services, ServicesDep, ViewDep
from app.api.operations import Answer, Effect, Operation
from app.api.preconditions import entry_precondition
from app.api.routes import Routes
from app.domain.config_resources import ResourceType, resource_entity, resource_type
from app.domain.entities import Entity
from app.domain.errors import ConfplaneError, InvalidRequestError
from app.domain.facets import FacetName
from app.domain.ops import Op, op_type
from app.domain.topics import check_topic_name
from app.services.changes.edits import Edit, EditResult
from app.services.clusters import Cluster
from app.services.pace import in_slices

routes = Routes("/v1/clusters/{cluster}", tag="configs")

_NOBODY: Final = Entity(())


@routes.post(
    "/configs:describe",
    Operation(
        "describeConfigs",
        "Describe the effective configs of topics and brokers (KIP-226)",
        {
            200: schemas.DescribedResources,
            207: Answer(schemas.DescribedResources, "Some resources can't be described"),
        },
        effect=Effect.NOTHING,
        tagged=False,
        problems=(409,),
        problem=schemas.DescribeConfigsProblem,
    ),
    checks=[Fresh],
)
async def describe_configs(
    request: Request,
    cluster: ClusterDep,
    services: ServicesDep,
    _: ViewDep,
    body: Annotated[schemas.DescribeConfigs, Body(openapi_examples=examples.DESCRIBE_CONFIGS)],
) -> Response:
    """One result per resource, in order, over all levels: topic, broker, default of all brokers, file, Kafka's."""
    del services
    kinds = [
        resource_type(item.resource_type, pointer=f"/resources/{index}/resourceType")
        for index, item in enumerate(body.resources)
    ]
    results: list[orjson.Fragment] = []
    errors: list[ConfplaneError | None] = []
    size = 0
    for index, (kind, item) in enumerate(zip(kinds, body.resources, strict=True)):
        result, error = await _described(cluster, kind, item, body, pointer=f"/resources/{index}")
        # Rendered one by one: together they may be tens of megabytes.
        rendered = orjson.dumps(result)
        size = batches.grown(size, rendered)
        results.append(orjson.Fragment(rendered))
        errors.append(error)
        await asyncio.sleep(0)
    return batches.answered(request, {"throttleTimeMs": 0, "results": results}, errors)


async def _described(
    cluster: Cluster, kind: ResourceType, item: schemas.ConfigResource, body: schemas.DescribeConfigs, *, pointer: str
) -> tuple[dict[str, Any], ConfplaneError | None]:
    named = {"resourceType": kind.name, "resourceName": item.resource_name}
    try:
        entity = resource_entity(kind, item.resource_name, pointer=f"{pointer}/resourceType")
        if kind is ResourceType.TOPIC:
            # To a describe the empty name is not a name; to an alter it is a default topic.
            check_topic_name(item.resource_name, pointer=f"{pointer}/resourceName")
        keys = frozenset(item.configuration_keys or ())
        found = await cluster.configs.effective(entity, keys, pointer=f"{pointer}/resourceName")
    except ConfplaneError as error:
        return {
            **views.error_members(error),
            **named,
            "configs": [],
            "warnings": [],
            "errors": views.error_parts(error),
        }, error
    configs = [
        views.described_config(entity, config, synonyms=body.include_synonyms, documentation=body.include_documentation)
        for config in found.configs
    ]
    return {**views.error_members(None), **named, "configs": configs, "warnings": found.warnings}, None


@routes.post(
    "/configs:incrementalAlter",
    Operation(
        "incrementalAlterConfigs",
        "Set, delete, append to and subtract from configs of topics and brokers (KIP-339)",
        {200: schemas.AlteredResources, 207: Answer(schemas.AlteredResources, "Some resources failed")},
        effect=Effect.CHANGE,
        tagged=False,
        problems=(412,),
        problem=schemas.IncrementalAlterProblem,
    ),
)
async def incremental_alter_configs(
    request: Request,
    cluster: ClusterDep,
    services: ServicesDep,
    common: CommonDep,
    body: Annotated[schemas.IncrementalAlterConfigs, Body(openapi_examples=examples.INCREMENTAL_ALTER_CONFIGS)],
) -> Response:
    """One result per resource, in order; resources are independent unless `atomic`.

    Topics and brokers are levels of the same configs: each is checked against the result of the resources before it.
    """
    collection = cluster.collections[FacetName.CONFIGS]
    results = await services.alter.alter(
        collection,
        await in_slices(lambda item: _edit(*item), enumerate(body.resources)),
        common.caller,
        validate_only=common.validate_only or body.validate_only,
        atomic=body.atomic,
    )
    return await batches.altered(request, collection, results, map(_echo, body.resources), member="responses")


def _edit(index: int, item: schemas.AlteredConfigResource) -> Edit | EditResult:
    pointer = f"/resources/{index}"
    entity = _NOBODY
    ops: tuple[Op, ...] = ()
    try:
        kind = resource_type(item.resource_type, pointer=f"{pointer}/resourceType")
        entity = resource_entity(kind, item.resource_name, pointer=f"{pointer}/resourceType")
        ops = _ops(item.configs, f"{pointer}/configs")
        precondition = entry_precondition(item.etag, pointer=f"{pointer}/etag")
    except InvalidRequestError as error:
        return EditResult(Edit(entity, ops, pointer=pointer), error)
    return Edit(entity, ops, precondition=precondition, pointer=f"{pointer}/resourceName")


def _ops(given: Sequence[schemas.IncrementalConfigOp], pointer: str) -> tuple[Op, ...]:
    """Return ops that point to their values, or to themselves where they have none."""
    return tuple(
        Op(
            op.name,
            op_type(op.config_operation, pointer=f"{pointer}/{index}/configOperation"),
            op.value,
            f"{pointer}/{index}" if op.value is None else f"{pointer}/{index}/value",
        )
        for index, op in enumerate(given)
    )


def _echo(item: schemas.AlteredConfigResource) -> dict[str, Any]:
    try:
        kind: int | str = resource_type(item.resource_type).name
    except InvalidRequestError:
        kind = item.resource_type
    return {"resourceType": kind, "resourceName": item.resource_name}


async def resolve(services: Services, cluster: Cluster, entity: Entity) -> tuple[dict[str, Any], str]:
    """Return the effective configs of a topic or broker in the form of ``.../effective``, and their ETag.

    Raises:
        ConfplaneError: As ``ConfigReader.effective``.
    """
    del services
    found = await cluster.configs.effective(entity)
    return views.effective_configs(found), found.etag
