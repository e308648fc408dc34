"""The credentials that a request presents, and the port that turns bearer tokens into identities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from confplane.domain.access.identities import Identity

CERTIFICATE: Final = "confplane.certificate"
"""Key of a request's scope with the subject of its verified client certificate; absent where there is none."""


class Credentials(NamedTuple):
    """The credentials of one request."""

    authorization: bytes | None = None
    """The header ``Authorization``."""
    certificate: str | None = None
    """The subject of a verified client certificate, as RFC 2253 writes it; empty where it can't be read."""
    behalf_of: bytes | None = None
    """The header ``Confplane-On-Behalf-Of``."""


class TokenAuthenticator(Protocol):
    """Turns one kind of bearer token into an identity. Each kind is an implementation; none of them waits."""

    def authenticate(self, given: bytes) -> Identity | None:
        """Return the identity of a bearer token; None where the token is of another kind.

        Raises:
            UnauthenticatedError: The token is of this kind, and not valid. The text never repeats it.
            UnavailableError: It is not known now whether the token is valid.
        """
