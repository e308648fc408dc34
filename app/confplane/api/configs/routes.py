"""The RPC-style methods of configs (KIP-226, KIP-339), and the answers about effective configs."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Final, NamedTuple

from starlette.responses import Response

from confplane.api import batches, kraft, problems, reverts
from confplane.api.configs import models
from confplane.api.dependencies import Call, CallDep, Consistency, IfNoneMatch, OpaquePageToken, PageSize
from confplane.api.resources import handlers, past
from confplane.api.resources.filters import Label, ListFilters, Owner
from confplane.api.responses import PolledResponse, consistency_headers
from confplane.api.reverts import RevertEntity
from confplane.api.routing.operations import change, partly, read
from confplane.api.routing.paths import entity_in_path
from confplane.api.routing.preconditions import ConditionalHeadersDep, entry_precondition
from confplane.api.routing.routes import Routes
from confplane.api.schedules import Temporary
from confplane.api.services import AlterDep, HistoryDep, ResourceReadsDep, RevertsDep
from confplane.domain import id_patterns
from confplane.domain.access.operations import Operation
from confplane.domain.broker_keys import definition_of
from confplane.domain.broker_levels import EffectiveConfigEntry
from confplane.domain.config_resources import ConfigResourceType, resource_entity, resource_type
from confplane.domain.configs import KINDS, check_release
from confplane.domain.definitions import Catalog, ConfigKind, description
from confplane.domain.entities import Entity
from confplane.domain.errors import ConfplaneError, ErrorList, InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, op_type
from confplane.domain.topics import check_topic_name
from confplane.services.changes.edits import Edit, EditResult
from confplane.services.cooperative_yielding import TimeSlice
from confplane.services.limits import LimitClass
from confplane.services.reads.config_describe import ConfigsDescription


def _effective_json(found: ConfigsDescription) -> dict[str, Any]:
    """Return the effective configs of an entity."""
    return {
        "id": found.entity.id,
        "entity": found.entity.as_dict(),
        "configs": [
            {
                "key": item.name,
                "value": item.value,
                "source": item.source.value,
                **_config_members(item),
                "synonyms": _synonyms(item),
            }
            for item in found.configs
        ],
        "warnings": found.warnings,
    }


def _described_config(
    catalog: Catalog, entity: Entity, item: EffectiveConfigEntry, *, synonyms: bool, documentation: bool
) -> dict[str, Any]:
    """Return one config in the form of DescribeConfigs, documented from the catalog of the cluster's release."""
    return {
        "name": item.name,
        "value": item.value,
        "configSource": item.source.value,
        **_config_members(item),
        "synonyms": _synonyms(item) if synonyms else [],
        "documentation": _documentation(catalog, entity, item.name) if documentation else None,
    }


def _config_members(item: EffectiveConfigEntry) -> dict[str, Any]:
    return {
        "readOnly": item.read_only,
        "isSensitive": item.sensitive,
        "configType": "UNKNOWN" if item.type is None else item.type.value,
        "assumed": item.assumed,
    }


def _synonyms(item: EffectiveConfigEntry) -> list[dict[str, Any]]:
    return [{"name": name, "value": value, "source": source.value} for name, value, source in item.synonyms]


def _documentation(catalog: Catalog, entity: Entity, name: str) -> str | None:
    kind = KINDS[entity.types]
    definition = definition_of(catalog, name) if kind is ConfigKind.BROKER else catalog.of(kind).get(name)
    return None if definition is None else definition.description or description(kind, definition.name)


routes = Routes(tag="configs")
_OF: Final = handlers.ResourceOperations.of(
    "configs",
    page=models.ConfigsList,
    resource=models.ConfigsResource,
    effective=models.EffectiveConfigs,
)
_Entity = Annotated[Entity, entity_in_path(id_patterns.RESOURCE_ID, "topic=orders")]
_NOBODY: Final = Entity(())


