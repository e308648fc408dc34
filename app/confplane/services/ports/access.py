"""Tokens and grants: the copy in memory that a process uses for its decisions, and the tables that it is loaded from.

The copy is implemented by ``confplane.security``, the tables by ``confplane.audit``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from confplane.domain.access.grants import Grant
    from confplane.domain.access.identities import CredentialNarrowing, Identity
    from confplane.domain.access.operations import Operation


class AccessCopy(Protocol):
    """The grants of callers, and the validity of their credentials, in memory."""

    @property
    def version(self) -> int:
        """The version of the copy: another number after every change of a token or grant."""

    def grants_of(self, identity: Identity) -> Sequence[Grant]:
        """Return the grants to a caller's principal, to its groups and to everybody, and the denies to other groups.

        The latter are those of :attr:`Identity.denying_groups`.
        """

    def check(self, identity: Identity) -> None:
        """Refuse a credential that is no longer valid.

        Raises:
            UnauthenticatedError: The token was revoked or has expired.
            UnavailableError: The copy is missing or too old to decide.
        """


class CallerAccess(Protocol):
    """The rights of one request's caller, as the authenticator uses them."""

    def require(self, cluster: str | None, operation: Operation, spelling: str, *, pointer: str | None = None) -> None:
        """Refuse an operation that the caller may not run, and record the refusal.

        Raises:
            ForbiddenError: The grant is missing; the text names it.
        """


AccessT = TypeVar("AccessT", bound=CallerAccess)
AccessT_co = TypeVar("AccessT_co", bound=CallerAccess, covariant=True)


class AccessSource(Protocol[AccessT_co]):
    """Creates the access of each request."""

    def access(self, identity: Identity, source: str, request_id: str) -> AccessT_co:
        """Return the access of a request.

        Raises:
            UnauthenticatedError: The credential is no longer valid.
            UnavailableError: The copy of tokens and grants is missing, or too old.
        """


class SecurityEvents(Protocol):
    """Takes note of what a watcher of the service's security wants to know. Never waits."""

    def denied(self, identity: Identity, source: str, request_id: str, operation: Operation, resource: str) -> None:
        """Note a refusal for want of a grant."""

    def unauthenticated(self, kind: str, source: str, request_id: str) -> None:
        """Note a refused credential; ``kind`` is one of few words: missing, invalid, repeated."""

    def admitted_admin(self, source: str, request_id: str) -> None:
        """Note a use of the admin token."""

    def broke_glass(self, identity: Identity, source: str, request_id: str, cluster: str, change_request: str) -> None:
        """Note a write past the rules of a cluster, and the change request in which it is acknowledged."""


@dataclass(frozen=True, slots=True)
class Token:
    """An API token, without its secret."""

    id: UUID
    principal: str
    created_at: datetime
    created_by: str
    expires_at: datetime
    groups: frozenset[str] = frozenset()
    owner: str | None = None
    note: str | None = None
    narrowing: CredentialNarrowing | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    """At most a minute before the truth."""
    replaces: UUID | None = None
    """The token whose rotation made this one."""
    created_with: UUID | None = None
    """The token with which the request that made this one was sent; None for other credentials."""


@dataclass(frozen=True, slots=True)
class StoredGrant:
    """A grant with its history's end."""

    grant: Grant
    created_at: datetime
    created_by: str
    note: str | None = None
    revision: int = 0
    """Another number after each replacement; its ETag."""


@dataclass(frozen=True, slots=True)
class AccessChange:
    """One row of the second append-only table: a change of a token or grant, or a sum of security events."""

    id: UUID
    """A UUIDv7: ids are in the order of time."""
    kind: str
    """``token-created``, ``token-revoked``, ``token-rotated``, ``tokens-confirmed``, ``tokens-invalidated``,
    ``grant-created``, ``grant-replaced``,
    ``grant-removed``; or an event: ``denied``, ``unauthenticated``, ``admin-token-used``, ``break-glass``."""
    principal: str
    """The principal that did it, or was refused."""
    source: str
    subject: str
    """``tokens/<id>``, ``grants/<id>``; of a sum of events the operation and type of resource, or the kind of fault."""
    request_id: str | None = None
    behalf_of: str | None = None
    reason: str | None = None
    ticket: str | None = None
    before: dict[str, Any] | None = None
    """The token or grant as the API shows it; never a secret."""
    after: dict[str, Any] | None = None
    count: int = 1
    """The number of events in the minute; 1 for a change."""
    recorded_at: datetime | None = None
    """By Postgres's clock; None until it is stored."""


