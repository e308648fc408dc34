"""API tokens. Their secrets are in the answers to create and rotate alone, and nowhere else, ever."""

from typing import Annotated

from fastapi import Path, Query
from starlette.responses import Response

from confplane.api import parsed, patterns
from confplane.api.dependencies import PageSize, PageToken, ServiceCall, ServiceCallDep
from confplane.api.responses import json_response, page_response
from confplane.api.routing.operations import manage, read
from confplane.api.routing.routes import Routes
from confplane.api.services import AccessAdminDep
from confplane.api.tokens import models
from confplane.domain.access.identities import CredentialNarrowing
from confplane.services.access_admin.services import AccessServices
from confplane.services.access_admin.tokens import CreatedToken, NewToken
from confplane.services.access_admin.views import token_view
from confplane.services.limits import LimitClass

routes = Routes(tag="tokens")

_TokenId = Annotated[
    str, Path(alias="tokenId", description="As the list has it", json_schema_extra={"pattern": patterns.UUID})
]


@routes.get(
    "/v1/tokens",
    read("List tokens, oldest first", models.TokenPage, limit=LimitClass.BULK, problems=(403, 503)),
)
async def list_tokens(
    call: ServiceCallDep,
    admin: AccessAdminDep,
    *,
    principal: Annotated[
        str | None, Query(description="Only tokens of this user", json_schema_extra={"pattern": patterns.PRINCIPAL})
    ] = None,
    page_size: PageSize = 100,
    page_token: PageToken = None,
) -> Response:
    """The tokens that the caller may see: its own, and those on whose principal it has DESCRIBE on `tokens`."""
    tokens = admin.tokens
    after = parsed.page_token(page_token)
    found, cursor = await tokens.page(principal, call.access, page_size=page_size, after=after)
    call.charge(LimitClass.BULK, len(found))
    items = [token_view(token, tokens.now) for token in found]
    return page_response(call.request, items, cursor)


@routes.post(
    "/v1/tokens",
    manage("Create a token", {201: models.MadeToken, 200: models.MadeToken}, problems=(403, 503)),
)
async def create_token(call: ServiceCallDep, admin: AccessAdminDep, body: models.NewTokenBody) -> Response:
    """The response has the secret, which can't be read again. 200 without a secret under `validateOnly`.

    Needs ALTER on `tokens` of the principal, and of each group that the caller is not in. A caller can't create a token
    with more rights than it has, with fewer limits than its own credential, or with a later expiry.
    """
    wanted = NewToken(
        body.principal,
        tuple(body.groups),
        body.owner,
        body.note,
        parsed.moment(body.expires_at, "/expiresAt"),
        _narrowing(body.narrowing),
    )
    tokens = admin.tokens
    return await _made(call, admin, await tokens.create(wanted, call.caller, validate_only=call.validate_only))


@routes.get(
    "/v1/tokens/{tokenId}",
    read("One token", models.TokenData, limit=LimitClass.BULK, problems=(403, 404, 503)),
)
async def get_token(call: ServiceCallDep, admin: AccessAdminDep, token_id: _TokenId) -> Response:
    """A token without its secret, also an expired or revoked one."""
    tokens = admin.tokens
    found = await tokens.find(parsed.uuid(token_id, "tokenId"), call.access)
    return json_response(call.request, token_view(found, tokens.now))


@routes.delete(
    "/v1/tokens/{tokenId}",
    manage("Revoke a token", models.RevokedTokenData, problems=(403, 404, 503), id="revokeToken"),
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
        parsed.uuid(token_id, "tokenId"), call.caller, with_created=with_created, validate_only=call.validate_only
    )
    await admin.take_effect()
    shown = token_view(found.token, admin.tokens.now)
    return json_response(call.request, {**shown, "createdActive": found.active, "createdRevoked": found.revoked})


@routes.post(
    "/v1/tokens/{tokenId}:rotate",
    manage("Replace a token by a new one", {201: models.MadeToken, 200: models.MadeToken}, problems=(403, 404, 503)),
)
async def rotate_token(
    call: ServiceCallDep, admin: AccessAdminDep, token_id: _TokenId, body: models.RotationBody
) -> Response:
    """A new token of the same principal, groups, owner, note and limits; the old one stays valid for the overlap.

    The response has the secret, which can't be read again. 200 without a secret under `validateOnly`.
    """
    made = await admin.tokens.rotate(
        parsed.uuid(token_id, "tokenId"),
        body.overlap_seconds,
        call.caller,
        expires_at=parsed.moment(body.expires_at, "/expiresAt"),
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


def _narrowing(given: models.NarrowingBody | None) -> CredentialNarrowing | None:
    if given is None:
        return None
    return CredentialNarrowing(
        given.read_only,
        None if given.clusters is None else frozenset(given.clusters),
        None if given.operations is None else frozenset(given.operations),
    )
