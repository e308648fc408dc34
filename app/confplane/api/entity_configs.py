"""KIP-21: describe and alter entities of every type in one request."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, StrictStr, WithJsonSchema
from starlette.responses import Response

from confplane.api import batches, kraft, problems
from confplane.api.dependencies import CallDep, Consistency
from confplane.api.models import (
    MAX_ENTRIES,
    MAX_KEY,
    MAX_KEYS,
    TEXT,
    AnswerModel,
    ConfigPair,
    Count,
    Name,
    RequestModel,
    Result,
    Scalar,
    Validatable,
    WriteResult,
    one_of,
    problem_with,
)
from confplane.api.responses import consistency_headers, written_revision
from confplane.api.routing.operations import change, partly, read
from confplane.api.routing.routes import Routes
from confplane.api.schedules import Temporary
from confplane.api.services import AlterDep
from confplane.domain.errors import ConfplaneError, OutcomeUnknownError
from confplane.domain.facets import FacetName
from confplane.services.cooperative_yielding import TimeSlice, in_slices
from confplane.services.kips import entity_configs
from confplane.services.kips.entity_configs import EntityChange, EntityResult, InvalidEntityError
from confplane.services.limits import LimitClass

_EntityType = Annotated[
    StrictStr,
    one_of(
        *(
            f"{kind}{end}"
            for kind in ("topic", "broker", "user", "client-id", "client", "ip", "group")
            for end in ("", "s")
        ),
        "client-metric",
        "client-metrics",
    ),
    Field(description="Singular or plural", examples=["topics"]),
]
_Key = Annotated[StrictStr, Field(max_length=MAX_KEY, examples=["retention.ms"])]


class EntityName(RequestModel):
    """An entity. ``entityName`` null is the default of its type, which topics do not have."""

    entity_type: _EntityType
    entity_name: Name = Field(description="null is the default entity", examples=["orders"])


class DescribeEntityConfigs(RequestModel):
    """DescribeConfig (KIP-21)."""

    entities: Annotated[list[EntityName], Field(max_length=MAX_ENTRIES)]


class AddedConfig(RequestModel):
    """A config or quota to set."""

    config_key: _Key
    config_value: Annotated[Scalar, WithJsonSchema(TEXT)] = Field(
        description="A string, also for quotas", examples=["86400000"]
    )


class AlteredEntity(EntityName):
    """The values set and the keys deleted on one entity."""

    added_configs: Annotated[list[AddedConfig], Field(max_length=MAX_KEYS)] = Field(default=[])
    deleted_configs: Annotated[list[_Key], Field(max_length=MAX_KEYS)] = Field(default=[])


class AlterEntityConfigs(Validatable):
    """AlterConfig (KIP-21)."""

    entities: Annotated[list[AlteredEntity], Field(max_length=MAX_ENTRIES)]


class _EntityResult(Result):
    entity_type: str
    entity_name: str | None
    error_name: str = Field(description="Kafka's name of the code; INVALID_ENTITY is KIP-21's and has code 42")


class DescribedEntity(_EntityResult):
    """The configs set on one entity, by key, or the reason why they are not known."""

    config_entries: list[ConfigPair]


class DescribedEntityConfigs(AnswerModel):
    """Answer of entity-configs:describe, one result per entity in order."""

    failed: Count
    entities: list[DescribedEntity]


DescribeEntityConfigsProblem: Any = problem_with(
    DescribedEntityConfigs,
    "DescribeEntityConfigsProblem",
    "The problem of the first entity, when none could be described, with the result of each.",
)


class FallbackConfig(AnswerModel):
    """The effective value of a deleted key."""

    config_key: str
    config_value: str | None = Field(description="null: a secret, or no level has a value")
    source: str = Field(
        description="A config source of Kafka's, or for quotas and client configs the id of the entity that has the "
        "value. DEFAULT_CONFIG with null: no limit, or the client's own value",
        examples=["DYNAMIC_DEFAULT_BROKER_CONFIG"],
    )


class EntityAltered(_EntityResult, WriteResult):
    """The result for one entity."""

    fallbacks: list[FallbackConfig] = Field(description="Of each deleted key, once the whole request is done")


class AlteredEntityConfigs(AnswerModel):
    """Answer of entity-configs:alter, one result per entity in order."""

    failed: Count
    entities: list[EntityAltered]


AlterEntityConfigsProblem: Any = problem_with(
    AlteredEntityConfigs,
    "AlterEntityConfigsProblem",
    "The problem of the first entity that failed, when none succeeded, with the result of each.",
)


routes = Routes(tag="entity-configs")


@routes.post(
    "/v1/clusters/{cluster}/entity-configs:describe",
    read(
        "Describe what is set on entities of any type (KIP-21)",
        partly(DescribedEntityConfigs, "Some entities can't be described"),
        limit=LimitClass.BULK,
        problems=(409,),
        problem=DescribeEntityConfigsProblem,
    ),
    checks=[Consistency],
)
async def describe_entity_configs(call: CallDep, body: DescribeEntityConfigs) -> Response:
    """One result per entity, in order: its configs, or its quotas and client configs, as text and ordered by key.

    An entity that is named more than once has one result, where it is named first.
    """
    # A repeated entity has one result.
    call.charge(LimitClass.BULK, len(body.entities))
    named = {(item.entity_type, item.entity_name): index for index, item in reversed([*enumerate(body.entities)])}
    for name in (FacetName.CLIENT_QUOTAS, FacetName.CONFIGS):
        await kraft.refresh_facet(call, name)
    consistency = consistency_headers(call.cluster.store)
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
    return batches.multi_status_response(call.request, answer, results.errors, consistency=consistency)


@routes.post(
    "/v1/clusters/{cluster}/entity-configs:alter",
    change(
        "Alter entities of any type (KIP-21)",
        partly(AlteredEntityConfigs, "Some entities failed"),
        problem=AlterEntityConfigsProblem,
    ),
    checks=[Temporary],
)
async def alter_entity_configs(call: CallDep, alter: AlterDep, body: AlterEntityConfigs) -> Response:
    """One result per entity, in order; entities are independent. Deleted keys have the values effective afterwards.

    Topics and brokers are levels of the same configs: each is checked against the result of the entities before it.
    """
    call.charge(LimitClass.WRITE, len(body.entities) - 1)
    changes = await in_slices(lambda item: _change(*item), enumerate(body.entities))
    results = await entity_configs.alter(
        alter, call.cluster, changes, call.caller, validate_only=call.validate_only or body.validate_only
    )
    done = [result.result for result in results if result.result is not None]
    revision = written_revision(call.cluster.store, done)
    entities = await in_slices(lambda pair: _altered(*pair), zip(body.entities, results, strict=True))
    errors = [result.error for result in results]
    return batches.change_response(call.request, _body(entities, errors), errors, done, revision)


def _change(index: int, item: AlteredEntity) -> EntityChange:
    return EntityChange(
        item.entity_type,
        item.entity_name,
        tuple((added.config_key, added.config_value) for added in item.added_configs),
        tuple(item.deleted_configs),
        f"/entities/{index}",
    )


def _body(entities: Sequence[Any], errors: Sequence[ConfplaneError | None]) -> dict[str, Any]:
    return {"failed": sum(error is not None for error in errors), "entities": entities}


def _named(item: EntityName, error: ConfplaneError | None) -> dict[str, Any]:
    members = {"entityType": item.entity_type, "entityName": item.entity_name, **batches.error_members(error)}
    if isinstance(error, InvalidEntityError):
        members["errorName"] = "INVALID_ENTITY"
    return members if error is None else {**members, "errors": problems.parts(error)}


def _altered(item: AlteredEntity, altered: EntityResult) -> dict[str, Any]:
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
