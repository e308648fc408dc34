"""Signed tokens in their compact form (RFC 7515, 7519), read before anything in them is trusted."""

from __future__ import annotations

import binascii
import json
import re
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from typing import Any, Final

from confplane.domain.errors import UnauthenticatedError

MAX_BYTES: Final = 16 * 1024
"""The longest token in bytes."""
MAX_KID: Final = 256
_FORM: Final = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""Values of ``typ`` of access tokens (RFC 9068, section 2.1) and of plain tokens; others are for other uses."""


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
    """A token whose signature was not checked."""

    issuer: str
    algorithm: str
    kid: str | None
    claims: dict[str, Any]


def is_compact(given: bytes) -> bool:
    """Return True for three parts of base64url with dots between them: no other kind of token looks like this."""
    return given.count(b".") == 2 and _FORM.fullmatch(given) is not None  # noqa: PLR2004 - three parts have two dots


def read(token: bytes) -> UnverifiedToken:
    """Read a token.

    Of the header's names only ``alg``, ``kid``, ``typ`` and ``crit`` have an effect: ``jku``, ``x5u``, ``jwk`` and
    ``x5c`` would let a caller name the key of its own token.

    Raises:
        UnauthenticatedError: The token is not well formed, or has an extension that must be understood.
    """
    if len(token) > MAX_BYTES:
        raise UnauthenticatedError(f"The access token is longer than {MAX_BYTES} bytes")
    head, body, _ = token.split(b".")
    header, claims = _object(head, "header"), _object(body, "body")
    if "crit" in header or "b64" in header:
        raise UnauthenticatedError("The access token's header has an extension, and this service knows none")
    kind, algorithm, kid, issuer = header.get("typ", "JWT"), header.get("alg"), header.get("kid"), claims.get("iss")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise UnauthenticatedError("The token is of another type than an access token: its header's typ says so")
    if not isinstance(algorithm, str):
        raise UnauthenticatedError("The access token's header has no alg")
    if kid is not None and not (isinstance(kid, str) and len(kid) <= MAX_KID):
        raise UnauthenticatedError(f"The access token's kid is not a text of at most {MAX_KID} characters")
    if not isinstance(issuer, str):
        raise UnauthenticatedError("The access token has no issuer")
    return UnverifiedToken(issuer, algorithm, kid, claims)


def strict_object(content: bytes) -> dict[str, Any]:
    """Return a JSON object none of whose objects has a name twice.

    Raises:
        ValueError: The content is something else.
    """
    try:
        found = json.loads(content.decode(), object_pairs_hook=_members, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("is nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("is not a JSON object")  # noqa: TRY004 - of the content, not of an argument
    return found


def _object(part: bytes, name: str) -> dict[str, Any]:
    try:
        return strict_object(urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (ValueError, binascii.Error):
        raise UnauthenticatedError(f"The access token's {name} can't be read: it is not one JSON object") from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("has a name twice")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
