"""Grants: who may do what."""

from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import Field, StrictStr
from starlette.responses import Response

from confplane.api import formats
from confplane.api.dependencies import IfNoneMatch, PageSize, PageToken, ServiceCall, ServiceCallDep
from confplane.api.models import AnswerModel, Page, RequestModel, Time, one_of
from confplane.api.responses import json_response, page_response, unchanged
from confplane.api.routing.operations import manage, read
from confplane.api.routing.preconditions import ConditionalHeadersDep, not_modified
from confplane.api.routing.routes import Routes
from confplane.api.services import AccessAdminDep
from confplane.domain.access.grants import ANY
from confplane.domain.access.operations import Operation, PatternType, Permission, ResourceType, Role
from confplane.services.access_admin.grants import NewGrant
from confplane.services.access_admin.rules import LONGEST_NOTE
from confplane.services.access_admin.views import etag_of, grant_view
from confplane.services.limits import LimitClass
from confplane.services.ports.access import StoredGrant

GrantId = Annotated[
    str, Field(pattern=formats.UUID, description="UUIDv7", examples=["019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10"])
]
OperationName = Annotated[Operation, Field(strict=False), one_of(*Operation)]
ResourceTypeName = Annotated[ResourceType, Field(strict=False), one_of(*ResourceType)]


class GrantBody(RequestModel):
    """The content of a grant."""

    principal: StrictStr = Field(
        description="`User:name`, `Group:name`, or `User:*` for every caller",
        json_schema_extra={"pattern": formats.PRINCIPAL},
    )
    permission: Annotated[Permission, Field(strict=False), one_of(*Permission)] = Field(
        default=Permission.ALLOW, description="A deny takes precedence over every allow"
    )
    cluster: StrictStr | None = Field(default=None, description="null: all clusters")
    operation: OperationName | None = Field(default=None, description="This operation, and those that it includes")
    role: Annotated[Role, Field(strict=False), one_of(*Role)] | None = Field(
        default=None, description="Instead of an operation: a bundle of operations"
    )
    resource_type: ResourceTypeName | None = Field(
        default=None, description="null with a role alone: all resources of the role"
    )
    pattern_type: Annotated[PatternType, Field(strict=False), one_of(*PatternType)] | None = Field(
        default=None, description="null: literal"
    )
    name: StrictStr | None = Field(
        default=None,
        description="The name, or a prefix of names. null or `*` means every name, but not the default entity. For"
        " tokens and grants the name is a principal",
    )
    note: StrictStr | None = Field(default=None, max_length=LONGEST_NOTE)


class GrantContent(AnswerModel):
    """The content of a grant."""

    principal: str = Field(examples=["Group:payments"])
    permission: Literal["allow", "deny"]
    cluster: str | None = Field(description="null: all clusters")
    operation: str | None
    role: str | None
    resource_type: str | None = Field(description="null: all resources of the role")
    pattern_type: Literal["literal", "prefixed"] | None = Field(description="null: the resource has no names")
    name: str | None = Field(description="null: the resource has no names")


class GrantData(GrantContent):
    """A grant."""

    id: GrantId
    note: str | None
    created_at: Time
    created_by: str = Field(description="The principal that made it")


class GrantPage(Page[GrantData]):
    """A page of grants, oldest first. It may be short, even empty, and have a next page."""


routes = Routes(tag="grants")

_GrantId = Annotated[
    str, Path(alias="grantId", description="As the list has it", json_schema_extra={"pattern": formats.UUID})
]


@routes.get(
    "/v1/grants",
    read("List grants, oldest first", GrantPage, limit=LimitClass.BULK, problems=(503,)),
)
async def list_grants(
    call: ServiceCallDep,
    admin: AccessAdminDep,
    *,
    principal: Annotated[
        str | None, Query(description="Only to this user or group", json_schema_extra={"pattern": formats.PRINCIPAL})
    ] = None,
    cluster: Annotated[
        str | None,
        Query(
            description="Only grants for this cluster, without those for all clusters",
            json_schema_extra={"pattern": formats.CLUSTER},
        ),
    ] = None,
    page_size: PageSize = 100,
    page_token: PageToken = None,
) -> Response:
    """The grants that the caller may see: its own, and those on whose principal it has DESCRIBE on `grants`."""
    after = formats.parse_page_token(page_token)
    found, cursor = await admin.grants.page(principal, cluster, call.access, page_size=page_size, after=after)
    call.charge(LimitClass.BULK, len(found))
    items = [grant_view(stored) for stored in found]
    return page_response(call.request, items, cursor)


