"""Drift: values that are pending, refused, or left in a Kafka cluster by external changes, and decisions on them."""

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field, StrictStr
from starlette.responses import Response

from confplane.api import batches
from confplane.api import models as base
from confplane.api.dependencies import Call, CallDep, OpaquePageToken, PageSize
from confplane.api.models import AnswerModel, EntityId, EntityNames, Page, Time
from confplane.api.request_context import REQUEST_CONTEXT
from confplane.api.responses import json_response, number, page_response, timestamp, written_revision
from confplane.api.routing.operations import Effect, RouteOperation, change, partly, read
from confplane.api.routing.routes import Routes
from confplane.api.services import AlterDep
from confplane.domain import id_patterns
from confplane.domain.entities import Entity, split_id
from confplane.domain.errors import InvalidRequestError
from confplane.services.kraft.reconcile.drift import DriftSelection, DriftService, EntityDrift, KeyDrift
from confplane.services.kraft.refresh import no_brokers
from confplane.services.limits import LimitClass

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


routes = Routes(tag="drift")


@routes.get(
    "/v1/clusters/{cluster}/drift",
    read(
        "List the entities whose values in the Kafka cluster differ",
        DriftPage,
        id="listDrift",
        limit=LimitClass.BULK,
        problems=(503,),
    ),
)
async def list_drift(
    call: CallDep,
    *,
    entity: Annotated[
        str | None,
        Query(
            description="Only this entity",
            examples=["user=alice"],
            json_schema_extra={"pattern": id_patterns.ANY_ID},
        ),
    ] = None,
    page_size: PageSize = 100,
    page_token: OpaquePageToken = None,
) -> Response:
    """Entities that callers write here, and that are another in the Kafka cluster (Kafka 4), with both values.

    The cluster is asked about the entities of the page, for five seconds at most. Empty where brokers read ZooKeeper,
    and in the mode `observe`.
    """
    drift, only = _drift(call), None if entity is None else Entity.from_id(entity, pointer="entity")
    if drift is None:
        return page_response(call.request, [], None)
    deadline = call.request.scope[REQUEST_CONTEXT].deadline
    found, cursor = await drift.page(call.access, page_size=page_size, after=page_token, deadline=deadline, only=only)
    call.charge(LimitClass.BULK, len(found))
    return page_response(call.request, [_entity(each) for each in found], cursor)


@routes.post(
    "/v1/clusters/{cluster}/drift:adopt",
    change(
        "Take over values of the Kafka cluster",
        partly(AdoptedDrift, "Some entities failed"),
        id="adoptDrift",
        problem=AdoptProblem,
    ),
)
async def adopt_drift(call: CallDep, alter: AlterDep, body: DriftDecision) -> Response:
    """Gives keys that differ the value that the Kafka cluster has now, each entity in a change of the caller.

    Such a key is contested or extra no more. Needs ALTER_CONFIGS on each entity. Policies count as for any alter.
    """
    chosen, drift = _chosen(body), _drift(call)
    call.charge(LimitClass.WRITE, len(chosen) - 1)
    edits = [] if drift is None else await drift.edits(chosen, call.request.scope[REQUEST_CONTEXT].deadline)
    facets = [call.cluster.facets[facet] for facet, _ in edits]
    results = await alter.alter_entries(
        [{cluster_facet: edit} for cluster_facet, (_, edit) in zip(facets, edits, strict=True)],
        call.caller,
        validate_only=call.validate_only or body.validate_only,
    )
    revision = written_revision(call.cluster.store, results)
    rendered = [
        batches.altered_entry(
            result,
            {"facet": cluster_facet.name.value, "id": result.results[0].edit.entity.id},
            batches.diff(cluster_facet, result.results[0]),
        )
        for cluster_facet, result in zip(facets, results, strict=True)
    ]
    return batches.alter_response(call, results, {"results": rendered}, revision)


@routes.post(
    "/v1/clusters/{cluster}/drift:reapply",
    RouteOperation(
        "Send values to the Kafka cluster again",
        ReappliedDrift,
        id="reapplyDrift",
        effect=Effect.REAPPLYING,
        limit=LimitClass.WRITE,
        problems=(503,),
    ),
)
async def reapply_drift(call: CallDep, body: DriftDecision) -> Response:
    """Sends refused and contested keys to the Kafka cluster again. The leader does so within seconds.

    Stored configs do not change. Extra keys stay, because a key that was never set here is never removed. Needs
    ALTER_CONFIGS on each entity; without it nothing is sent.
    """
    chosen, drift = _chosen(body), _drift(call)
    call.charge(LimitClass.WRITE, len(chosen) - 1)
    validate_only = call.validate_only or body.validate_only
    keys = {} if drift is None else await drift.reapply(chosen, call.access, validate_only=validate_only)
    results = [{"id": each.entity.id, "keys": keys.get(each.entity.id, [])} for each in chosen]
    return json_response(call.request, {"results": results})


def _drift(call: Call) -> DriftService | None:
    """Return the drift service of the cluster, or None if brokers read ZooKeeper, because then nothing can differ.

    Raises:
        UnavailableError: The settings of this process name no brokers of the Kafka cluster.
    """
    if call.cluster.store.target() is None:
        return None
    if call.cluster.drift is None:
        raise no_brokers(call.cluster.name)
    return call.cluster.drift


def _chosen(body: DriftDecision) -> list[DriftSelection]:
    """Return the entities of a body.

    Raises:
        InvalidRequestError: An id is not valid, or appears twice.
    """
    chosen, seen = [], set()
    for index, each in enumerate(body.entities):
        entity = Entity.from_id(each.id, pointer=f"/entities/{index}/id")
        if entity in seen:
            raise InvalidRequestError(
                f"{entity.id} is named more than once in this request", pointer=f"/entities/{index}/id"
            )
        seen.add(entity)
        chosen.append(DriftSelection(entity, frozenset(each.keys) or None))
    return chosen


def _entity(found: EntityDrift) -> dict[str, Any]:
    return {
        "id": found.entity.id,
        "entity": dict(split_id(found.entity.id)),
        "facet": found.facet.name.value,
        "observedAt": None if found.observed_at is None else timestamp(found.observed_at),
        "refusedCode": None if found.refused is None else found.refused.code,
        "refusedMessage": None if found.refused is None else found.refused.text,
        "keys": [_key(found, each) for each in found.keys],
    }


def _key(found: EntityDrift, key: KeyDrift) -> dict[str, Any]:
    return {
        "key": key.key,
        "state": key.state.value,
        "ours": _value(found, key, key.ours),
        "theirs": _value(found, key, key.theirs),
        "secret": key.secret,
        "since": None if key.since_ms is None else timestamp(key.since_ms),
        "refusedCode": None if key.refused is None else key.refused.code,
        "refusedMessage": None if key.refused is None else key.refused.text,
        "principal": key.principal,
    }


def _value(found: EntityDrift, key: KeyDrift, stored: str | None) -> Any:
    """Return a value as JSON, or the stored text if it is not valid for its key."""
    if stored is None:
        return None
    try:
        return number(found.facet.decode(found.entity, key.key, stored))
    except ValueError:
        return stored
