"""The authenticator: turns the credentials of a request into its access. There is no other way to gain access.

The admin token and client certificates are read here, other tokens by implementations of ``TokenAuthenticator``.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol

from confplane.domain.access.identities import ADMIN, EVERYBODY, USER, Authentication, Identity
from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.access.ranges import spell
from confplane.domain.entities import DEFAULT_NODE
from confplane.domain.errors import InvalidRequestError, UnauthenticatedError
from confplane.domain.texts import LONGEST_PRINCIPAL
from confplane.security.mapping import UnmappedError
from confplane.services.ports.access import AccessT

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from confplane.security.mapping import PrincipalMapper
    from confplane.services.ports.access import AccessSource

CERTIFICATE: Final = "confplane.certificate"
"""Scope key of the subject of a verified client certificate. Absent if the client has no certificate."""
MAX_SUBJECT: Final = 1024
"""The most characters of a subject."""
_CACHE_SIZE: Final = 4096
_RESERVED: Final = frozenset({ADMIN, EVERYBODY})
_MIN_LENGTH: Final = 16
"""The fewest characters of the admin token."""


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


class AdminToken:
    """Authenticates exactly one principal, ``User:admin``. Holds the token's digest only."""

    def __init__(self, token: str) -> None:
        self._digest = _checked(token)
        self._identity = Identity(ADMIN, Authentication.ADMIN_TOKEN)

    @classmethod
    def from_file(cls, path: Path) -> AdminToken:
        """Read the token from the first line of a file.

        Raises:
            OSError: The file can't be read.
            ValueError: The token is too short.
        """
        return cls(_first_line(path))

    def reload(self, path: Path) -> None:
        """Read the token from the file again. The earlier token is no longer valid.

        Raises:
            OSError: The file can't be read; the earlier token remains valid.
            ValueError: The token is too short; the earlier token remains valid.
        """
        self._digest = _checked(_first_line(path))

    def authenticate(self, given: bytes) -> Identity | None:
        """Return ``User:admin`` for the right token; compared in constant time."""
        return self._identity if hmac.compare_digest(_digest(given), self._digest) else None

    def groups_of(self, principal: str) -> frozenset[str]:
        """Return no groups: the administrator has none."""
        del principal
        return frozenset()


class Certificates:
    """Turns subjects of verified client certificates into identities.

    Args:
        mapper: The rules of the brokers.
        reserved_prefixes: Prefixes of the issuers of access tokens, which no principal of a certificate can have.
    """

    def __init__(self, mapper: PrincipalMapper, reserved_prefixes: Collection[str] = ()) -> None:
        self._mapper = mapper
        self._reserved_prefixes = tuple(reserved_prefixes)
        self._identities = lru_cache(maxsize=_CACHE_SIZE)(self._identity)

    def identify(self, subject: str) -> Identity:
        """Return the identity of a subject. An empty subject means a certificate that can't be read.

        Raises:
            UnauthenticatedError: The subject has no valid principal.
        """
        return self._identities(subject)

    def _identity(self, subject: str) -> Identity:
        if not 0 < len(subject) <= MAX_SUBJECT:
            raise UnauthenticatedError(
                f"The client certificate can't be read, or its subject is empty or longer than {MAX_SUBJECT} characters"
            )
        try:
            name = self._mapper.name(subject)
        except UnmappedError as error:
            raise UnauthenticatedError(
                f"No principal is made of the client certificate: {error}; see http.ssl_principal_mapping_rules"
            ) from None
        principal = USER + name
        if len(principal.encode()) > LONGEST_PRINCIPAL:
            raise UnauthenticatedError(
                f"The principal of the client certificate takes more than {LONGEST_PRINCIPAL} bytes; see"
                " http.ssl_principal_mapping_rules"
            )
        if not name or not name.isprintable() or principal in _RESERVED or name.startswith(self._reserved_prefixes):
            raise UnauthenticatedError("The client certificate names a principal that no certificate can have")
        return Identity(principal, Authentication.CERTIFICATE)


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
        if scheme.lower() != b"bearer":
            raise UnauthenticatedError("The header has no bearer token; send Authorization: Bearer <token>")
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


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _checked(token: str) -> bytes:
    """Return the digest of a token that is long enough."""
    if len(token) < _MIN_LENGTH:
        raise ValueError(f"The admin token has fewer than {_MIN_LENGTH} characters")
    return _digest(token.encode())


def _first_line(path: Path) -> str:
    lines = path.read_text().splitlines()
    return lines[0].strip() if lines else ""
