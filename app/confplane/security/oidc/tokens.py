"""The authenticator of OIDC access tokens."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from confplane.domain.errors import UnauthenticatedError
from confplane.security.oidc import compact
from confplane.security.oidc.claims import identity_of
from confplane.security.oidc.keys import is_signed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confplane.domain.access.identities import Identity
    from confplane.security.oidc.keys import KeySet
    from confplane.security.oidc.provider import Provider


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
