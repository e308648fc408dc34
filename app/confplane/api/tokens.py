"""API tokens. Their secrets are in the answers to create and rotate alone, and nowhere else, ever."""

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import Field, StrictBool, StrictInt, StrictStr
from starlette.responses import Response

from confplane.api import formats
from confplane.api.dependencies import PageSize, PageToken, ServiceCall, ServiceCallDep
from confplane.api.models import Absent, AnswerModel, Count, Page, RequestModel, Time, one_of
from confplane.api.responses import json_response, page_response
from confplane.api.routing.operations import manage, read
from confplane.api.routing.routes import Routes
from confplane.api.services import AccessAdminDep
from confplane.domain.access.identities import CredentialNarrowing
from confplane.domain.access.operations import Operation
from confplane.services.access_admin.rules import LONGEST_NOTE
from confplane.services.access_admin.services import AccessServices
from confplane.services.access_admin.tokens import LONGEST_OVERLAP_S, CreatedToken, NewToken
from confplane.services.access_admin.views import token_view
from confplane.services.limits import LimitClass

MAX_GROUPS = 100
"""Groups of one token."""
MAX_LIMITS = 1_000
"""Clusters or operations in the limits of one token."""
TokenId = Annotated[
    str, Field(pattern=formats.UUID, description="UUIDv7", examples=["019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10"])
]
OperationName = Annotated[Operation, Field(strict=False), one_of(*Operation)]
_PRINCIPAL: Any = {"pattern": formats.PRINCIPAL}
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


routes = Routes(tag="tokens")

_TokenId = Annotated[
    str, Path(alias="tokenId", description="As the list has it", json_schema_extra={"pattern": formats.UUID})
]


@routes.get(
    "/v1/tokens",
    read("List tokens, oldest first", TokenPage, limit=LimitClass.BULK, problems=(503,)),
)
async def list_tokens(
    call: ServiceCallDep,
    admin: AccessAdminDep,
    *,
    principal: Annotated[
        str | None, Query(description="Only tokens of this user", json_schema_extra={"pattern": formats.PRINCIPAL})
    ] = None,
    page_size: PageSize = 100,
    page_token: PageToken = None,
) -> Response:
    """The tokens that the caller may see: its own, and those on whose principal it has DESCRIBE on `tokens`."""
    tokens = admin.tokens
    after = formats.parse_page_token(page_token)
    found, cursor = await tokens.page(principal, call.access, page_size=page_size, after=after)
    call.charge(LimitClass.BULK, len(found))
    items = [token_view(token, tokens.now) for token in found]
    return page_response(call.request, items, cursor)


@routes.post(
    "/v1/tokens",
    manage("Create a token", {201: MadeToken, 200: MadeToken}),
)
async def create_token(call: ServiceCallDep, admin: AccessAdminDep, body: NewTokenBody) -> Response:
    """The response has the secret, which can't be read again. 200 without a secret under `validateOnly`.

    Needs ALTER on `tokens` of the principal, and of each group that the caller is not in. A caller can't create a token
    with more rights than it has, with fewer limits than its own credential, or with a later expiry.
    """
    wanted = NewToken(
        body.principal,
        tuple(body.groups),
        body.owner,
        body.note,
        formats.parse_moment(body.expires_at, "/expiresAt"),
        _narrowing(body.narrowing),
    )
    tokens = admin.tokens
    return await _made(call, admin, await tokens.create(wanted, call.caller, validate_only=call.validate_only))


@routes.get(
    "/v1/tokens/{tokenId}",
    read("One token", TokenData, limit=LimitClass.BULK, problems=(404, 503)),
)
async def get_token(call: ServiceCallDep, admin: AccessAdminDep, token_id: _TokenId) -> Response:
    """A token without its secret, also an expired or revoked one."""
    tokens = admin.tokens
    found = await tokens.find(formats.parse_uuid(token_id, "tokenId"), call.access)
    return json_response(call.request, token_view(found, tokens.now))


@routes.delete(
    "/v1/tokens/{tokenId}",
    manage("Revoke a token", RevokedTokenData, problems=(404,), id="revokeToken"),
)
async def revoke_token(
    call: ServiceCallDep,
    admin: AccessAdminDep,
    token_id: _TokenId,
    *,
    with_created: Annotated[
        bool,
        Query(
            alias="withCreated",
            description="Also revoke the tokens that were created with it, directly or through others. Needs ALTER on"
            " `tokens` of all of their principals",
        ),
    ] = False,
) -> Response:
    """Every process rejects the token within two seconds, permanently. Revoking it again changes nothing.

    The response counts the active tokens that were created with it, which may have leaked with the token.
    """
    found = await admin.tokens.revoke(
        formats.parse_uuid(token_id, "tokenId"),
        call.caller,
        with_created=with_created,
        validate_only=call.validate_only,
    )
    await admin.take_effect()
    shown = token_view(found.token, admin.tokens.now)
    return json_response(call.request, {**shown, "createdActive": found.active, "createdRevoked": found.revoked})


@routes.post(
    "/v1/tokens/{tokenId}:rotate",
    manage("Replace a token by a new one", {201: MadeToken, 200: MadeToken}, problems=(404,)),
)
async def rotate_token(call: ServiceCallDep, admin: AccessAdminDep, token_id: _TokenId, body: RotationBody) -> Response:
    """A new token of the same principal, groups, owner, note and limits; the old one stays valid for the overlap.

    The response has the secret, which can't be read again. 200 without a secret under `validateOnly`.
    """
    made = await admin.tokens.rotate(
        formats.parse_uuid(token_id, "tokenId"),
        body.overlap_seconds,
        call.caller,
        expires_at=formats.parse_moment(body.expires_at, "/expiresAt"),
        validate_only=call.validate_only,
    )
    return await _made(call, admin, made)


async def _made(call: ServiceCall, admin: AccessServices, made: CreatedToken) -> Response:
    shown = token_view(made.token, admin.tokens.now)
    if made.text is None:
        return json_response(call.request, shown)
    await admin.take_effect()
    location = f"{call.request.scope.get('root_path', '')}{call.request.scope['path']}/{made.token.id}"
    headers = {"Location": location, "Cache-Control": "no-store"}
    return json_response(call.request, {**shown, "token": made.text}, status=201, headers=headers)


def _narrowing(given: NarrowingBody | None) -> CredentialNarrowing | None:
    if given is None:
        return None
    return CredentialNarrowing(
        given.read_only,
        None if given.clusters is None else frozenset(given.clusters),
        None if given.operations is None else frozenset(given.operations),
    )
