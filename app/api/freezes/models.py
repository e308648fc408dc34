"""The forms of freezes and thaws."""

from typing import Annotated

from pydantic import Field, StrictStr

from app.api.models import AnswerModel, ChangeId, Revision, Time, Validatable


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


class FreezeState(AnswerModel):
    """Answer of a freeze or a thaw: the cluster's freeze before and after."""

    before: FreezeData | None = Field(description="null: the cluster was not frozen")
    after: FreezeData | None = Field(description="null: the cluster is not frozen")
    change_id: ChangeId | None = Field(description="null: nothing was written; it was so already")
    revision: Revision | None
