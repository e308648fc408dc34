"""Identities: the callers of requests, as their credentials name them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.enums import StrEnum

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from confplane.domain.access.operations import Operation

USER: Final = "User:"
GROUP: Final = "Group:"
ADMIN: Final = "User:admin"
"""The principal of the admin token; no other credential makes it."""
SERVICE: Final = "confplane"
"""The principal of what the service does by itself."""
EVERYBODY: Final = "User:*"
"""The principal of grants to all callers."""


def untyped_hint(principal: str | None) -> str:
    """Return the end of a message about a principal for which nothing is found, if it is a name without a type."""
    return "" if not principal or ":" in principal else f". Principals have a type, as in {USER}{principal}"


class Authentication(StrEnum):
    """The kind of a credential."""

    ADMIN_TOKEN = "admin-token"  # noqa: S105 - the name of a kind
    TOKEN = "token"  # noqa: S105 - as above
    OIDC = "oidc"
    CERTIFICATE = "certificate"
    COMMAND = "command"
    """A command on a machine with the service's settings."""
    BEHALF = "on-behalf-of"
    """No credential: a portal names the user for whom it acts."""


@dataclass(frozen=True, slots=True)
class CredentialNarrowing:
    """The limits of a credential within its principal's rights; None means no limit."""

    read_only: bool = False
    clusters: frozenset[str] | None = None
    operations: frozenset[Operation] | None = None


def narrowing_view(narrowing: CredentialNarrowing | None) -> dict[str, Any] | None:
    """Return the limits in their form in the API and in the history; None if there are none."""
    if narrowing is None:
        return None
    return {
        "readOnly": narrowing.read_only,
        "clusters": None if narrowing.clusters is None else sorted(narrowing.clusters),
        "operations": None if narrowing.operations is None else sorted(narrowing.operations),
    }


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller of a request."""

    principal: str
    """In Kafka's form, ``User:name``."""
    kind: Authentication
    groups: frozenset[str] = frozenset()
    """In the form ``Group:name``."""
    issuer: str | None = None
    """The issuer of an OIDC token; None for other kinds."""
    is_kafka_user: bool = True
    """True where the principal is the one that the cluster's brokers know: it may resolve its own client configs."""
    narrowing: CredentialNarrowing | None = None
    token_id: UUID | None = None
    """The id of an API token."""
    owner: str | None = None
    """The person or team behind the credential, who counts as one wherever two must agree; None: the principal."""
    expires_at: datetime | None = None
    behalf_of: Identity | None = None
    """The user for whom a portal acts; allowed is what both may."""
    denying_groups: frozenset[str] = frozenset()
    """Groups of a user for whom a portal acts, as far as they are known: their denies apply, their allows do not."""
    ends_at: float = field(init=False, repr=False, compare=False)
    """The end of an API token in seconds of Unix time; never for other credentials, which their issuers renew."""
    is_admin: bool = field(init=False, repr=False, compare=False)
    """True for the admin token and for commands, which need no grant."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Each request needs these; the hash of all fields would cost more than the look-up of a caller by it.
        named = (self.principal, self.kind, self.issuer, self.token_id, self.groups, self.behalf_of)
        object.__setattr__(self, "_hash", hash(named))
        ends = self.expires_at if self.kind is Authentication.TOKEN else None
        object.__setattr__(self, "ends_at", math.inf if ends is None else ends.timestamp())
        object.__setattr__(self, "is_admin", self.kind in {Authentication.ADMIN_TOKEN, Authentication.COMMAND})

    def __hash__(self) -> int:
        return self._hash

    @property
    def acts_for(self) -> str | None:
        """The principal for whom a portal acts; None where the caller acts for itself."""
        return None if self.behalf_of is None else self.behalf_of.principal

    @property
    def grantees(self) -> tuple[str, ...]:
        """The principals and groups whose grants are the caller's."""
        return (self.principal, EVERYBODY, *self.groups)

    @property
    def own_user(self) -> str | None:
        """The name of the user whose client configs the caller may resolve; None where there is none."""
        if not self.is_kafka_user or not self.principal.startswith(USER):
            return None
        return self.principal.removeprefix(USER)
