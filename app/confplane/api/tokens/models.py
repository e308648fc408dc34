"""The forms of API tokens."""

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictInt, StrictStr

from confplane.api import patterns
from confplane.api.models import Absent, AnswerModel, Count, Page, RequestModel, Time, one_of
from confplane.domain.access.operations import Operation
from confplane.services.access_admin.rules import LONGEST_NOTE
from confplane.services.access_admin.tokens import LONGEST_OVERLAP_S

MAX_GROUPS = 100
"""Groups of one token."""
MAX_LIMITS = 1_000
"""Clusters or operations in the limits of one token."""
TokenId = Annotated[
    str, Field(pattern=patterns.UUID, description="UUIDv7", examples=["019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10"])
]
OperationName = Annotated[Operation, Field(strict=False), one_of(*Operation)]
_PRINCIPAL: Any = {"pattern": patterns.PRINCIPAL}
_TIME: Any = {"format": "date-time"}


class NarrowingBody(RequestModel):
    """The limits of a token within its principal's rights."""

    read_only: StrictBool = Field(default=False, description="Only reads")
    clusters: Annotated[list[StrictStr], Field(min_length=1, max_length=MAX_LIMITS)] | None = Field(
        default=None, description="Only these clusters; null: no limit"
    )
    operations: Annotated[list[OperationName], Field(min_length=1, max_length=MAX_LIMITS)] | None = Field(
        default=None, description="Only these operations, and those that they include; null: no limit"
    )


class NewTokenBody(RequestModel):
    """A new token."""

    principal: StrictStr = Field(
        description="The user that the token's requests are of, in Kafka's form", json_schema_extra=_PRINCIPAL
    )
    groups: Annotated[list[StrictStr], Field(max_length=MAX_GROUPS)] = Field(
        default=[], description="The groups whose grants count too, each as `Group:name`"
    )
    owner: StrictStr | None = Field(
        default=None,
        max_length=LONGEST_NOTE,
        description="The person or team responsible for the token. Tokens of one owner count as one person where two"
        " must agree. Only callers who may create tokens for every principal can set it; otherwise it is"
        " the creator",
    )
    note: StrictStr | None = Field(default=None, max_length=LONGEST_NOTE)
    expires_at: StrictStr | None = Field(
        default=None,
        description="RFC 3339, at the latest the end of the credential that creates the token; null: after the setting"
        " access.tokens.default_days, or with that credential",
        json_schema_extra=_TIME,
    )
    narrowing: NarrowingBody | None = Field(
        default=None, description="null: the limits of the credential that creates the token; they always apply"
    )


class RotationBody(RequestModel):
    """The terms of a rotation."""

    overlap_seconds: StrictInt = Field(
        ge=0, le=LONGEST_OVERLAP_S, description="How long the old token stays valid, if its own end is not earlier"
    )
    expires_at: StrictStr | None = Field(
        default=None,
        description="Of the new token, RFC 3339; null: after the time that the old one was made for",
        json_schema_extra=_TIME,
    )


class NarrowingData(AnswerModel):
    """The limits of a token within its principal's rights."""

    read_only: bool
    clusters: list[str] | None = Field(description="null: no limit")
    operations: list[str] | None = Field(description="null: no limit")


class TokenData(AnswerModel):
    """An API token without its secret."""

    id: TokenId
    principal: str = Field(examples=["User:payments-portal"])
    groups: list[str]
    owner: str | None
    note: str | None
    narrowing: NarrowingData | None
    status: Literal["active", "expired", "revoked"]
    created_at: Time
    created_by: str = Field(description="The principal that made it")
    expires_at: Time
    revoked_at: Time | None
    last_used_at: Time | None = Field(description="At most a minute before the truth")
    replaces: TokenId | None = Field(description="The token whose rotation made this one")
    created_with: TokenId | None = Field(
        description="The token with which this one was created; null: another credential, or an earlier release"
    )


class RevokedTokenData(TokenData):
    """A revoked token, and the number of tokens that were created with it, directly or through others."""

    created_active: Count = Field(description="Those that are still active; withCreated=true revokes them too")
    created_revoked: Count = Field(description="Those that this request revoked")


class MadeToken(TokenData):
    """A new token, with its secret."""

    token: str | Absent = Field(
        default=None, description="The secret. Shown this once; absent where nothing was written (validateOnly)"
    )


class TokenPage(Page[TokenData]):
    """A page of tokens, oldest first. It may be short, even empty, and have a next page."""
