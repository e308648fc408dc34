"""The public keys of an issuer: the usable ones of a JWKS document (RFC 7517)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import jwt

from confplane.security.oidc.compact import MAX_KID, strict_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_KEYS: Final = 100
_RSA_BITS: Final = range(2048, 8193)
"""Sizes of RSA keys: below, a signature can be forged; above, its check takes too long."""
_KINDS: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""The type and the curve of the keys of an algorithm."""
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
"""Members of private and of shared keys. A published private key is everybody's."""
_JWS: Final = jwt.PyJWS()


@dataclass(frozen=True, slots=True)
class Key:
    """A public key, and the algorithms that it may be used with."""

    kid: str | None
    algorithms: frozenset[str]
    public: Any


class KeySet:
    """The usable keys of an issuer. Two sets with the same keys are equal.

    Args:
        content: A JWKS document.
        algorithms: Algorithms that the issuer's tokens may be signed with.

    Raises:
        ValueError: The document is not a JWKS document, has too many keys, or has no usable key.
    """

    def __init__(self, content: bytes, algorithms: Sequence[str]) -> None:
        given = strict_object(content).get("keys")
        if not isinstance(given, list):
            raise ValueError("has no list of keys")  # noqa: TRY004 - of the content, not of an argument
        if len(given) > MAX_KEYS:
            raise ValueError(f"has more than {MAX_KEYS} keys")
        usable = [jwk for jwk in given if isinstance(jwk, dict)]
        self._keys = [key for jwk in usable if (key := _key(jwk, algorithms)) is not None]
        if not self._keys:
            raise ValueError(f"has no public key for signatures with {', '.join(algorithms)}")
        self._identity = frozenset(json.dumps(jwk, sort_keys=True) for jwk in usable)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeySet) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def find(self, kid: str | None, algorithm: str) -> Key | None:
        """Return the key of a token. Without a ``kid``, exactly one key must fit."""
        fitting = [key for key in self._keys if algorithm in key.algorithms and kid in (None, key.kid)]
        return fitting[0] if len(fitting) == 1 else None

    def knows(self, kid: str | None) -> bool:
        """Return True where a key has this ``kid``."""
        return kid is None or any(key.kid == kid for key in self._keys)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)


def is_signed(token: bytes, key: Key, algorithm: str) -> bool:
    """Return True where the key's owner has signed the token."""
    try:
        _JWS.decode_complete(token, key.public, algorithms=[algorithm])
    except jwt.PyJWTError:
        return False
    return True


def _key(jwk: dict[str, Any], allowed: Sequence[str]) -> Key | None:
    """Return a key for signatures; None for any other."""
    kid, operations = jwk.get("kid"), jwk.get("key_ops", ["verify"])
    if not (kid is None or (isinstance(kid, str) and len(kid) <= MAX_KID)) or not _PRIVATE.isdisjoint(jwk):
        return None
    if jwk.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    kind, curve, only = jwk.get("kty"), jwk.get("crv"), jwk.get("alg")
    fitting = frozenset(
        name
        for name in allowed
        if _KINDS[name] == (kind, None if kind == "RSA" else curve) and only in (None, name, _other_name(name))
    )
    public = _public(jwk, min(fitting)) if fitting else None
    return None if public is None else Key(kid, fitting, public)


def _public(jwk: dict[str, Any], algorithm: str) -> Any:
    """Return the key itself, or None if it can't be read or has an unusable size."""
    try:
        public = jwt.PyJWK(jwk, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return None if jwk["kty"] == "RSA" and public.key_size not in _RSA_BITS else public


def _other_name(algorithm: str) -> str:
    """Return the newer name of an algorithm, where it has one (RFC 9864)."""
    return "Ed25519" if algorithm == "EdDSA" else algorithm
