"""KIP-5: the configs that all brokers share, read and changed as one."""

from starlette.responses import Response

from confplane.api import batches, problems, refresh
from confplane.api.dependencies import CallDep, Consistency
from confplane.api.global_config import models
from confplane.api.responses import json_response
from confplane.api.routing.operations import change, read
from confplane.api.routing.routes import Routes
from confplane.api.schedules.temporary import Temporary
from confplane.api.services import AlterDep
from confplane.domain.entities import Entity
from confplane.domain.errors import ConfplaneError, InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.domain.texts import clipped
from confplane.services.kips import global_config
from confplane.services.limits import LimitClass

routes = Routes(tag="global-config")


@routes.get(
    "/v1/clusters/{cluster}/global-config",
    read("Read what is set for all brokers (KIP-5)", models.GlobalConfig, limit=LimitClass.READ, problems=(409,)),
    checks=[Consistency],
)
async def get_global_config(call: CallDep) -> Response:
    """The dynamic default of all brokers, ordered by key."""
    await refresh.refresh_entity(call, FacetName.CONFIGS, Entity.of(broker=None))
    found = global_config.read(call.cluster, call.access)
    body = {
        "configData": [{"configKey": key, "configValue": value} for key, value in found.config.items()],
        "revision": None if found.revision is None else str(found.revision),
        "warnings": found.warnings,
    }
    return json_response(call.request, body)


@routes.post(
    "/v1/clusters/{cluster}/global-config:change",
    change(
        "Change what is set for all brokers (KIP-5)", models.ChangedGlobalConfig, problem=models.GlobalConfigProblem
    ),
    checks=[Temporary],
)
async def change_global_config(call: CallDep, alter: AlterDep, body: models.ChangeGlobalConfig) -> Response:
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
    headers = None if result.change_id is None else {"Confplane-Change-Id": result.change_id}
    return json_response(call.request, answer, headers=headers, revision=result.revision)


def _op(index: int, item: models.GlobalConfigOp) -> Op:
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
