"""Answers to who may do what, and the history of tokens and grants."""

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field, StrictStr
from starlette.responses import Response

from confplane.api import formats
from confplane.api.dependencies import CallDep, PageSize, PageToken, ServiceCallDep
from confplane.api.grants import GrantData, OperationName, ResourceTypeName
from confplane.api.models import AnswerModel, Page, RequestModel, Time
from confplane.api.responses import json_response, page_response
from confplane.api.routing.operations import read
from confplane.api.routing.routes import Routes
from confplane.api.services import AccessAdminDep
from confplane.domain.access.operations import OF_SERVICE, Operation, ResourceType
from confplane.domain.access.ranges import spell
from confplane.domain.errors import InvalidRequestError
from confplane.domain.texts import clipped, rfc3339
from confplane.services.access_admin import rules
from confplane.services.access_admin.overview import Right, own_rights, rights_of
from confplane.services.access_admin.views import grant_view
from confplane.services.limits import LimitClass
from confplane.services.ports.access import AccessChange, AccessQuery, StoredGrant

MAX_CHECKS = 100
"""Checks of one request."""


class RightData(AnswerModel):
    """An operation on the resources that match a pattern. Operations that it includes are not repeated."""

    operation: str
    resource_type: str
    pattern_type: Literal["literal", "prefixed"]
    name: str = Field(description="`*`: every name, but no default entity; of `cluster` its users and brokers too")


class AccessItem(AnswerModel):
    """A grant that applies, and its principal."""

    principal: str
    allowed: bool = Field(description="false: the grant denies")
    grant: GrantData | None = Field(description="null: the right that every user of Kafka's has of itself")
    rights: list[RightData] = Field(description="What the grant gives or denies, its role expanded")


class AccessReport(AnswerModel):
    """The grants that apply, denies first."""

    items: list[AccessItem]


class CheckBody(RequestModel):
    """One question: may the caller do this?"""

    operation: OperationName
    resource_type: ResourceTypeName
    name: StrictStr | None = Field(
        default=None, description="null: the default entity, or a resource that has no names such as `cluster`"
    )


class ChecksBody(RequestModel):
    """Questions about the caller itself."""

    checks: Annotated[list[CheckBody], Field(min_length=1, max_length=MAX_CHECKS)]


class CheckResult(AnswerModel):
    """The answer to one question."""

    operation: str
    resource_type: str
    name: str | None
    allowed: bool


class ChecksResult(AnswerModel):
    """The answers, in the order of the questions."""

    results: list[CheckResult]


class AccessChangeData(AnswerModel):
    """One change of a token, a grant or a webhook, a pause of temporary changes, or a sum of security events."""

    id: Annotated[str, Field(pattern=formats.UUID, description="UUIDv7")]
    kind: str = Field(
        description="token-created, token-revoked, token-rotated, tokens-confirmed, tokens-invalidated, grant-created,"
        " grant-replaced, grant-removed, webhook-created, webhook-replaced, webhook-removed, webhook-assigned,"
        " webhook-resumed, webhook-parked, webhook-secret-rotated, schedules-paused, schedules-resumed; or an event:"
        " denied, unauthenticated, admin-token-used, break-glass"
    )
    principal: str = Field(description="The principal that did it, or was refused")
    behalf_of: str | None = Field(description="The user for whom a portal acted")
    source: str
    subject: str = Field(
        description="`tokens/<id>`, `grants/<id>`, `webhooks/<cluster>/<name>` or `schedules/<cluster>`; for a security"
        " event its subject"
    )
    request_id: str | None
    reason: str | None
    ticket: str | None
    before: dict[str, Any] | None = Field(description="The token, grant or webhook before; never a secret")
    after: dict[str, Any] | None = Field(description="The token, grant or webhook after; never a secret")
    count: Annotated[int, Field(ge=1)] = Field(description="Events in the minute; 1 for a change")
    recorded_at: Time


class AccessChangePage(Page[AccessChangeData]):
    """A page of the history, newest first."""


routes = Routes(tag="access")

_Time = Annotated[
    str | None,
    Query(
        description="RFC 3339; `since` is inclusive, `until` is exclusive",
        json_schema_extra={"format": "date-time"},
        examples=["2026-01-31T12:00:00Z"],
    ),
]


@routes.get(
    "/v1/audit",
    read(
        "Search the history of tokens and grants, newest first",
        AccessChangePage,
        limit=LimitClass.BULK,
        problems=(503,),
    ),
)
async def search_access_audit(  # noqa: PLR0913 - one argument a parameter is FastAPI's way
    call: ServiceCallDep,
    admin: AccessAdminDep,
    *,
    kind: Annotated[str | None, Query(description="Such as token-created or denied", max_length=100)] = None,
    principal: Annotated[str | None, Query(description="The principal that did it", max_length=4096)] = None,
    subject: Annotated[str | None, Query(description="`tokens/<id>` or `grants/<id>`", max_length=4096)] = None,
    since: _Time = None,
    until: _Time = None,
    page_size: PageSize = 100,
    page_token: PageToken = None,
) -> Response:
    """Changes of tokens and grants with their authors and reasons, and sums of security events.

    Needs DESCRIBE on `audit`.
    """
    query = AccessQuery(
        kind=kind,
        principal=principal,
        subject=subject,
        since=formats.parse_moment(since, "since"),
        until=formats.parse_moment(until, "until"),
        page_size=page_size,
        before=formats.parse_page_token(page_token),
    )
    found, cursor = await admin.history(query, call.access)
    call.charge(LimitClass.BULK, len(found))
    items = [_change(row) for row in found]
    return page_response(call.request, items, cursor)