@routes.get("/v1/clusters/{cluster}/configs", _OF.listing, checks=[Consistency])
async def list_configs(  # noqa: PLR0913 - one argument a parameter is FastAPI's way
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
    return await handlers.page(call, reads, FacetName.CONFIGS, query, at=at, owner=owner, label=label)


@routes.post("/v1/clusters/{cluster}/configs", _OF.create, checks=[Temporary])
async def create_configs(
    call: CallDep, alter: AlterDep, conditions: ConditionalHeadersDep, body: models.NewConfigs
) -> Response:
    """Refused with 409 if the entity has other content."""
    return await handlers.create(call, alter, FacetName.CONFIGS, conditions, body)


@routes.get("/v1/clusters/{cluster}/configs/{id:path}/effective", _OF.effective, checks=[Consistency])
async def effective_configs(call: CallDep, entity: _Entity, if_none_match: IfNoneMatch = None) -> Response:
    """Also for an entity without configs of its own."""
    await kraft.refresh_levels(call, FacetName.CONFIGS, [entity])
    consistency = consistency_headers(call.cluster.store)
    found = await call.cluster.configs.effective(call.access, entity)
    rendered = PolledResponse.of(_effective_json(found), found.etag)
    return handlers.polled(call.cluster, rendered, if_none_match, consistency)


@routes.post("/v1/clusters/{cluster}/configs/{id:path}:revert", reverts.ENTITY)
async def revert_configs(
    call: CallDep, service: RevertsDep, entity: _Entity, conditions: ConditionalHeadersDep, body: RevertEntity
) -> Response:
    """Revert the configs of an entity."""
    return await reverts.revert_entity(call, service, FacetName.CONFIGS, entity, conditions, body)


@routes.get("/v1/clusters/{cluster}/configs/{id:path}/history", past.HISTORY)
async def history_configs(
    call: CallDep, history: HistoryDep, entity: _Entity, page_size: PageSize = 100, page_token: OpaquePageToken = None
) -> Response:
    """List the changes of the configs of an entity."""
    return await past.history(call, history, FacetName.CONFIGS, entity, page_size, page_token)


@routes.get("/v1/clusters/{cluster}/configs/{id:path}/diff", past.DIFF)
async def diff_configs(
    call: CallDep, history: HistoryDep, entity: _Entity, from_: past.From = None, to: past.To = None
) -> Response:
    """Compare the configs of an entity at two moments."""
    return await past.diff(call, history, FacetName.CONFIGS, entity, from_, to)


@routes.get("/v1/clusters/{cluster}/configs/{id:path}", _OF.get, checks=[Consistency])
async def get_configs(
    call: CallDep,
    reads: ResourceReadsDep,
    entity: _Entity,
    if_none_match: IfNoneMatch = None,
    at: past.At = None,
    absent: handlers.Absent = None,
) -> Response:
    """404 for an entity without configs."""
    return await handlers.get(call, reads, FacetName.CONFIGS, entity, if_none_match, at=at, absent=absent)


@routes.put("/v1/clusters/{cluster}/configs/{id:path}", _OF.put, checks=[Temporary])
async def put_configs(
    call: CallDep, alter: AlterDep, entity: _Entity, conditions: ConditionalHeadersDep, body: models.ConfigsBody
) -> Response:
    """Keys that the body does not have are removed."""
    return await handlers.put(call, alter, FacetName.CONFIGS, entity, conditions, body)


@routes.delete("/v1/clusters/{cluster}/configs/{id:path}", _OF.delete, checks=[Temporary])
async def delete_configs(
    call: CallDep, alter: AlterDep, entity: _Entity, conditions: ConditionalHeadersDep
) -> Response:
    """404 if the entity has none."""
    return await handlers.delete(call, alter, FacetName.CONFIGS, entity, conditions)


@routes.post(
    "/v1/clusters/{cluster}/configs:describe",
    read(
        "Describe the effective configs of topics, brokers, groups and client metrics (KIP-226)",
        partly(models.DescribedResources, "Some resources can't be described"),
        limit=LimitClass.BULK,
        problems=(409,),
        problem=models.DescribeConfigsProblem,
    ),
    checks=[Consistency],
)
async def describe_configs(call: CallDep, body: models.DescribeConfigs) -> Response:
    """One result per resource, in order, over all levels: its own, broker, default of all brokers, file, Kafka's.

    A resource that is named more than once has one result, where it is named first, with the keys of all its mentions.
    """
    call.charge(LimitClass.BULK, len(body.resources))
    time_slice = TimeSlice()
    mentions = _mentions(body.resources)
    await kraft.refresh_levels(call, FacetName.CONFIGS, _entities_to_refresh(call, mentions))
    consistency = consistency_headers(call.cluster.store)
    results = batches.RenderedResults(call.request)
    for mention in mentions:
        results.add(*await _described(call, mention, body))
        if time_slice.due:
            await time_slice.pause()
    answer = {"throttleTimeMs": call.throttle_ms(LimitClass.BULK), "results": results.fragments()}
    return batches.multi_status_response(call.request, answer, results.errors, consistency=consistency)


class _Mention(NamedTuple):
    """A resource that a describe names."""

    kind: ConfigResourceType
    name: str
    keys: frozenset[str]
    """The configs to describe; empty: all."""
    pointer: str


def _mentions(resources: Sequence[models.ConfigResource]) -> list[_Mention]:
    """Return the resources of a describe, each once.

    Raises:
        InvalidRequestError: There is no such resource type.
    """
    found: dict[tuple[ConfigResourceType, str], _Mention] = {}
    for index, item in enumerate(resources):
        pointer = f"/resources/{index}"
        kind = resource_type(item.resource_type, pointer=f"{pointer}/resourceType")
        keys = frozenset(item.configuration_keys or ())
        known = found.get((kind, item.resource_name))
        if known is None:
            found[kind, item.resource_name] = _Mention(kind, item.resource_name, keys, pointer)
        elif known.keys:  # and not all configs already
            together = known.keys | keys if keys else keys
            found[kind, item.resource_name] = known._replace(keys=together)
    return list(found.values())


def _entities_to_refresh(call: Call, mentions: Sequence[_Mention]) -> list[Entity]:
    """Return the resources that are described, without those that their own results refuse."""
    found: list[Entity] = []
    for mention in mentions:
        with suppress(ConfplaneError):
            entity = resource_entity(mention.kind, mention.name)
            call.cluster.facets[FacetName.CONFIGS].facet.check_entity(entity)
            if call.access.allows(call.cluster.name, Operation.DESCRIBE_CONFIGS, entity.id):
                found.append(entity)
    return found


async def _described(
    call: Call, mention: _Mention, body: models.DescribeConfigs
) -> tuple[dict[str, Any], ConfplaneError | None]:
    kind, name, keys, pointer = mention
    named = {"resourceType": kind.name, "resourceName": name}
    try:
        entity = resource_entity(kind, name, pointer=f"{pointer}/resourceType")
        check_release(_catalog(call), entity, pointer=f"{pointer}/resourceType")
        if kind is ConfigResourceType.TOPIC:
            # In a describe, the empty name is not a name. In an alter, it names a default topic.
            check_topic_name(name, pointer=f"{pointer}/resourceName")
        found = await call.cluster.configs.effective(call.access, entity, keys, pointer=f"{pointer}/resourceName")
    except ConfplaneError as error:
        return {
            **batches.error_members(error),
            **named,
            "configs": [],
            "warnings": [],
            "errors": problems.parts(error),
        }, error
    catalog = _catalog(call)
    configs = [
        _described_config(
            catalog, entity, config, synonyms=body.include_synonyms, documentation=body.include_documentation
        )
        for config in found.configs
    ]
    return {**batches.error_members(None), **named, "configs": configs, "warnings": found.warnings}, None


@routes.post(
    "/v1/clusters/{cluster}/configs:incrementalAlter",
    change(
        "Set, delete, append to and subtract from configs of topics, brokers, groups and client metrics (KIP-339)",
        partly(models.AlteredResources, "Some resources failed"),
        problems=(412,),
        problem=models.IncrementalAlterProblem,
    ),
    checks=[Temporary],
)
async def incremental_alter_configs(call: CallDep, alter: AlterDep, body: models.IncrementalAlterConfigs) -> Response:
    """One result per resource, in order; resources are independent unless `atomic`.

    Topics and brokers are levels of the same configs: each is checked against the result of the resources before it.
    """
    cluster_facet = call.cluster.facets[FacetName.CONFIGS]
    return await batches.alter(
        call,
        alter,
        body,
        body.resources,
        entry=lambda index, item: {cluster_facet: _edit(cluster_facet.catalog, index, item)},
        echo=_echo,
        diff=lambda _, result: batches.diff(cluster_facet, result.results[0]),
        member="responses",
    )


def _catalog(call: Call) -> Catalog:
    return call.cluster.facets[FacetName.CONFIGS].catalog


def _edit(catalog: Catalog, index: int, item: models.AlteredConfigResource) -> Edit | EditResult:
    pointer = f"/resources/{index}"
    entity = _NOBODY
    ops: tuple[Op, ...] = ()
    try:
        kind = resource_type(item.resource_type, pointer=f"{pointer}/resourceType")
        entity = resource_entity(kind, item.resource_name, pointer=f"{pointer}/resourceType")
        check_release(catalog, entity, pointer=f"{pointer}/resourceType")
        ops = _ops(item.configs, f"{pointer}/configs")
        precondition = entry_precondition(item.etag, pointer=f"{pointer}/etag")
    except InvalidRequestError as error:
        return EditResult(Edit(entity, ops, pointer=pointer), error)
    return Edit(entity, ops, precondition=precondition, pointer=f"{pointer}/resourceName")


def _ops(given: Sequence[models.IncrementalConfigOp], pointer: str) -> tuple[Op, ...]:
    """Return ops that point to their values, or to themselves if they have no value."""
    ops = []
    errors = ErrorList()
    for index, op in enumerate(given):
        place = f"{pointer}/{index}"
        try:
            kind = op_type(op.config_operation, pointer=f"{place}/configOperation")
        except InvalidRequestError as error:
            errors.add(error)
        else:
            ops.append(Op(op.name, kind, op.value, place if op.value is None else f"{place}/value"))
    errors.raise_all()
    return tuple(ops)


def _echo(item: models.AlteredConfigResource) -> dict[str, Any]:
    try:
        kind: int | str = resource_type(item.resource_type).name
    except InvalidRequestError:
        kind = item.resource_type
    return {"resourceType": kind, "resourceName": item.resource_name}
