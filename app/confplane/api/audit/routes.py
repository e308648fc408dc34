"""The audit trail: changes with their principals, values before and after, and reasons."""

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from starlette.responses import Response

from confplane.api import parsed, patterns
from confplane.api.audit import models
from confplane.api.audit.render import audit_record, audit_refusal
from confplane.api.dependencies import CallDep, PageSize, PageToken
from confplane.api.responses import json_response, page_response
from confplane.api.routing.operations import read
from confplane.api.routing.routes import Routes
from confplane.api.services import AuditDep, RefusalsDep
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError
from confplane.services.limits import LimitClass
from confplane.services.ports.cluster_states import ENTITY
from confplane.services.ports.refusals import RefusedQuery
from confplane.services.ports.trail import AuditQuery
from confplane.services.reads import trail

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
    read("Search the trail, newest change id first", models.AuditPage, limit=LimitClass.BULK, problems=(503,)),
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
            json_schema_extra={"pattern": patterns.AUDITED_ID},
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
        "since": parsed.moment(since, "since"),
        "until": parsed.moment(until, "until"),
        "page_size": page_size,
        "before": parsed.page_token(page_token),
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
    read("One change", models.AuditedChange, limit=LimitClass.BULK, problems=(503,)),
)
async def get_audited_change(
    call: CallDep,
    log: AuditDep,
    changeId: Annotated[  # noqa: N803 - the URL's word
        str, Path(description="As Confplane-Change-Id gave it", json_schema_extra={"pattern": patterns.CHANGE_ID})
    ],
) -> Response:
    """The change with its outcome, as far as it is known. 404 if the caller may not describe any of its entities."""
    change_id = parsed.uuid(changeId, "changeId")
    record = await trail.find(log, call.access, call.cluster.name, change_id)
    return json_response(call.request, audit_record(record))