@routes.get(
    "/v1/clusters/{cluster}/access",
    read(
        "List the grants of somebody, or those to a resource",
        AccessReport,
        limit=LimitClass.BULK,
        problems=(503,),
    ),
)
async def get_access(
    call: CallDep,
    admin: AccessAdminDep,
    *,
    principal: Annotated[
        str | None,
        Query(description="A user: what may it do?", json_schema_extra={"pattern": formats.PRINCIPAL}),
    ] = None,
    group: Annotated[
        str | None,
        Query(
            description="A group, by itself or with a user who is in it",
            json_schema_extra={"pattern": formats.PRINCIPAL},
        ),
    ] = None,
    resource: Annotated[
        str | None,
        Query(
            description="`type:name`, such as `topic:orders`; a type alone is the default entity, or has no names:"
            " who may do the operation there?",
            json_schema_extra={"pattern": formats.RESOURCE},
        ),
    ] = None,
    operation: Annotated[
        str | None, Query(description="With resource", json_schema_extra={"enum": [each.value for each in Operation]})
    ] = None,
) -> Response:
    """Rights of a user or group in the cluster, by grant; or the users and groups with an operation on a resource.

    The second form returns one grant for each principal and group: the deny that refuses the operation, or otherwise a
    grant that allows it. Callers see their own grants; others need DESCRIBE on `grants`.
    """
    overview, cluster = admin.overview, call.cluster.name
    if (resource is None) != (operation is None):
        raise InvalidRequestError("Give resource and operation together", pointer="resource")
    if resource is not None and operation is not None:
        if principal is not None or group is not None:
            raise InvalidRequestError("Give either resource and operation, or principal and group", pointer="principal")
        deciding = await overview.who(cluster, *_asked(operation, resource), call.access)
        call.charge(LimitClass.BULK, len(deciding))
        return json_response(call.request, {"items": [_item(each.grant, each.principal) for each in deciding]})
    found = await overview.grants_of(principal, group, cluster, call.access)
    call.charge(LimitClass.BULK, len(found))
    items = [_item(stored, stored.grant.principal) for stored in found]
    if principal is not None and (own := own_rights(principal)):
        items.append({"principal": principal, "allowed": True, "grant": None, "rights": [_right(each) for each in own]})
    return json_response(call.request, {"items": items})


@routes.post(
    "/v1/clusters/{cluster}/access:check",
    read("Check what the caller may do", ChecksResult, limit=LimitClass.READ, problems=(503,)),
)
async def check_access(call: CallDep, body: ChecksBody) -> Response:
    """Answers to up to 100 questions about the caller itself, so that a portal greys out its buttons.

    Tokens, grants and the audit of both are of no cluster: an answer is for all clusters together.
    """
    results = []
    for index, each in enumerate(body.checks):
        kind, name = each.resource_type, each.name
        rules.check_right(each.operation, None, kind, at=f"/checks/{index}")
        if name is not None:
            rules.check_resource_name(kind, name, f"/checks/{index}/name")
        cluster = None if kind in OF_SERVICE else call.cluster.name
        allowed = call.access.allows(cluster, each.operation, spell(kind, name))
        results.append(
            {"operation": each.operation.value, "resourceType": kind.value, "name": name, "allowed": allowed}
        )
    return json_response(call.request, {"results": results})


def _asked(operation: str, resource: str) -> tuple[Operation, str]:
    """Return an operation, and the spelling of ``type:name``."""
    word, colon, name = resource.partition(":")
    try:
        wanted = Operation(operation)
    except ValueError:
        raise InvalidRequestError(
            f"There is no operation {clipped(operation)!a}; there are: {', '.join(Operation)}", pointer="operation"
        ) from None
    try:
        kind = ResourceType(word)
    except ValueError:
        raise InvalidRequestError(
            f"There is no resource type {clipped(word)!a}; there are: {', '.join(ResourceType)}", pointer="resource"
        ) from None
    if colon:
        rules.check_resource_name(kind, name, "resource")
    return wanted, spell(kind, name if colon else None)


def _item(stored: StoredGrant, principal: str) -> dict[str, Any]:
    return {
        "principal": principal,
        "allowed": stored.grant.allows,
        "grant": grant_view(stored),
        "rights": [_right(each) for each in rights_of(stored.grant)],
    }


def _right(right: Right) -> dict[str, Any]:
    return {
        "operation": right.operation.value,
        "resourceType": right.resource.value,
        "patternType": right.pattern.value,
        "name": right.name,
    }


def _change(row: AccessChange) -> dict[str, Any]:
    return {
        "id": str(row.id),
        "kind": row.kind,
        "principal": row.principal,
        "behalfOf": row.behalf_of,
        "source": row.source,
        "subject": row.subject,
        "requestId": row.request_id,
        "reason": row.reason,
        "ticket": row.ticket,
        "before": row.before,
        "after": row.after,
        "count": row.count,
        "recordedAt": None if row.recorded_at is None else rfc3339(row.recorded_at),
    }
