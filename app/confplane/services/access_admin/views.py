"""Views of tokens and grants: their form in the API and in the history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confplane.domain.access.identities import narrowing_view
from confplane.domain.access.operations import ResourceType
from confplane.domain.texts import rfc3339

if TYPE_CHECKING:
    from datetime import datetime

    from confplane.domain.access.grants import Grant
    from confplane.services.ports.access import StoredGrant, Token


def token_view(token: Token, now: datetime) -> dict[str, Any]:
    """Return a token without its secret; ``now`` decides about its status."""
    return {
        "id": str(token.id),
        "principal": token.principal,
        "groups": sorted(token.groups),
        "owner": token.owner,
        "note": token.note,
        "narrowing": narrowing_view(token.narrowing),
        "status": _status(token, now),
        "createdAt": rfc3339(token.created_at),
        "createdBy": token.created_by,
        "expiresAt": rfc3339(token.expires_at),
        "revokedAt": None if token.revoked_at is None else rfc3339(token.revoked_at),
        "lastUsedAt": None if token.last_used_at is None else rfc3339(token.last_used_at),
        "replaces": None if token.replaces is None else str(token.replaces),
        "createdWith": None if token.created_with is None else str(token.created_with),
    }


def grant_content_view(grant: Grant) -> dict[str, Any]:
    """Return the content of a grant, as a request gives it."""
    named = grant.resource is not None and grant.resource is not ResourceType.CLUSTER
    return {
        "principal": grant.principal,
        "permission": grant.permission.value,
        "cluster": grant.cluster,
        "operation": None if grant.operation is None else grant.operation.value,
        "role": None if grant.role is None else grant.role.value,
        "resourceType": None if grant.resource is None else grant.resource.value,
        "patternType": grant.pattern.value if named else None,
        "name": grant.name if named else None,
    }


def grant_view(stored: StoredGrant) -> dict[str, Any]:
    """Return a grant."""
    return {
        "id": str(stored.grant.id),
        **grant_content_view(stored.grant),
        "note": stored.note,
        "createdAt": rfc3339(stored.created_at),
        "createdBy": stored.created_by,
    }


def etag_of(stored: StoredGrant) -> str:
    """Return the ETag of a grant, quotes included: another one after each replacement."""
    return f'"{stored.revision}"'


def _status(token: Token, now: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at <= now else "active"
