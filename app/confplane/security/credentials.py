"""The credentials that a request presents, and the port that turns bearer tokens into identities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from confplane.domain.access.identities import Identity

CERTIFICATE: Final = "confplane.certificate"
"""Scope key of the subject of a verified client certificate. Absent if the client has no certificate."""


class Credentials(NamedTuple):
    """The credentials of one request."""

    authorization: bytes | None = None
    """The header ``Authorization``."""
    certificate: str | None = None
    """The subject of a verified client certificate, in the form of RFC 2253. Empty if it can't be read."""
    behalf_of: bytes | None = None
    """The header ``Confplane-On-Behalf-Of``."""


class TokenAuthenticator(Protocol):
    """Turns one kind of bearer token into an identity. Implementations never wait."""

    def authenticate(self, given: bytes) -> Identity | None:
        """Return the identity of a bearer token, or None if the token is of another kind.

        Raises:
            UnauthenticatedError: The token is of this kind and not valid. The message never repeats it.
            UnavailableError: The token's validity cannot be checked at the moment.
        """

    def groups_of(self, principal: str) -> frozenset[str]:
        """Return the groups of a user according to its valid tokens, as far as this process knows them."""
