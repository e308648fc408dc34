"""The authenticator: turns the credentials of a request into its access. There is no other way to gain access."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Generic

from confplane.domain.access.identities import ADMIN, USER, Authentication, Identity
from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.access.ranges import spell
from confplane.domain.entities import DEFAULT_NODE
from confplane.domain.errors import InvalidRequestError, UnauthenticatedError
from confplane.services.ports.access import AccessT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.security.certificates import Certificates
    from confplane.security.credentials import Credentials, TokenAuthenticator
    from confplane.services.ports.access import AccessSource


BEHALF_OF: Final = "Confplane-On-Behalf-Of"
_NOBODY: Final = frozenset({"", "*", DEFAULT_NODE})
"""Names that stand for every user, or for the default user: no caller can act for them."""
_LONGEST: Final = 1_024
"""Characters of the longest name of a user."""


class Authenticator(Generic[AccessT]):
    """Authenticates requests. It never waits, because everything that it needs is in memory.

    Args:
        authenticators: One authenticator for each kind of bearer token, in the order in which they are tried.
        control: Returns the access of an identity.
        certificates: Returns the identities of client certificates. None if certificates are not accepted.
    """

    def __init__(
        self,
        authenticators: Sequence[TokenAuthenticator],
        control: AccessSource[AccessT],
        certificates: Certificates | None = None,
    ) -> None:
        self._authenticators = authenticators
        self._control = control
        self._certificates = certificates

    def authenticate(self, credentials: Credentials, cluster: str | None, source: str, request_id: str) -> AccessT:
        """Return the access of a request.

        Args:
            credentials: The request's credentials.
            cluster: The cluster that the request names.
            source: The address of the caller.
            request_id: The id of the request.

        Raises:
            UnauthenticatedError: The credentials are missing or not valid. The message never repeats them.
            UnavailableError: Their validity cannot be checked at the moment.
            InvalidRequestError: The header with the user to act for is not valid.
            ForbiddenError: The caller may not act for the user that it names.
        """
        identity = self._identify(credentials)
        access = self._control.access(identity, source, request_id)
        if credentials.behalf_of is None:
            return access
        user = _user(credentials.behalf_of)
        access.require(cluster, Operation.IMPERSONATE, spell(ResourceType.USER, user), pointer=BEHALF_OF)
        groups = frozenset(group for each in self._authenticators for group in each.groups_of(USER + user))
        behalf_of = Identity(USER + user, Authentication.BEHALF, denying_groups=groups)
        return self._control.access(replace(identity, behalf_of=behalf_of), source, request_id)

    def _identify(self, credentials: Credentials) -> Identity:
        """Return the identity of the bearer token, or of the certificate if there is no token."""
        if credentials.authorization is None:
            if self._certificates is not None and credentials.certificate is not None:
                return self._certificates.identify(credentials.certificate)
            raise UnauthenticatedError("No bearer token was given; send the header Authorization: Bearer <token>")
        scheme, _, token = credentials.authorization.partition(b" ")
        if scheme.lower() == b"bearer":
            for authenticator in self._authenticators:
                identity = authenticator.authenticate(token.strip())
                if identity is not None:
                    return identity
        raise UnauthenticatedError("The bearer token is not valid")


def _user(given: bytes) -> str:
    """Return the name of the user that a header names.

    Raises:
        InvalidRequestError: The header is not ``User:<name>`` in UTF-8, or one can't act for this user.
    """
    try:
        text = given.decode()
    except UnicodeDecodeError:
        text = ""
    name = text.removeprefix(USER)
    if not text.startswith(USER) or not name.isprintable() or len(name) > _LONGEST:
        raise InvalidRequestError(
            f"{BEHALF_OF} names the user to act for as User:<name>, in UTF-8, of {_LONGEST} characters at most",
            pointer=BEHALF_OF,
        )
    if name in _NOBODY or text == ADMIN:
        raise InvalidRequestError(
            f"{BEHALF_OF} is {text!a}, and nobody acts for that: name one user, who is not the administrator",
            pointer=BEHALF_OF,
        )
    return name
