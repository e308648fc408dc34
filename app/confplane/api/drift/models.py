"""The forms of drift."""

from typing import Annotated, Any, Literal

from pydantic import Field, StrictStr

from confplane.api import models as base
from confplane.api.models import AnswerModel, EntityId, EntityNames, Page, Time
from confplane.domain import id_patterns

_MOST: int = 1_000
"""Entities in one request."""


class ChosenDrift(base.RequestModel):
    """An entity whose drift is resolved."""

    id: StrictStr = Field(json_schema_extra={"pattern": id_patterns.ANY_ID}, examples=["user=alice"])
    keys: Annotated[
        list[Annotated[StrictStr, Field(max_length=base.MAX_KEY)]], Field(min_length=1, max_length=base.MAX_KEYS)
    ] = Field(default=[], description="Only these keys; all that differ where it is absent")


class DriftDecision(base.Validatable):
    """The entities whose drift is resolved."""

    entities: list[ChosenDrift] = Field(max_length=_MOST, examples=[[{"id": "user=alice"}]])


class DriftedKey(AnswerModel):
    """One key with its value here and in the Kafka cluster; null is absent, or a secret."""

    key: str
    state: Literal["pending", "refused", "contested", "extra"] = Field(
        description="pending: the change is on its way, to the cluster or from there; refused: the cluster refused the"
        " value, or all values of the entity; contested: the key is changed externally again and again, and is no"
        " longer reverted; extra: the key was only set in the cluster, never here"
    )
    ours: str | float | None
    theirs: str | float | None = Field(
        description="null also where the cluster did not answer; observedAt is null then"
    )
    secret: bool = Field(description="The values are not shown")
    since: Time | None = Field(
        description="When our change was committed, or since when the key is left alone; null: not known"
    )
    refused_code: int | None = Field(description="Kafka's code of a refusal of the key; null: it was not refused")
    refused_message: str | None
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
    refused_code: int | None = Field(
        description="Kafka's code of a refusal of all values; null: only some keys were refused, or none"
    )
    refused_message: str | None
    keys: list[DriftedKey]


class DriftPage(Page[DriftedEntity]):
    """A page, ordered by id. It may be short without being the last: entities that a look finds equal are left out."""


class AdoptedDiff(base.Diff[str | float]):
    """The values of a key before and after; null is absent, or a secret."""

    secret: Literal[True] | base.Absent = Field(default=None, description="The values are not shown")


class AdoptedEntity(base.AlteredModel):
    """The result for one entity."""

    facet: Literal["client-quotas", "configs"]
    id: EntityId
    diff: list[AdoptedDiff] = Field(description="What changes here; empty where nothing differs")


class AdoptedDrift(AnswerModel):
    """Answer of drift:adopt, one result for each entity."""

    throttle_time_ms: base.Count
    failed: base.Count
    results: list[AdoptedEntity]


AdoptProblem: Any = base.problem_with(
    AdoptedDrift, "AdoptProblem", "If all entities failed: the problem of the first one, with all results."
)


class ReappliedEntity(AnswerModel):
    """The keys of one entity that are sent again."""

    id: EntityId
    keys: list[str] = Field(description="Empty where nothing was refused or contested")


class ReappliedDrift(AnswerModel):
    """Answer of drift:reapply, one result for each entity."""

    results: list[ReappliedEntity]
