"""Identities of client certificates: the principals that Kafka derives from their subjects."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from confplane.domain.access.identities import ADMIN, EVERYBODY, USER, Authentication, Identity
from confplane.domain.errors import UnauthenticatedError
from confplane.domain.texts import LONGEST_PRINCIPAL
from confplane.security.mapping import UnmappedError

if TYPE_CHECKING:
    from collections.abc import Collection

    from confplane.security.mapping import PrincipalMapper

MAX_SUBJECT: Final = 1024
"""The most characters of a subject."""
_CACHE_SIZE: Final = 4096
_RESERVED: Final = frozenset({ADMIN, EVERYBODY})


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
