"""The forms of answers to who may do what."""

from typing import Annotated, Any, Literal

from pydantic import Field, StrictStr

from confplane.api import patterns
from confplane.api.grants import GrantData, OperationName, ResourceTypeName
from confplane.api.models import AnswerModel, Page, RequestModel, Time

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

    id: Annotated[str, Field(pattern=patterns.UUID, description="UUIDv7")]
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
