"""Temporary changes: the parameters that make a write temporary, and ``confplane schedules`` over HTTP."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query
from pydantic import Field, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from confplane.api import formats
from confplane.api.dependencies import REVERT_AT, CallDep, PageSize, PageToken
from confplane.api.models import AnswerModel, ChangeId, EntityId, Page, RequestModel, Time
from confplane.api.responses import change_header, json_response
from confplane.api.routing.operations import change, manage, read
from confplane.api.routing.routes import Routes
from confplane.api.services import SCHEDULES, SchedulesDep
from confplane.domain import id_patterns
from confplane.domain.entities import Entity
from confplane.domain.texts import rfc3339
from confplane.services.limits import LimitClass
from confplane.services.ports.schedules import Schedule, SchedulePause
from confplane.services.schedules.service import LONGEST_DAYS, SHORTEST_S


async def _temporary(
    request: Request,
    expires_in: Annotated[
        int | None,
        Query(
            alias="expiresIn",
            ge=SHORTEST_S,
            le=LONGEST_DAYS * 86_400,
            description="Seconds after which the changed keys get their earlier values again",
        ),
    ] = None,
    revert_at: Annotated[
        str | None,
        Query(
            alias="revertAt",
            description="The time at which the changed keys get their earlier values again: from a minute to 90 days in"
            " the future. Not with `expiresIn`",
            json_schema_extra={"pattern": formats.TIME},
        ),
    ] = None,
) -> None:
    moment = formats.parse_moment(revert_at, "revertAt")
    request.scope[REVERT_AT] = SCHEDULES(request).revert_at(expires_in, moment)


Temporary: Any = Depends(_temporary)
"""Makes the changes of an operation temporary on request."""


class SchedulePauseReason(RequestModel):
    """The reason of a pause."""

    reason: Annotated[
        StrictStr, Field(max_length=1_000, json_schema_extra={"minLength": 1}, examples=["an incident is analyzed"])
    ]


class SchedulePauseData(AnswerModel):
    """A pause: no temporary change of the cluster ends by itself."""

    principal: str
    reason: str
    since: Time


class SchedulePauseState(AnswerModel):
    """The pause of a cluster after a request."""

    pause: SchedulePauseData | None = Field(description="null: temporary changes end at their times")


class KeptKey(AnswerModel):
    """A key that was changed otherwise in the meantime, and that the end kept."""

    entity: EntityId
    key: str


class ScheduleData(AnswerModel):
    """A temporary change."""

    change_id: ChangeId
    principal: str
    reason: str | None
    entities: list[EntityId]
    revert_at: Time
    state: Literal["active", "ending", "ended", "ended-partly"] = Field(
        description="ending: its end has begun, and may be delayed; ended-partly: some keys were kept"
    )
    end_change_id: ChangeId | None = Field(
        description="The change that restored values; null if it has not ended, or if no value had to be restored"
    )
    kept: list[KeptKey]
    error: str | None = Field(description="The reason why the last attempt to end it failed; it is attempted again")
    ended_at: Time | None


class SchedulePage(Page[ScheduleData]):
    """Temporary changes, the newest first."""

    pause: SchedulePauseData | None = Field(description="null: temporary changes end at their times")


routes = Routes(tag="schedules")

_ChangeId = Annotated[
    str, Path(alias="changeId", description="The temporary change", json_schema_extra={"pattern": formats.UUID})
]


@routes.get(
    "/v1/clusters/{cluster}/schedules",
    read("List temporary changes", SchedulePage, limit=LimitClass.BULK, problems=(503,)),
)
async def list_schedules(
    call: CallDep,
    schedules: SchedulesDep,
    *,
    ended: Annotated[bool, Query(description="Those that have ended, instead of those that have not")] = False,
    entity: Annotated[
        str | None,
        Query(description="Only changes of this entity, by its id", json_schema_extra={"pattern": id_patterns.ANY_ID}),
    ] = None,
    page_size: PageSize = 100,
    page_token: PageToken = None,
) -> Response:
    """The temporary changes of entities that the caller may describe, the newest first."""
    page = await schedules.page(
        call.cluster.name,
        call.access,
        ended=ended,
        before=formats.parse_page_token(page_token),
        size=page_size,
        entity_id=None if entity is None else Entity.from_id(entity, pointer="entity").id,
    )
    call.charge(LimitClass.BULK, len(page.schedules))
    return json_response(
        call.request,
        {
            "items": [_schedule(each) for each in page.schedules],
            "nextPageToken": None if page.cursor is None else str(page.cursor),
            "pause": _pause(page.pause),
        },
    )


@routes.post(
    "/v1/clusters/{cluster}/schedules:pause",
    manage("Pause the ends of all temporary changes", SchedulePauseState),
)
async def pause_schedules(call: CallDep, schedules: SchedulesDep, body: SchedulePauseReason) -> Response:
    """Needs FREEZE on the cluster. A pause that is there stays as it is. An early end still works."""
    pause = await schedules.pause(call.cluster.name, body.reason, call.caller, validate_only=call.validate_only)
    return json_response(call.request, {"pause": _pause(pause)})


@routes.post(
    "/v1/clusters/{cluster}/schedules:resume",
    manage("Resume the ends of temporary changes", SchedulePauseState),
)
async def resume_schedules(call: CallDep, schedules: SchedulesDep) -> Response:
    """Needs FREEZE on the cluster. Ends that are due follow within seconds."""
    await schedules.resume(call.cluster.name, call.caller, validate_only=call.validate_only)
    return json_response(call.request, {"pause": None})


@routes.post(
    "/v1/clusters/{cluster}/schedules/{changeId}:end",
    change("End a temporary change now", ScheduleData),
)
async def end_schedule(call: CallDep, schedules: SchedulesDep, change_id: _ChangeId) -> Response:
    """Needs ALTER_CONFIGS on each of its entities. Nothing is done to a change that has ended."""
    ended = await schedules.end(
        call.cluster, formats.parse_uuid(change_id, "changeId"), call.caller, validate_only=call.validate_only
    )
    headers = change_header(ended.end_id)
    return json_response(call.request, _schedule(ended), headers=headers, revision=ended.end_revision)


def _schedule(found: Schedule) -> dict[str, Any]:
    return {
        "changeId": str(found.change_id),
        "principal": found.principal,
        "reason": found.reason,
        "entities": list(found.entity_ids),
        "revertAt": rfc3339(found.revert_at),
        "state": found.state.value,
        "endChangeId": None if found.end_id is None else str(found.end_id),
        "kept": [{"entity": each.entity_id, "key": each.key} for each in found.kept],
        "error": found.error,
        "endedAt": None if found.ended_at is None else rfc3339(found.ended_at),
    }


def _pause(found: SchedulePause | None) -> dict[str, str] | None:
    if found is None:
        return None
    return {"principal": found.principal, "reason": found.reason, "since": rfc3339(found.since)}
