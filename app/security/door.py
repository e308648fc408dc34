"""The door: the one way from a request's credentials to its access."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.domain.errors import UnauthenticatedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.domain.access.identities import Identity
    from app.security.principals import Authenticator, Credentials
    from app.services.access import Access, AccessControl


class Door:
    """Admits requests. Nothing here waits: all that a decision needs is in memory.

    Args:
        authenticators: The kinds of bearer tokens, in the order in which they are tried.
        control: Makes the access of an identity.
    """

    def __init__(self, authenticators: Sequence[Authenticator], control: AccessControl) -> None:
        self._authenticators = authenticators
        self._control = control

    def admit(self, credentials: Credentials, cluster: str | None, source: str, request_id: str) -> Access:
        """Return the access of a request.

        Args:
            credentials: The request's credentials.
            cluster: The cluster that the request names.
            source: The address of the caller.
            request_id: The id of the request.

        Raises:
            UnauthenticatedError: There are no credentials, or they are not valid. The text never repeats them.
            UnavailableError: It is not known now whether they are valid.
            ForbiddenError: The caller may not act for the user that it names.
        """
        del cluster
        return self._control.access(self._identify(credentials), source, request_id)

    def _identify(self, credentials: Credentials) -> Identity:
        if credentials.authorization is None:
            raise UnauthenticatedError("No bearer token was given; send the header Authorization: Bearer <token>")
        scheme, _, token = credentials.authorization.partition(b" ")
        if scheme.lower() == b"bearer":
            for authenticator in self._authenticators:
                identity = authenticator.authenticate(token.strip())
                if identity is not None:
                    return identity
        raise UnauthenticatedError("The bearer token is not valid")
