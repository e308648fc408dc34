"""The forms of grants."""

from typing import Annotated, Literal

from pydantic import Field, StrictStr

from confplane.api import patterns
from confplane.api.models import AnswerModel, Page, RequestModel, Time, one_of
from confplane.domain.access.operations import Operation, PatternType, Permission, ResourceType, Role
from confplane.services.access_admin.rules import LONGEST_NOTE

GrantId = Annotated[
    str, Field(pattern=patterns.UUID, description="UUIDv7", examples=["019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10"])
]
OperationName = Annotated[Operation, Field(strict=False), one_of(*Operation)]
ResourceTypeName = Annotated[ResourceType, Field(strict=False), one_of(*ResourceType)]


class GrantBody(RequestModel):
    """The content of a grant."""

    principal: StrictStr = Field(
        description="`User:name`, `Group:name`, or `User:*` for every caller",
        json_schema_extra={"pattern": patterns.PRINCIPAL},
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
