"""KIP-5: the configs that all brokers share, read and changed as one."""

from typing import Annotated, Literal

from pydantic import Field, StrictStr, WithJsonSchema
from starlette.responses import Response

from confplane.api import batches, kraft, problems
from confplane.api.dependencies import CallDep, Consistency
from confplane.api.models import (
    MAX_KEY,
    MAX_KEYS,
    TEXT_OR_NULL,
    Absent,
    AnswerModel,
    ChangeId,
    ConfigPair,
    Problem,
    RequestModel,
    Revision,
    Scalar,
    SecretDiff,
    Validatable,
)
from confplane.api.responses import change_header, json_response, written_revision
from confplane.api.routing.operations import change, read
from confplane.api.routing.routes import Routes
from confplane.api.schedules import Temporary
from confplane.api.services import AlterDep
from confplane.domain.entities import Entity
from confplane.domain.errors import ConfplaneError, InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.domain.texts import clipped
from confplane.services.kips import global_config
from confplane.services.limits import LimitClass


class GlobalConfigOp(RequestModel):
    """Set a config for all brokers, or remove it."""

    config_key: Annotated[StrictStr, Field(max_length=MAX_KEY, examples=["message.max.bytes"])]
    config_value: Annotated[Scalar, WithJsonSchema(TEXT_OR_NULL)] = Field(
        description="A string; null removes", examples=["2000000"]
    )


class ChangeGlobalConfig(Validatable):
    """A cluster-wide change (KIP-5)."""

    config_data: Annotated[list[GlobalConfigOp], Field(max_length=MAX_KEYS)]


class GlobalConfig(AnswerModel):
    """The configs set for all brokers, by key."""

    config_data: list[ConfigPair]
    revision: Revision | None = Field(description="Of the last change; null: there never was one")
    warnings: list[str] = Field(description="Stored entries that have no effect")


class GlobalConfigDiff(SecretDiff):
    """A config before and after; null is absent, or a secret's."""


class ChangedGlobalConfig(AnswerModel):
    """Answer of global-config:change."""

    error_code: Literal[0]
    error_name: Literal["NONE"]
    error_message: None
    change_id: ChangeId | None
    revision: Revision | None
    diff: list[GlobalConfigDiff]
    warnings: list[str]


class GlobalConfigProblem(Problem):
    """The reason for the refusal of a change."""

    error_code: int | Absent = None
    error_name: str | Absent = None
    error_message: str | Absent = None
    revision: None = None
    diff: list[GlobalConfigDiff] | Absent = None
    warnings: list[str] | Absent = None


routes = Routes(tag="global-config")


@routes.get(
    "/v1/clusters/{cluster}/global-config",
    read("Read what is set for all brokers (KIP-5)", GlobalConfig, limit=LimitClass.READ, problems=(409,)),
    checks=[Consistency],
)
async def get_global_config(call: CallDep) -> Response:
    """The dynamic default of all brokers, ordered by key."""
    await kraft.refresh_entity(call, FacetName.CONFIGS, Entity.of(broker=None))
    found = global_config.read(call.cluster, call.access)
    body = {
        "configData": [{"configKey": key, "configValue": value} for key, value in found.config.items()],
        "revision": None if found.revision is None else str(found.revision),
        "warnings": found.warnings,
    }
    return json_response(call.request, body)


@routes.post(
    "/v1/clusters/{cluster}/global-config:change",
    change("Change what is set for all brokers (KIP-5)", ChangedGlobalConfig, problem=GlobalConfigProblem),
    checks=[Temporary],
)
async def change_global_config(call: CallDep, alter: AlterDep, body: ChangeGlobalConfig) -> Response:
    """Merged with the stored config and checked as a whole: all of it, or nothing. Keys that are not named stay."""
    try:
        result = await global_config.change(
            alter,
            call.cluster,
            [_op(index, item) for index, item in enumerate(body.config_data)],
            call.caller,
            validate_only=call.validate_only or body.validate_only,
        )
    except ConfplaneError as error:
        return problems.respond(
            call.request, error, **batches.error_members(error), revision=None, diff=[], warnings=[]
        )
    answer = {
        **batches.error_members(None),
        "changeId": result.change_id,
        "revision": None if result.revision is None else str(result.revision),
        "diff": batches.diff(call.cluster.facets[FacetName.CONFIGS], result),
        "warnings": list(result.warnings),
    }
    headers = change_header(result.change_id)
    return json_response(call.request, answer, headers=headers, revision=written_revision(call.cluster.store, [result]))


def _op(index: int, item: GlobalConfigOp) -> Op:
    pointer = f"/configData/{index}"
    if item.config_value is None:
        return Op(item.config_key, OpType.DELETE, pointer=pointer)
    if not isinstance(item.config_value, str):
        raise InvalidRequestError(
            f'The value of {clipped(item.config_key)} must be a JSON string in quotes, such as "1000", or null to '
            "remove it",
            pointer=f"{pointer}/configValue",
        )
    return Op(item.config_key, OpType.SET, item.config_value, pointer)
