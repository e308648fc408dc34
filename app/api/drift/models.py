"""The forms of drift."""

from typing import Literal

from pydantic import Field

from app.api.models import AnswerModel, EntityId, EntityNames, Page, Time


class DriftedKey(AnswerModel):
    """One key with its value here and in the Kafka cluster; null is absent, or a secret."""

    key: str
    state: Literal["pending", "refused", "contested", "extra"] = Field(
        description="pending: the change is on its way, to the cluster or from there; refused: the cluster refused the"
        " entity's values; contested: others set the key again and again, and it is put back no more; extra: others set"
        " the key in the cluster, and it was never set here"
    )
    ours: str | float | None
    theirs: str | float | None = Field(
        description="null also where the cluster did not answer; observedAt is null then"
    )
    secret: bool = Field(description="The values are not shown")
    since: Time | None = Field(
        description="When our change was committed, or since when the key is left alone; null: not known"
    )
    principal: str | None = Field(
        description="Who made the change: of ours the caller, else `External:unknown`; null: not known"
    )


class DriftedEntity(AnswerModel):
    """One entity whose values in the Kafka cluster differ from those here."""

    id: EntityId
    entity: EntityNames
    facet: Literal["client-quotas", "configs"]
    observed_at: Time | None = Field(
        description="The time of the look that showed the values; null: the cluster did not show any"
    )
    refused_code: int | None = Field(description="Kafka's code of a refusal; null: nothing was refused")
    refused_message: str | None
    keys: list[DriftedKey]


class DriftPage(Page[DriftedEntity]):
    """A page, ordered by id. It may be short without being the last: entities that a look finds equal are left out."""
