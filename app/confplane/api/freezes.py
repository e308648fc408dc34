"""Freezing a cluster's configs, and thawing them: ``confplane freeze`` and ``confplane thaw`` over HTTP."""

from typing import Annotated

from pydantic import Field, StrictBool, StrictStr
from starlette.responses import Response

from confplane.api.dependencies import Call, CallDep
from confplane.api.models import AnswerModel, ChangeId, Count, Revision, Time, Validatable
from confplane.api.responses import change_header, json_response
from confplane.api.routing.operations import change
from confplane.api.routing.routes import Routes
from confplane.api.services import FreezesDep
from confplane.services.changes.freeze import FreezeResult
from confplane.services.kraft.apply.quiesce import Quiescer, QuiesceResult, freeze_view
from confplane.services.limits import LimitClass


class FreezeReason(Validatable):
    """The reason of a freeze or a thaw, which the trail keeps."""

    reason: Annotated[
        StrictStr, Field(max_length=1_000, json_schema_extra={"minLength": 1}, examples=["upgrade to Kafka 3.9"])
    ]


class FreezeData(AnswerModel):
    """A freeze: the reason why no config may be written, who decided so, and when."""

    reason: str
    principal: str | None = Field(description="null: the stored freeze can't be read; reason says so")
    since: Time | None = Field(description="null: the stored freeze can't be read")


class FreezeRest(AnswerModel):
    """The deliveries of changes to a Kafka 4 cluster after a freeze."""

    rested: StrictBool = Field(
        description="Nothing is sent to the Kafka cluster before the thaw. false: the leader did not say so within some"
        " seconds, and a request may be under way"
    )
    pending: Count | None = Field(
        description="Entities that wait for the thaw, which `GET /drift` lists; null: the leader did not say so"
    )


class FreezeState(AnswerModel):
    """The cluster's freeze before and after a freeze or a thaw."""

    before: FreezeData | None = Field(description="null: the cluster was not frozen")
    after: FreezeData | None = Field(description="null: the cluster is not frozen")
    change_id: ChangeId | None = Field(
        description="null if nothing was written, because the cluster was already in this state"
    )
    revision: Revision | None
    applying: FreezeRest | None = Field(
        description="For a freeze in the mode adopt or enforce, the state of pending changes; otherwise null"
    )


routes = Routes(tag="freezes")


@routes.post(
    "/v1/clusters/{cluster}:freeze",
    change("Freeze a cluster: from the answer on no config is written", FreezeState, limit=LimitClass.ADMIN),
)
async def freeze_cluster(call: CallDep, freezes: FreezesDep, body: FreezeReason) -> Response:
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
    change("Thaw a cluster, so that configs may be written again", FreezeState, limit=LimitClass.ADMIN),
)
async def thaw_cluster(call: CallDep, freezes: FreezesDep, body: FreezeReason) -> Response:
    """Needs FREEZE on the cluster."""
    found = await freezes.thaw(
        call.cluster.store, body.reason, call.caller, validate_only=call.validate_only or body.validate_only
    )
    return _answer(call, found)


def _answer(call: Call, found: FreezeResult, quiesce_result: QuiesceResult | None = None) -> Response:
    body = freeze_view(found, quiesce_result)
    headers = change_header(found.change_id)
    # The header has the revision of the mirror as usual: a freeze writes no config that a mirror would wait for.
    return json_response(call.request, body, headers=headers)
