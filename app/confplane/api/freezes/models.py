"""The forms of freezes and thaws."""

from typing import Annotated

from pydantic import Field, StrictBool, StrictStr

from confplane.api.models import AnswerModel, ChangeId, Count, Revision, Time, Validatable


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