@routes.post(
    "/v1/grants",
    manage("Create a grant", {201: GrantData, 200: GrantData}, tagged=True),
)
async def create_grant(call: ServiceCallDep, admin: AccessAdminDep, body: GrantBody) -> Response:
    """201 for a new grant; 200 with the grant that has this content already, and under `validateOnly`.

    Needs ALTER on `grants` of the principal. A caller can't grant more than it has.
    """
    stored, is_new = await admin.grants.create(_wanted(body), call.caller, validate_only=call.validate_only)
    if call.validate_only:
        return json_response(call.request, grant_view(stored))
    await admin.take_effect()
    location = f"{call.request.scope.get('root_path', '')}{call.request.scope['path']}/{stored.grant.id}"
    return _shown(call, stored, 201 if is_new else 200, {"Location": location})


@routes.get(
    "/v1/grants/{grantId}",
    read("One grant", GrantData, limit=LimitClass.BULK, tagged=True, problems=(404, 503)),
)
async def get_grant(
    call: ServiceCallDep, admin: AccessAdminDep, grant_id: _GrantId, if_none_match: IfNoneMatch = None
) -> Response:
    """A grant with its ETag."""
    stored = await admin.grants.find(formats.parse_uuid(grant_id, "grantId"), call.access)
    etag = etag_of(stored)
    if not_modified(if_none_match, etag):
        return unchanged(call.request, etag)
    return _shown(call, stored)


@routes.put(
    "/v1/grants/{grantId}",
    manage("Replace a grant", GrantData, tagged=True, problems=(404, 409)),
)
async def put_grant(
    call: ServiceCallDep,
    admin: AccessAdminDep,
    grant_id: _GrantId,
    conditions: ConditionalHeadersDep,
    body: GrantBody,
) -> Response:
    """Replaces the content of a grant. Needs ALTER on `grants` of both principals.

    A caller can't grant more than it has. Removing a deny restores the denied rights, and needs the same rights as
    granting them.
    """
    stored = await admin.grants.replace(
        formats.parse_uuid(grant_id, "grantId"),
        _wanted(body),
        conditions.precondition(),
        call.caller,
        validate_only=call.validate_only,
    )
    if call.validate_only:
        return json_response(call.request, grant_view(stored))
    await admin.take_effect()
    return _shown(call, stored)


@routes.delete(
    "/v1/grants/{grantId}",
    manage("Remove a grant", GrantData, problems=(404, 409)),
)
async def delete_grant(
    call: ServiceCallDep, admin: AccessAdminDep, grant_id: _GrantId, conditions: ConditionalHeadersDep
) -> Response:
    """The grant as it was last. Needs ALTER on `grants` of the principal; for a deny also all that was denied."""
    stored = await admin.grants.remove(
        formats.parse_uuid(grant_id, "grantId"),
        conditions.precondition(),
        call.caller,
        validate_only=call.validate_only,
    )
    await admin.take_effect()
    return json_response(call.request, grant_view(stored))


def _shown(
    call: ServiceCall, stored: StoredGrant, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return json_response(
        call.request, grant_view(stored), status=status, headers={"ETag": etag_of(stored), **(headers or {})}
    )


def _wanted(body: GrantBody) -> NewGrant:
    return NewGrant(
        body.principal,
        body.permission,
        body.cluster,
        body.operation,
        body.role,
        body.resource_type,
        PatternType.LITERAL if body.pattern_type is None else body.pattern_type,
        ANY if body.name is None else body.name,
        body.note,
    )
