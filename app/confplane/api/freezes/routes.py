"""Freezing a cluster's configs, and thawing them: ``confplane freeze`` and ``confplane thaw`` over HTTP."""

from starlette.responses import Response

from confplane.api.dependencies import Call, CallDep
from confplane.api.freezes import models
from confplane.api.responses import json_response
from confplane.api.routing.operations import change
from confplane.api.routing.routes import Routes
from confplane.api.services import FreezesDep
from confplane.services.changes.freeze import FreezeResult
from confplane.services.kraft.apply.quiesce import Quiescer, QuiesceResult, freeze_view
from confplane.services.limits import LimitClass

routes = Routes(tag="freezes")


@routes.post(
    "/v1/clusters/{cluster}:freeze",
    change("Freeze a cluster: from the answer on no config is written", models.FreezeState, limit=LimitClass.ADMIN),
)
async def freeze_cluster(call: CallDep, freezes: FreezesDep, body: models.FreezeReason) -> Response:
    """Needs FREEZE on the cluster. 409 if the cluster is already frozen for another reason: thaw it first.

    For a Kafka 4 cluster the response waits some seconds until the changes of clients are applied and deliveries have
    stopped.
    """
    found, quiesce_result = await Quiescer(call.cluster.store, call.cluster.apply_waiter).freeze(
        freezes,
        body.reason,
        call.caller,
        validate_only=call.validate_only or body.validate_only,
    )
    return _answer(call, found, quiesce_result)


@routes.post(
    "/v1/clusters/{cluster}:thaw",
    change("Thaw a cluster, so that configs may be written again", models.FreezeState, limit=LimitClass.ADMIN),
)
async def thaw_cluster(call: CallDep, freezes: FreezesDep, body: models.FreezeReason) -> Response:
    """Needs FREEZE on the cluster."""
    found = await freezes.thaw(
        call.cluster.store, body.reason, call.caller, validate_only=call.validate_only or body.validate_only
    )
    return _answer(call, found)


def _answer(call: Call, found: FreezeResult, quiesce_result: QuiesceResult | None = None) -> Response:
    body = freeze_view(found, quiesce_result)
    headers = None if found.change_id is None else {"Confplane-Change-Id": found.change_id}
    # The header has the revision of the mirror as usual: a freeze writes no config that a mirror would wait for.
    return json_response(call.request, body, headers=headers)
