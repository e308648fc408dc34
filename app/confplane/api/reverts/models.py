"""The forms of reverts."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field, StrictBool, StrictStr

from confplane.api import models as base
from confplane.api import patterns
from confplane.services.ports.trail import MOST_REVERTS

_SELECTORS = {"changeId": ("changeId",), "requestId": ("requestId",), "principal": ("principal", "since")}
_PARTS = ("changeId", "requestId", "principal", "since", "until")
_TIME: dict[str, Any] = {"format": "date-time"}


def _one_of_the_selectors() -> dict[str, Any]:
    """Describe a body with the members of one selector and of no other selector."""
    of_spans = {"since", "until"}
    return {
        "oneOf": [
            {
                "required": list(needed),
                "properties": {
                    part: False
                    for part in _PARTS
                    if part not in needed and (name != "principal" or part not in of_spans)
                },
            }
            for name, needed in _SELECTORS.items()
        ]
    }


class Revert(base.Validatable):
    """Base of reverts."""

    force: StrictBool = Field(
        default=False, description="Revert over later changes of the same keys, which else refuse the revert"
    )


class RevertChanges(Revert):
    """The changes to revert: changeId, or requestId, or principal with since and optionally until."""

    model_config = ConfigDict(json_schema_extra=_one_of_the_selectors())

    # Absent if they are not in the body; null is refused.
    change_id: StrictStr = Field(
        default="",
        description="One change, as Confplane-Change-Id gave it",
        json_schema_extra={"pattern": patterns.UUID},
    )
    request_id: StrictStr = Field(
        default="", pattern=patterns.REQUEST_ID, description="All changes of one request, as X-Request-Id gave it"
    )
    principal: StrictStr = Field(
        default="", min_length=1, max_length=1024, description="All changes of a principal since a time"
    )
    since: StrictStr = Field(default="", description="RFC 3339; part of the span", json_schema_extra=_TIME)
    until: StrictStr = Field(
        default="", description="RFC 3339; no part of the span. Now where it is absent", json_schema_extra=_TIME
    )
    keys: Annotated[
        list[Annotated[StrictStr, Field(max_length=base.MAX_KEY)]], Field(min_length=1, max_length=base.MAX_KEYS)
    ] = Field(default=[], description="Only these keys; all keys where it is absent")


class RevertEntity(Revert):
    """The time to which an entity is reverted."""

    to: Annotated[StrictStr, Field(max_length=64, examples=["8589934635"])] = Field(
        description="A revision, when it is all digits, or else a time (RFC 3339 with an offset)"
    )


class RevertDiff(base.Diff[str | float]):
    """A key before and after the revert; null is absent, or a secret."""

    secret: bool | base.Absent = Field(default=None, description="true: its values are not shown")


class RevertedEntity(base.AlteredModel):
    """The result for one entity in one facet."""

    facet: str = Field(examples=["client-quotas"])
    id: base.EntityId
    diff: list[RevertDiff] = Field(
        description="What the revert changes; empty where all keys have these values already"
    )
    reverts: Annotated[list[base.ChangeId], Field(max_length=MOST_REVERTS)] = Field(
        description="The changes of the entity that are reverted, the latest thousand of them"
    )
    later_changes: list[base.LaterChange] | base.Absent = Field(
        default=None,
        description="For a refusal: the changes that block the revert, the latest first, at most a hundred",
    )


class SkippedChange(base.AnswerModel):
    """A selected change that is left out."""

    change_id: base.ChangeId
    reason: str


class RevertedChanges(base.AnswerModel):
    """Answer of audit:revert, one result for each entity and facet."""

    throttle_time_ms: base.Count
    failed: base.Count
    skipped: list[SkippedChange] = Field(description="Changes that are left out: not applied, or no alters")
    results: list[RevertedEntity]


RevertProblem: Any = base.problem_with(
    RevertedChanges,
    "RevertProblem",
    "If all entities failed: the problem of the first one, with all results.",
)
