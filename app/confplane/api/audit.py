"""The audit trail: changes with their principals, values before and after, and reasons."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from confplane.api import formats
from confplane.api.dependencies import CallDep, PageSize, PageToken
from confplane.api.models import Absent, AnswerModel, ChangeId, EntityId, Kind, Page, Reverts, Revision, Time
from confplane.api.responses import json_response, number, page_response, reverts, timestamp
from confplane.api.routing.operations import read
from confplane.api.routing.routes import Routes
from confplane.api.services import AuditDep, RefusalsDep
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.domain.ops import OpType
from confplane.domain.texts import rfc3339
from confplane.services.limits import LimitClass
from confplane.services.ports.cluster_states import ENTITY
from confplane.services.ports.refusals import RefusedQuery, StoredAttempt
from confplane.services.ports.trail import AuditQuery, AuditRecord, ObservedRange
from confplane.services.reads import trail


class AuditedOp(AnswerModel):
    """An op as it was asked for: a key set, a key removed, or all keys of the facet removed or moved."""

    key: str | Absent = Field(default=None, description="Absent where the op is about all keys of the facet")
    op: Literal["SET", "DELETE", "APPEND", "SUBTRACT", "REENCODE", "MOVE", "DISCARD"] | Absent = Field(
        default=None,
        description="Of configs of topics and brokers, and of all keys of a facet. Absent: set, or removed where "
        "remove is true; configs set by PUT or POST lack it, too, in changes of earlier releases. REENCODE: the same "
        "value came under a new encoder secret. MOVE: the client configs went to another layout. DISCARD: client "
        "configs that nobody read were removed from the other layout",
    )
    to: Literal["shared", "separate"] | Absent = Field(default=None, description="Of MOVE: the layout")
    value: str | float | bool | None = Field(default=None, description="null: a secret, or none")
    secret: Literal[True] | Absent = None
    remove: Literal[True] | Absent = None
    remove_all: Literal[True] | Absent = None


class AuditedEntity(AnswerModel):
    """One entity of a change. Null values in before and after are secrets, or keys of no facet."""

    id: EntityId
    facet: Literal["client-quotas", "client-configs", "clients", "configs", "cluster", "node"] = Field(
        description="clients: client quotas and client configs in one change of the znode that has both; node: all "
        "keys of the znode, in an external or recovered change; cluster: a freeze, a thaw, a layout, a "
        "target"
    )
    path: str = Field(description="Of the znode, below the cluster's chroot")
    version_read: int | None = Field(description="The znode's version before; null where it was absent")
    version: int | None = Field(description="The version it got; null where it was removed, or nothing was applied")
    remade: bool = Field(
        description="The znode was deleted and created again externally during the change. Its external content was"
        " overwritten without having been read; `before` is the content that was read"
    )
    keys: list[str]
    ops: list[AuditedOp]
    before: dict[str, str | None]
    after: dict[str, str | None]


class AuditedSighting(AnswerModel):
    """The place of external writes in the metadata log of an observed Kafka cluster."""

    after: Annotated[str, Field(pattern=r"^-?[0-9]+$")] | None = Field(
        description="A metadata offset at which the entity still was as before; null if no earlier poll is known"
    )
    until: Annotated[str, Field(pattern=r"^-?[0-9]+$")] = Field(
        description="A metadata offset at which the entity was as the change left it. The writes are among the records "
        "behind after, up to until; of an exact change, until is the offset of the last one"
    )
    at: Time = Field(description="When it was seen; of an exact change, the time of the last record in Kafka's log")
    exact: bool = Field(
        description="true: read from the metadata log, record by record; false: seen in a look at the cluster, which "
        "merges the writes since the look before it"
    )
    writes: Annotated[int, Field(ge=1)] = Field(description="How many records; where not exact, at least how many")


class AuditedChange(AnswerModel):
    """One change: its last attempt and its outcome."""

    change_id: ChangeId
    kind: Kind = Field(
        description="reload: no key got another value, and a broker loads files again whose paths stay; import: a"
        " config was imported from an observed Kafka cluster; observed: an external change"
        " in that "
        "cluster afterwards; put-back: an external change in that cluster that was replaced by the value here, and so "
        "never committed; external: a change in ZooKeeper outside this service (by a broker, Kafka's tools or a"
        " person); "
        "recovered: this service wrote it and Postgres lost the rows, so the request is not known"
    )
    writes: int | None = Field(
        description="For an external change, the least number of its writes; for a recovered change 1; otherwise null"
    )
    observed: AuditedSighting | None = Field(description="Of import, observed and put-back changes; else null")
    reverts: Reverts
    revert_at: Time | None = Field(description="Of a temporary change, the time of its end; otherwise null")
    ends: ChangeId | None = Field(description="The temporary change that this change ends; otherwise null")
    applies: ChangeId | None = Field(description="The change request that this change applies; otherwise null")
    cluster: str
    attempt: Annotated[int, Field(ge=1)]
    principal: str
    on_behalf_of: str | None = Field(description="The user for whom the principal acted; null if it acted for itself")
    source: str
    request_id: str
    reason: str | None
    ticket: str | None
    created_at: Time
    outcome: Literal["committed", "rejected", "open"] = Field(description="open: not known yet")
    revision: Revision | None
    committed_at: Time | None
    recorded_at: Time | None
    error_code: int | None
    error_message: str | None = Field(description="null where it may name an entity that is left out")
    partial: bool = Field(description="The change has further entities, which the caller may not describe")
    entities: list[AuditedEntity]


class AuditedRefusal(AnswerModel):
    """A write that was refused before a change began, or a sum of further ones of the same minute. It has no values."""

    id: Annotated[str, Field(pattern=formats.CHANGE_ID, description="UUIDv7 of the time")]
    cluster: str
    principal: str
    on_behalf_of: str | None = Field(
        description="The user for whom the principal acted; null if it acted for itself, and for a sum"
    )
    operation: str = Field(description="The operation's id in this specification", examples=["putClientQuotas"])
    entity: EntityId | None = Field(
        description="null if the request names no valid entity, and for a sum. An id of more than 256 characters is"
        " shortened, and ends with an ellipsis"
    )
    keys: list[str] = Field(description="The first 20 keys that the attempt names; empty of a sum")
    error_code: int = Field(description="Kafka's error code", examples=[44])
    problem: str = Field(description="The problem type", examples=["/problems/policy-violation"])
    request_id: str | None = Field(description="null of a sum")
    time: Time = Field(description="The time of the attempt, by the process's clock; of a sum, of its first attempt")
    count: Annotated[int, Field(ge=1)] = Field(
        description="1; of a sum, the number of attempts. A process lists 60 attempts of a principal in a minute, and"
        " sums up further ones by operation and error"
    )


class AuditPage(Page[AuditedChange | AuditedRefusal]):
    """A page of the trail, or of refused attempts, newest first."""


def audit_record(record: AuditRecord) -> dict[str, Any]:
    """Return one change of the trail."""
    intent, outcome = record.intent, record.outcome
    return {
        "changeId": str(intent.change_id),
        "kind": record.kind,
        "writes": record.writes,
        "observed": None if intent.observed is None else _observation(intent.observed),
        "reverts": reverts(intent),
        "revertAt": None if intent.revert_at is None else rfc3339(intent.revert_at),
        "ends": None if intent.ends is None else str(intent.ends),
        "applies": None if intent.applies is None else str(intent.applies),
        "cluster": intent.cluster,
        "attempt": intent.attempt,
        "principal": intent.principal,
        "onBehalfOf": intent.behalf_of,
        "source": intent.source,
        "requestId": intent.request_id,
        "reason": intent.reason,
        "ticket": intent.ticket,
        "createdAt": rfc3339(record.created_at),
        "outcome": "open" if outcome is None else "committed" if outcome.committed else "rejected",
        "revision": None if outcome is None or outcome.revision is None else str(outcome.revision),
        "committedAt": None if outcome is None or outcome.time_ms is None else timestamp(outcome.time_ms),
        "recordedAt": None if record.recorded_at is None else rfc3339(record.recorded_at),
        "errorCode": None if outcome is None else outcome.error_code,
        "errorMessage": None if outcome is None else outcome.error,
        "partial": record.partial,
        "entities": [
            {
                "id": entity.entity_id,
                "facet": entity.facet,
                "path": entity.path,
                "versionRead": entity.version_read,
                "version": None if outcome is None else outcome.versions.get(entity.path),
                "remade": outcome is not None and entity.path in outcome.remade,
                "keys": list(entity.keys),
                "ops": [_audited_op(entity.facet, op) for op in entity.ops],
                "before": entity.before,
                "after": entity.after,
            }
            for entity in intent.entities
        ],
    }


def audit_refusal(stored: StoredAttempt) -> dict[str, Any]:
    """Return a refused attempt."""
    attempt = stored.attempt
    return {
        "id": str(stored.id),
        "cluster": attempt.cluster,
        "principal": attempt.principal,
        "onBehalfOf": attempt.behalf_of,
        "operation": attempt.operation,
        "entity": attempt.entity_id,
        "keys": list(attempt.keys),
        "errorCode": attempt.error_code,
        "problem": f"/problems/{attempt.problem}",
        "requestId": attempt.request_id,
        "time": timestamp(stored.time_ms),
        "count": attempt.count,
    }


def _observation(observed: ObservedRange) -> dict[str, Any]:
    return {
        "after": None if observed.after is None else str(observed.after),
        "until": str(observed.until),
        "at": timestamp(observed.at_ms),
        "exact": observed.exact,
        "writes": observed.writes,
    }


def _audited_op(facet: str, op: Mapping[str, Any]) -> dict[str, Any]:
    """Return an op of the trail in the form of answers.

    Outside ``configs``, a removal has ``remove`` and a set value has no member for its type. The trail once stored this
    form, so clients already read it. Rows from that time are returned unchanged.
    """
    shown = {name: number(value) for name, value in op.items()}
    if facet == FacetName.CONFIGS or "key" not in op:
        return shown
    kind = shown.pop("op", None)
    return {"key": op["key"], "remove": True} if kind == OpType.DELETE.name else shown


routes = Routes(tag="audit")

_Time = Annotated[
    str | None,
    Query(
        description="RFC 3339; `since` is inclusive, `until` is exclusive. The time of a change is that of its"
        " commit by ZooKeeper's clock, or otherwise the time at which Postgres recorded its intent",
        json_schema_extra={"format": "date-time"},
        examples=["2026-01-31T12:00:00Z"],
    ),
]


@routes.get(
    "/v1/clusters/{cluster}/audit",
    read("Search the trail, newest change id first", AuditPage, limit=LimitClass.BULK, problems=(503,)),
)
async def search_audit(  # noqa: PLR0913 - one argument a parameter is FastAPI's way
    call: CallDep,
    refusals: RefusalsDep,
    log: AuditDep,
    *,
    entity: Annotated[
        str | None,
        Query(
            description="Entity id; `cluster` for freezes, thaws and layouts",
            examples=["user=alice"],
            json_schema_extra={"pattern": formats.AUDITED_ID},
        ),
    ] = None,
    key: Annotated[str | None, Query(description="A config key that the change altered", max_length=249)] = None,
    principal: Annotated[str | None, Query(description="The principal of the change", max_length=1024)] = None,
    request_id: Annotated[
        str | None,
        Query(
            alias="requestId",
            description="The id of the request that made the change, as X-Request-Id gave it",
            max_length=128,
        ),
    ] = None,
    since: _Time = None,
    until: _Time = None,
    outcome: Annotated[
        Literal["committed", "rejected", "open"] | None,
        Query(description="open: not known yet. Not together with result=refused"),
    ] = None,
    result: Annotated[
        Literal["changes", "refused"],
        Query(description="refused: refused attempts instead of changes; they are kept for 90 days"),
    ] = "changes",
    page_size: PageSize = 100,
    page_token: PageToken = None,
) -> Response:
    """Changes, each with its whole config before and after, without the values of secrets.

    With `result=refused`: writes that validation, a grant, a policy or a freeze refused before a change began, without
    values. Failed preconditions, conflicts with other changes and unavailable stores are not among them.

    A caller without DESCRIBE on `audit` sees changes of the entities that it may describe, and attempts to change them.
    Then a page may be short, and even empty, and yet have a `nextPageToken`: the work for one page is bounded.
    """
    filters: dict[str, Any] = {
        "cluster": call.cluster.name,
        "entity_id": entity if entity is None or entity == ENTITY else Entity.from_id(entity, pointer="entity").id,
        "key": key,
        "principal": principal,
        "request_id": request_id,
        "since": formats.parse_moment(since, "since"),
        "until": formats.parse_moment(until, "until"),
        "page_size": page_size,
        "before": formats.parse_page_token(page_token),
    }
    if result == "refused":
        if outcome is not None:
            raise InvalidRequestError(
                "outcome can't be combined with result=refused: refused attempts have no outcome. Leave one out",
                pointer="outcome",
            )
        refused, cursor = await trail.search_refused(refusals, call.access, RefusedQuery(**filters))
        call.charge(LimitClass.BULK, len(refused))
        return page_response(call.request, [audit_refusal(each) for each in refused], cursor)
    records, cursor = await trail.search(log, call.access, AuditQuery(**filters, outcome=outcome))
    call.charge(LimitClass.BULK, len(records))
    return page_response(call.request, [audit_record(record) for record in records], cursor)


@routes.get(
    "/v1/clusters/{cluster}/audit/{changeId}",
    read("One change", AuditedChange, limit=LimitClass.BULK, problems=(503,)),
)
async def get_audited_change(
    call: CallDep,
    log: AuditDep,
    changeId: Annotated[  # noqa: N803 - the URL's word
        str, Path(description="As Confplane-Change-Id gave it", json_schema_extra={"pattern": formats.CHANGE_ID})
    ],
) -> Response:
    """The change with its outcome, as far as it is known. 404 if the caller may not describe any of its entities."""
    change_id = formats.parse_uuid(changeId, "changeId")
    record = await trail.find(log, call.access, call.cluster.name, change_id)
    return json_response(call.request, audit_record(record))