@dataclass(frozen=True, slots=True)
class AccessQuery:
    """A search of :class:`AccessChange`; None means any. Newest first."""

    kind: str | None = None
    principal: str | None = None
    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    page_size: int = 100
    before: UUID | None = None
    """Cursor: only rows older than this one."""


@dataclass(frozen=True, slots=True)
class AccessDelta:
    """Tokens and grants that changed since a version; see :meth:`AccessStore.load`."""

    version: int
    whole: bool = False
    """True if everything that is valid was loaded; what is not in it is gone."""
    tokens: dict[bytes, Token] = field(default_factory=dict)
    """By the token's SHA-256; those that were revoked since too."""
    grants: list[StoredGrant] = field(default_factory=list)
    removed: frozenset[UUID] = frozenset()
    """Grants that were removed since."""
    tokens_from: datetime | None = None
    """Tokens created before this time are rejected: Postgres was restored then. None: all tokens are admitted."""


class AccessStore(Protocol):
    """The tables of tokens and grants. Each change is one transaction of Postgres, with its row of history.

    Every method raises UnavailableError if Postgres is unavailable; after a lost connection a change may be done
    nevertheless, and the error text mentions that.
    """

    async def create_token(self, token: Token, digest: bytes, change: AccessChange) -> bool:
        """Add a token; ``digest`` is the SHA-256 of its text.

        Returns:
            False if the token that creates it was revoked, or tokens created later than this one were invalidated.
        """

    async def revoke_token(self, token_id: UUID, change: AccessChange) -> Token | None:
        """Revoke a token for good; None if there is none that could be revoked. Revoking again changes nothing."""

    async def rotate_token(
        self, token_id: UUID, until: datetime, token: Token, digest: bytes, change: AccessChange
    ) -> bool:
        """Add a token that replaces another, which expires ``until`` then, or before.

        Returns False if the other, or the token that creates the new one, is not valid.
        """

    async def created_with(self, token_id: UUID) -> list[Token]:
        """Return the active tokens that were created with a token, directly or through others."""

    async def confirm_tokens(self, change: AccessChange) -> bool:
        """Admit the tokens of a restored Postgres; False if none were rejected."""

    async def invalidate_tokens(self, before: datetime, change: AccessChange) -> int:
        """Revoke the valid tokens created before a time, and return their number.

        If the tokens of a restored Postgres are rejected and all of them were created before, the rejection ends.
        """

    async def names_behind(self, token_id: UUID) -> frozenset[str]:
        """Return the owners and makers of a token, and of all tokens that it replaces or was created with."""

    async def find_token(self, token_id: UUID) -> Token | None:
        """Return a token, also an expired or revoked one."""

    async def list_tokens(
        self, *, principal: str | None, page_size: int, after: UUID | None
    ) -> tuple[list[Token], UUID | None]:
        """Return a page of tokens by id, oldest first, and the cursor of the next page."""

    async def record_use(self, used: dict[UUID, datetime]) -> None:
        """Raise the times of the last use of tokens."""

    async def create_grant(self, grant: StoredGrant, change: AccessChange) -> StoredGrant:
        """Add a grant; return it with its revision, or the grant that is there already with the same content."""

    async def replace_grant(self, grant: StoredGrant, change: AccessChange) -> StoredGrant | None:
        """Replace a grant whose revision is still the given one. Returns None if it differs or no grant exists.

        Raises:
            AlreadyExistsError: Another grant has this content.
        """

    async def remove_grant(self, grant_id: UUID, revision: int, change: AccessChange) -> bool:
        """Remove a grant whose revision is still the given one. Returns False if it differs or no grant exists."""

    async def find_grant(self, grant_id: UUID) -> StoredGrant | None:
        """Return a grant."""

    async def list_grants(
        self, *, principal: str | None, cluster: str | None, page_size: int, after: UUID | None
    ) -> tuple[list[StoredGrant], UUID | None]:
        """Return a page of grants by id, oldest first, and the cursor of the next page."""

    async def load(self, since: int | None) -> AccessDelta | None:
        """Return what changed since a version; None if nothing changed.

        Everything is loaded if ``since`` is None, or if the version is lower (Postgres was restored).
        """

    async def search(self, query: AccessQuery) -> tuple[list[AccessChange], UUID | None]:
        """Return one page of the history, and the cursor of the next or None."""

    async def add_events(self, rows: Sequence[AccessChange]) -> None:
        """Append sums of security events."""
