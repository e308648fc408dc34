"""OIDC access tokens: their verification, their claims, and the identity that they make."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confplane.domain.access.identities import ADMIN, EVERYBODY, GROUP, USER, Authentication, Identity
from confplane.domain.errors import UnauthenticatedError
from confplane.security.oidc import compact
from confplane.security.oidc.keys import is_signed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from confplane.identity_settings import OidcSettings
    from confplane.security.oidc.keys import KeySet
    from confplane.security.oidc.provider import Provider


MAX_NAME: Final = 255
"""The most characters of a name, prefix included."""
_RESERVED: Final = frozenset({ADMIN, EVERYBODY})
_ENTRA_GROUPS: Final = "groups"
_LATEST: Final = 253_402_300_800
"""Seconds from 1970 to the year 10000: no calendar has later ends."""


def identity_of(
    claims: Mapping[str, Any], settings: OidcSettings, other_prefixes: Collection[str], now: float
) -> Identity:
    """Return the identity of a token whose signature is valid.

    Args:
        claims: The token's claims.
        settings: The settings of the issuer.
        other_prefixes: Prefixes of all other issuers. This issuer cannot have principals with one of them.
        now: Seconds since 1970.

    Raises:
        UnauthenticatedError: A claim is absent or refused.
    """
    expires = _check_times(claims, settings, now)
    _check_audience(claims.get("aud"), settings)
    for name, allowed in settings.required_claims.items():
        if not _fulfils(claims.get(name), allowed if isinstance(allowed, tuple) else (allowed,)):
            raise UnauthenticatedError(f"The access token's claim {name} is absent, or not among the allowed values")
    principal = USER + _name(claims.get(settings.principal_claim), settings, settings.principal_claim)
    if principal in _RESERVED or principal.removeprefix(USER).startswith(tuple(other_prefixes)):
        raise UnauthenticatedError("The access token names a principal that no token of its issuer can have")
    return Identity(
        principal,
        Authentication.OIDC,
        groups=_groups(claims, settings),
        issuer=settings.issuer,
        is_kafka_user=settings.kafka_users,
        expires_at=datetime.fromtimestamp(expires, UTC),
    )


def _check_times(claims: Mapping[str, Any], settings: OidcSettings, now: float) -> float:
    """Check the times of a token and return its end."""
    expires, begins, issued = (_time(claims, name) for name in ("exp", "nbf", "iat"))
    skew = settings.clock_skew_s
    if expires is None:
        raise UnauthenticatedError("The access token has no exp: one without an end is not accepted")
    if now >= expires + skew:
        raise UnauthenticatedError("The access token has expired; get a new one")
    if max(begins or 0, issued or 0) > now + skew:
        raise UnauthenticatedError("The access token is not valid yet; compare its issuer's clock and this service's")
    if expires - (now + skew if issued is None else issued) > settings.max_lifetime_s:
        raise UnauthenticatedError(
            f"The access token lives longer than {settings.max_lifetime_s} seconds; have its issuer make shorter ones"
        )
    return expires


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST:
        raise UnauthenticatedError(f"The access token's {name} is not a time in seconds since 1970")
    return value


def _check_audience(given: object, settings: OidcSettings) -> None:
    named = given if isinstance(given, list) else [given]
    if not any(isinstance(name, str) and name in settings.audiences for name in named):
        raise UnauthenticatedError("The access token is for another audience than this service")


def _fulfils(given: object, allowed: tuple[object, ...]) -> bool:
    """Compare with types: ``true`` is neither 1 nor the text ``"true"``."""
    values = given if isinstance(given, list) else [given]
    return any(type(value) is type(wanted) and value == wanted for value in values for wanted in allowed)


def _groups(claims: Mapping[str, Any], settings: OidcSettings) -> frozenset[str]:
    """Return the groups. Where some would be lost nobody is let in: a deny may be on one of them."""
    name = settings.groups_claim
    if name is None:
        return frozenset()
    if _leaves_out(claims, name):
        raise UnauthenticatedError(
            f"The access token leaves {name} out, as it would be too many; have the issuer send those of this service"
        )
    if settings.groups_required and name not in claims:
        raise UnauthenticatedError(
            f"The access token has no claim {name}, which this service requires; have the issuer send it, or ask for a"
            " token with the scope that has it"
        )
    given = claims.get(name, [])
    listed = given if isinstance(given, list) else [given]
    return frozenset(GROUP + _name(group, settings, name) for group in listed)


def _leaves_out(claims: Mapping[str, Any], name: str) -> bool:
    """Return True if the issuer says that there are groups which are not in the token.

    It names a source of them (OpenID Connect Core, section 5.6.2), or only says that there are some, as Microsoft Entra
    does of its claim ``groups`` with ``hasgroups``.
    """
    if claims.get("hasgroups", False) is not False and (name == _ENTRA_GROUPS or name not in claims):
        return True
    elsewhere = claims.get("_claim_names", {})
    return not isinstance(elsewhere, dict) or name in elsewhere


def _name(given: object, settings: OidcSettings, claim: str) -> str:
    if not isinstance(given, str) or not given:
        raise UnauthenticatedError(f"The access token's claim {claim} is absent, or not a text")
    name = settings.prefix + given
    if len(name) > MAX_NAME or not name.isprintable() or name != name.strip():
        raise UnauthenticatedError(
            f"The access token's claim {claim} has a name that is not printable, has spaces around it, or is longer "
            f"than {MAX_NAME} characters with its prefix"
        )
    return name


class _ValidatedToken(NamedTuple):
    """The result of a validation. It holds while the issuer has the same keys, until the token's end."""

    identity: Identity
    until: float
    provider: Provider
    keys: KeySet


