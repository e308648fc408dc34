"""KIP-21: describe and alter entities of every type in one request."""

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from confplane.api import batches, problems, refresh
from confplane.api.dependencies import CallDep, Consistency
from confplane.api.entity_configs import models
from confplane.api.routing.operations import change, partly, read
from confplane.api.routing.routes import Routes
from confplane.api.schedules.temporary import Temporary
from confplane.api.services import AlterDep
from confplane.domain.errors import ConfplaneError, OutcomeUnknownError
from confplane.domain.facets import FacetName
from confplane.services.cooperative_yielding import TimeSlice, in_slices
from confplane.services.kips import entity_configs
from confplane.services.kips.entity_configs import EntityChange, EntityResult, InvalidEntityError
from confplane.services.limits import LimitClass

routes = Routes(tag="entity-configs")


@routes.post(
    "/v1/clusters/{cluster}/entity-configs:describe",
    read(
        "Describe what is set on entities of any type (KIP-21)",
        partly(models.DescribedEntityConfigs, "Some entities can't be described"),
        limit=LimitClass.BULK,
        problems=(409,),
        problem=models.DescribeEntityConfigsProblem,
    ),
    checks=[Consistency],
)
async def describe_entity_configs(call: CallDep, body: models.DescribeEntityConfigs) -> Response:
    """One result per entity, in order: its configs, or its quotas and client configs, as text and ordered by key.

    An entity that is named more than once has one result, where it is named first.
    """
    # A repeated entity has one result.
    call.charge(LimitClass.BULK, len(body.entities))
    named = {(item.entity_type, item.entity_name): index for index, item in reversed([*enumerate(body.entities)])}
    for name in (FacetName.CLIENT_QUOTAS, FacetName.CONFIGS):
        await refresh.refresh_facet(call, name)
    results, time_slice = batches.RenderedResults(call.request), TimeSlice()
    for index in sorted(named.values()):
        item, error, found = body.entities[index], None, {}
        try:
            found = entity_configs.describe(
                call.cluster, call.access, item.entity_type, item.entity_name, pointer=f"/entities/{index}"
            )
        except ConfplaneError as refused:
            error = refused
        entries = [{"configKey": key, "configValue": value} for key, value in found.items()]
        results.add({**_named(item, error), "configEntries": entries}, error)
        if time_slice.due:
            await time_slice.pause()
    answer = _body(results.fragments(), results.errors)
    return batches.multi_status_response(call.request, answer, results.errors)


@routes.post(
    "/v1/clusters/{cluster}/entity-configs:alter",
    change(
        "Alter entities of any type (KIP-21)",
        partly(models.AlteredEntityConfigs, "Some entities failed"),
        problem=models.AlterEntityConfigsProblem,
    ),
    checks=[Temporary],
)
async def alter_entity_configs(call: CallDep, alter: AlterDep, body: models.AlterEntityConfigs) -> Response:
    """One result per entity, in order; entities are independent. Deleted keys have the values effective afterwards.

    Topics and brokers are levels of the same configs: each is checked against the result of the entities before it.
    """
    call.charge(LimitClass.WRITE, len(body.entities) - 1)
    changes = await in_slices(lambda item: _change(*item), enumerate(body.entities))
    results = await entity_configs.alter(
        alter, call.cluster, changes, call.caller, validate_only=call.validate_only or body.validate_only
    )
    entities = await in_slices(lambda pair: _altered(*pair), zip(body.entities, results, strict=True))
    errors = [result.error for result in results]
    done = [result.result for result in results if result.result is not None]
    return batches.change_response(call.request, _body(entities, errors), errors, done)


def _change(index: int, item: models.AlteredEntity) -> EntityChange:
    return EntityChange(
        item.entity_type,
        item.entity_name,
        tuple((added.config_key, added.config_value) for added in item.added_configs),
        tuple(item.deleted_configs),
        f"/entities/{index}",
    )


def _body(entities: Sequence[Any], errors: Sequence[ConfplaneError | None]) -> dict[str, Any]:
    return {"failed": sum(error is not None for error in errors), "entities": entities}


def _named(item: models.EntityName, error: ConfplaneError | None) -> dict[str, Any]:
    members = {"entityType": item.entity_type, "entityName": item.entity_name, **batches.error_members(error)}
    if isinstance(error, InvalidEntityError):
        members["errorName"] = "INVALID_ENTITY"
    return members if error is None else {**members, "errors": problems.parts(error)}


def _altered(item: models.AlteredEntity, altered: EntityResult) -> dict[str, Any]:
    error, result = altered.error, altered.result
    revision = None if result is None else result.revision
    entity = {
        **_named(item, error),
        "changeId": error.change_id
        if isinstance(error, OutcomeUnknownError)
        else None
        if result is None
        else result.change_id,
        "revision": None if revision is None else str(revision),
        "fallbacks": [
            {"configKey": found.key, "configValue": found.value, "source": found.source} for found in altered.fallbacks
        ],
        "warnings": list(altered.warnings),
    }
    return entity if error is None else {**entity, **batches.failure_members(error)}
