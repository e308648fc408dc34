"""Tokens and grants of the whole service, and queries about access and its changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.client.core.calls import call, segment
from confplane.client.core.operations import Family, S, listing, operation, tagged
from confplane.client.core.pages import Paged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from confplane.client.core.calls import ApiCall, PageOptions, UnkeyedConditionalWriteOptions, UnkeyedWriteOptions
    from confplane.client.types import (
        AccessChangeData,
        AccessChangePage,
        AccessReport,
        CheckBody,
        ChecksResult,
        GrantBody,
        GrantData,
        GrantPage,
        MadeToken,
        NewTokenBody,
        RevokedTokenData,
        TokenData,
        TokenPage,
    )

_TOKENS = "/v1/tokens"
_GRANTS = "/v1/grants"


class Tokens(Family[S]):
    """API tokens. A new or rotated token is returned only in the response to that request."""

    @listing
    def list(self, *, principal: str | None = None, **page: Unpack[PageOptions]) -> Paged[TokenPage, TokenData]:
        """List tokens, those of one principal or all."""
        return Paged(call("GET", _TOKENS, page, params={"principal": principal}))

    @operation
    def create(self, token: NewTokenBody, **terms: Unpack[UnkeyedWriteOptions]) -> ApiCall[MadeToken]:
        """Make a token. Not retried after a lost answer, because nobody would know the first token."""
        return call("POST", _TOKENS, terms, json=token)

    @operation
    def get(self, token_id: str) -> ApiCall[TokenData]:
        """Read a token without its secret."""
        return call("GET", f"{_TOKENS}/{segment(token_id)}")

    @operation
    def revoke(
        self, token_id: str, *, with_created: bool = False, **terms: Unpack[UnkeyedWriteOptions]
    ) -> ApiCall[RevokedTokenData]:
        """Revoke a token.

        Args:
            token_id: The token's id.
            with_created: Also revoke the tokens that were created with it, directly or through others.
            **terms: The terms of the write.
        """
        params = {"withCreated": "true" if with_created else None}
        return call("DELETE", f"{_TOKENS}/{segment(token_id)}", terms, params=params, repeatable=True)

    @operation
    def rotate(
        self, token_id: str, *, overlap_s: int, expires_at: str | None = None, **terms: Unpack[UnkeyedWriteOptions]
    ) -> ApiCall[MadeToken]:
        """Replace a token by a new one. Not retried after a lost answer.

        Args:
            token_id: The id of the old token.
            overlap_s: Seconds for which the old token stays valid.
            expires_at: The expiry of the new token, RFC 3339; None for the same lifetime as that of the old token.
            **terms: The terms of the write.
        """
        body = {"overlapSeconds": overlap_s, "expiresAt": expires_at}
        return call("POST", f"{_TOKENS}/{segment(token_id)}:rotate", terms, json=body)


class Grants(Family[S]):
    """Grants of principals and groups."""

    @listing
    def list(
        self, *, principal: str | None = None, cluster: str | None = None, **page: Unpack[PageOptions]
    ) -> Paged[GrantPage, GrantData]:
        """List grants: to one principal, of one cluster, or all."""
        filters = {"principal": principal, "cluster": cluster}
        return Paged(call("GET", _GRANTS, page, params=filters))

    @operation
    def create(self, grant: GrantBody, **terms: Unpack[UnkeyedWriteOptions]) -> ApiCall[GrantData]:
        """Make a grant; an existing equal grant is not an error."""
        return call("POST", _GRANTS, terms, json=grant, repeatable=True)

    @tagged
    def get(self, grant_id: str) -> ApiCall[GrantData]:
        """Read a grant."""
        return call("GET", f"{_GRANTS}/{segment(grant_id)}")

    @operation
    def put(
        self, grant_id: str, grant: GrantBody, **terms: Unpack[UnkeyedConditionalWriteOptions]
    ) -> ApiCall[GrantData]:
        """Replace a grant."""
        return call("PUT", f"{_GRANTS}/{segment(grant_id)}", terms, json=grant)

    @operation
    def delete(self, grant_id: str, **terms: Unpack[UnkeyedConditionalWriteOptions]) -> ApiCall[GrantData]:
        """Delete a grant."""
        return call("DELETE", f"{_GRANTS}/{segment(grant_id)}", terms)


class AccessQueries(Family[S]):
    """Queries: who may do what in the cluster, and who changed it."""

    @operation
    def get(
        self,
        *,
        principal: str | None = None,
        group: str | None = None,
        resource: str | None = None,
        operation: str | None = None,
    ) -> ApiCall[AccessReport]:
        """Read what a user or a group may do, or who may do an operation.

        Args:
            principal: The user.
            group: The group, alone or together with a user who is a member.
            resource: ``type:name``, such as ``topic:orders``; a type alone is the default entity.
            operation: The operation on the resource.
        """
        params = {"principal": principal, "group": group, "resource": resource, "operation": operation}
        return call("GET", f"{self._base}/access", params=params)

    @operation
    def check(self, checks: Sequence[CheckBody]) -> ApiCall[ChecksResult]:
        """Ask whether the caller may do operations."""
        return call("POST", f"{self._base}/access:check", json={"checks": list(checks)}, reads=True)

    @listing
    def changes(
        self,
        *,
        kind: str | None = None,
        principal: str | None = None,
        subject: str | None = None,
        since: str | None = None,
        until: str | None = None,
        **page: Unpack[PageOptions],
    ) -> Paged[AccessChangePage, AccessChangeData]:
        """List changes of tokens and grants, and refusals, newest first.

        Args:
            kind: Of this kind, such as ``token-created`` or ``denied``.
            principal: By this principal.
            subject: Of ``tokens/<id>`` or ``grants/<id>``.
            since: At this time or later, RFC 3339.
            until: Before this time, RFC 3339.
            **page: The page.
        """
        filters = {"kind": kind, "principal": principal, "subject": subject, "since": since, "until": until}
        return Paged(call("GET", "/v1/audit", page, params=filters))
