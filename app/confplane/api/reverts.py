"""Reverts: of changes of the trail, and of an entity to a moment."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import orjson
from pydantic import ConfigDict, Field, StrictBool, StrictStr
from starlette.responses import Response

from confplane.api import batches, formats, kraft, problems
from confplane.api import models as base
from confplane.api.dependencies import Call, CallDep
from confplane.api.responses import change_header, json_response, written_revision
from confplane.api.routing.operations import change, partly
from confplane.api.routing.preconditions import ConditionalHeaders
from confplane.api.routing.routes import Routes
from confplane.api.services import RevertsDep
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError, RevertConflictError
from confplane.domain.facets import FacetName
from confplane.services.changes.edits import EntryResult
from confplane.services.cooperative_yielding import in_slices
from confplane.services.kraft.apply.apply_status import FACETS
from confplane.services.limits import LimitClass
from confplane.services.ports.trail import MOST_REVERTS
from confplane.services.reverts.service import Reversal, RevertSelection, RevertService

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
        json_schema_extra={"pattern": formats.UUID},
    )
    request_id: StrictStr = Field(
        default="", pattern=formats.REQUEST_ID, description="All changes of one request, as X-Request-Id gave it"
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


routes = Routes(tag="audit")

_SELECTOR_FIELDS: Final = frozenset({"change_id", "request_id", "principal"})
_UNCHANGED: Final = "Nothing is changed: these keys have the values of before already"


@routes.post(
    "/v1/clusters/{cluster}/audit:revert",
    change(
        "Revert one change, the changes of one request, or those of a principal in a span of time",
        partly(RevertedChanges, "Some entities failed"),
        problem=RevertProblem,
    ),
)
async def revert_changes(call: CallDep, reverts: RevertsDep, body: RevertChanges) -> Response:
    """Sets each key that the changes touched to its value before them, with one result for each entity and facet.

    Refused, with the changes named, where later changes touched the same keys, unless `force`; always refused where the
    value before is not kept, such as a secret's. What one change did to several entities is reverted in one change, or
    not at all. Needs ALTER_CONFIGS on each entity; changes of hidden entities alone are left out. Most changes: 10,000.
    """
    call.take(LimitClass.BULK)
    done = await reverts.changes(
        call.cluster,
        _selection(body),
        call.caller,
        keys=frozenset(body.keys) or None,
        force=body.force,
        validate_only=call.validate_only or body.validate_only,
    )
    call.charge(LimitClass.WRITE, len(done.results) - 1)
    results = [EntryResult((each.result,)) for each in done.results]
    revision = written_revision(call.cluster.store, results)
    waited = await kraft.wait_for_status(call, ((each.cluster_facet, each.result) for each in done.results))
    rendered = await in_slices(lambda each: orjson.Fragment(orjson.dumps(_reversal(each, waited))), done.results)
    skipped = [{"changeId": str(each.change_id), "reason": each.reason} for each in done.skipped]
    return batches.alter_response(call, results, {"skipped": skipped, "results": rendered}, revision)


ENTITY: Final = change(
    "Give an entity the content that it had at a moment",
    RevertedEntity,
    problems=(410,),
    description="Reverts every change to the entity's keys after the given time, regardless of author. `If-Match`"
    " refuses content that the caller has not seen; `force` continues despite concurrent external changes. 410 for a"
    " time before the trail began",
)
"""The facts of :func:`revert_entity`."""


async def revert_entity(
    call: Call,
    reverts: RevertService,
    name: FacetName,
    entity: Entity,
    conditions: ConditionalHeaders,
    body: RevertEntity,
) -> Response:
    """Answer a revert of one entity of a facet."""
    made = await reverts.entity(
        call.cluster.facets[name],
        entity,
        formats.parse_revision_or_time(body.to, "/to"),
        call.caller,
        precondition=conditions.precondition(),
        force=body.force,
        validate_only=call.validate_only or body.validate_only,
    )
    result = made.result
    if result.error is not None:
        raise result.error
    headers = change_header(result.change_id)
    revision = written_revision(call.cluster.store, [result])
    waited = await kraft.wait_for_status(call, [(made.cluster_facet, result)])
    return json_response(call.request, _reversal(made, waited), headers=headers, revision=revision)


def _selection(body: RevertChanges) -> RevertSelection:
    given = body.model_fields_set & _SELECTOR_FIELDS
    of_span = body.model_fields_set & {"since", "until"}
    if len(given) != 1 or (of_span and "principal" not in given) or ("principal" in given and not body.since):
        raise InvalidRequestError(
            "Name changeId, or requestId, or principal with since (and until): one of the three", pointer=""
        )
    if "change_id" in given:
        return RevertSelection(change_id=formats.parse_uuid(body.change_id, "/changeId"))
    if "request_id" in given:
        return RevertSelection(request_id=body.request_id)
    until = formats.parse_time(body.until, "/until") if "until" in of_span else None
    return RevertSelection(principal=body.principal, since=formats.parse_time(body.since, "/since"), until=until)


def _reversal(reversal: Reversal, waited: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    cluster_facet, result = reversal.cluster_facet, reversal.result
    named = {
        "facet": cluster_facet.name.value,
        "id": result.edit.entity.id,
        "reverts": [str(each) for each in reversal.changes[-MOST_REVERTS:]],
        **(waited.get(result.edit.entity.id, {}) if cluster_facet.name in FACETS else {}),
    }
    entry = batches.altered_entry(EntryResult((result,)), named, batches.diff(cluster_facet, result))
    if isinstance(result.error, RevertConflictError):
        entry["laterChanges"] = [problems.later_change(each) for each in result.error.later]
    if result.error is None and not result.diff:
        entry["warnings"] = [*entry["warnings"], _UNCHANGED]
    return entry