class OidcTokens:
    """Turns access tokens of several issuers into identities.

    A token that was valid is remembered by its digest until its end, so that the next request with it costs a hash.

    Args:
        providers: The issuers.
        now: Seconds since 1970.
        cache_size: Number of tokens whose validation is remembered.
    """

    def __init__(
        self, providers: Sequence[Provider], *, now: Callable[[], float] = time.time, cache_size: int = 4096
    ) -> None:
        self._cache_size = cache_size
        self._providers = {provider.settings.issuer: provider for provider in providers}
        self._prefixes = {
            issuer: tuple(
                other.settings.prefix for other in providers if other is not provider and other.settings.prefix
            )
            for issuer, provider in self._providers.items()
        }
        self._now = now
        self._valid: OrderedDict[bytes, _ValidatedToken] = OrderedDict()
        self._groups: OrderedDict[str, tuple[frozenset[str], float]] = OrderedDict()
        """The groups of each principal in its newest token with groups, and the end of that token."""

    def authenticate(self, given: bytes) -> Identity | None:
        """Return the identity of an access token, or None if the token has another form.

        Raises:
            UnauthenticatedError: The token is not valid.
            UnavailableError: The keys of its issuer are not known now.
        """
        digest = hashlib.sha256(given).digest()
        known = self._valid.get(digest)
        if known is not None:
            if known.provider.check() is known.keys and self._now() < known.until:
                self._valid.move_to_end(digest)
                return known.identity
            del self._valid[digest]
        if not compact.is_compact(given):
            return None
        valid = self._validate(given)
        self._valid[digest] = valid
        if valid.identity.groups:
            self._groups[valid.identity.principal] = valid.identity.groups, valid.until
        for cache in (self._valid, self._groups):
            if len(cache) > self._cache_size:
                cache.popitem(last=False)
        return valid.identity

    def groups_of(self, principal: str) -> frozenset[str]:
        """Return the groups of a user in the newest token that this process has validated, until that token's end."""
        groups, until = self._groups.get(principal, (frozenset(), 0.0))
        return groups if self._now() < until else frozenset()

    def _validate(self, given: bytes) -> _ValidatedToken:
        token = compact.read(given)
        provider = self._providers.get(token.issuer)
        if provider is None:
            raise UnauthenticatedError("The access token's issuer is not among those of this service")
        settings = provider.settings
        if token.algorithm not in settings.algorithms:
            raise UnauthenticatedError("The access token's algorithm is not allowed for its issuer")
        key = provider.find(token.kid, token.algorithm)
        if key is None or not is_signed(given, key, token.algorithm):
            raise UnauthenticatedError("The access token's signature is not one of its issuer")
        identity = identity_of(token.claims, settings, self._prefixes[token.issuer], self._now())
        assert identity.expires_at is not None  # noqa: S101 - for the type checker: an access token has an end
        until = identity.expires_at.timestamp() + settings.clock_skew_s
        return _ValidatedToken(identity, until, provider, provider.check())
