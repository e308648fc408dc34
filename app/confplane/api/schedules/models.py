"""The forms of temporary changes."""

from typing import Annotated, Literal

from pydantic import Field, StrictStr

from confplane.api.models import AnswerModel, ChangeId, EntityId, Page, RequestModel, Time


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
