"""API tokens: created, listed, found, rotated and revoked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from uuid_utils.compat import uuid7

from confplane.domain.access.grants import passed_on
from confplane.domain.access.identities import USER, Authentication, Identity
from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.errors import (
    ForbiddenError,
    InvalidRequestError,
    UnauthenticatedError,
    UnavailableError,
    WriteOutcome,
)
from confplane.domain.texts import rfc3339
from confplane.services.access_admin import rules
from confplane.services.access_admin.effective_grants import check_rights
from confplane.services.access_admin.history import change_of
from confplane.services.access_admin.repository import AccessRecordKind, AccessRepository
from confplane.services.access_admin.views import token_view
from confplane.services.ports.access import Token

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from uuid import UUID

    from confplane.domain.access.identities import CredentialNarrowing
    from confplane.services.access import Access, AccessControl
    from confplane.services.changes.callers import Caller
    from confplane.services.ports.access import AccessStore

_EVERY: Final = "tokens"
"""The subject of changes of all tokens in the history."""
LONGEST_OVERLAP_S: Final = 30 * 86_400
"""Seconds for which a replaced token may stay valid, at most."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The lifetimes of tokens, in days."""

    default_days: int = 90
    longest_days: int = 365


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The parts of the settings that tokens may name, or may not."""

    clusters: Collection[str]
    prefixes: Collection[str] = ()
    """Prefixes of the names of users that only issuers of access tokens create."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """The wishes for a new token; None is left to the service."""

    principal: str
    groups: tuple[str, ...] = ()
    owner: str | None = None
    note: str | None = None
    expires_at: datetime | None = None
    narrowing: CredentialNarrowing | None = None


@dataclass(frozen=True, slots=True)
class CreatedToken:
    """A new token; ``text`` is its secret, which is shown this once, and None if nothing was written."""

    token: Token
    text: str | None


@dataclass(frozen=True, slots=True)
class RevokedToken:
    """A revoked token, and the tokens that were created with it, directly or through others."""

    token: Token
    active: int = 0
    """The number of those that are still active."""
    revoked: int = 0
    """The number of those that were revoked with it."""


def _is_own(access: Access, principal: str) -> bool:
    return access.identity.behalf_of is None and principal == access.identity.principal


_KIND: Final[AccessRecordKind[Token]] = AccessRecordKind(
    ResourceType.TOKENS, "token", attrgetter("id"), attrgetter("principal"), _is_own
)


class TokenService:
    """Manages API tokens.

    Every coroutine raises ``UnavailableError`` if Postgres is unavailable.

    Args:
        store: The tables.
        control: Makes the rights that a token would have.
        mint: Makes the text of a token and its digest.
        known: The clusters of the settings, and the names of users from other settings.
        lifetimes: The default and the longest lifetime.
    """

    def __init__(
        self,
        store: AccessStore,
        control: AccessControl,
        mint: Callable[[], tuple[str, bytes]],
        known: KnownNames,
        lifetimes: Lifetimes,
    ) -> None:
        self._store = store
        self._control = control
        self._mint = mint
        self._clusters, self._prefixes = known.clusters, known.prefixes
        self._lifetimes = lifetimes
        self._repository = AccessRepository(_KIND, store.find_token)

    @property
    def now(self) -> datetime:
        """The moment by which a token's status is decided."""
        return datetime.now(UTC)

    async def create(self, wanted: NewToken, caller: Caller, *, validate_only: bool = False) -> CreatedToken:
        """Create a token.

        Raises:
            InvalidRequestError: The principal, a group, the owner, the note, the expiry or a limit is not valid.
            ForbiddenError: The caller may make no token of this principal, of a group or of this owner, or lacks a
                right that the token would have.
            UnauthenticatedError: The token of the caller was revoked at the same time.
            UnavailableError: Tokens were invalidated at the same time.
        """
        self._check(wanted)
        now, identity = datetime.now(UTC), caller.access.identity
        token = Token(
            uuid7(),
            wanted.principal,
            now,
            caller.principal,
            self._expiry(wanted.expires_at, now, identity.expires_at),
            groups=frozenset(wanted.groups),
            owner=self._owner(wanted.owner, caller.access),
            note=wanted.note,
            narrowing=_passed_on(identity, wanted.narrowing),
            created_with=identity.token_id,
        )
        self._check_rights(token, caller.access)
        if validate_only:
            return CreatedToken(token, None)
        text, digest = self._mint()
        change = change_of(caller, "token-created", _subject(token.id), after=token_view(token, now))
        if not await self._store.create_token(token, digest, change):
            if identity.token_id is not None:
                raise _revoked()
            raise UnavailableError(
                "All tokens created until now were invalidated at the same time; nothing was created. Try again",
                outcome=WriteOutcome.NOT_APPLIED,
                retry_after_s=1,
            )
        return CreatedToken(token, text)

    async def page(
        self, principal: str | None, access: Access, *, page_size: int, after: UUID | None
    ) -> tuple[list[Token], UUID | None]:
        """Return a page of the tokens that a caller may see, oldest first, and the cursor of the next.

        Raises:
            InvalidRequestError: The principal is not valid.
            ForbiddenError: A principal is named, and the caller may not see its tokens.
        """
        read = partial(self._store.list_tokens, principal=principal)
        return await self._repository.page(read, principal, access, page_size=page_size, after=after)

    async def find(self, token_id: UUID, access: Access) -> Token:
        """Return a token, also an expired or revoked one.

        Raises:
            NotFoundError: The token does not exist, and the caller may see all.
            ForbiddenError: There is no such token that the caller may see.
        """
        return await self._repository.find(token_id, access)

    async def revoke(
        self, token_id: UUID, caller: Caller, *, with_created: bool = False, validate_only: bool = False
    ) -> RevokedToken:
        """Revoke a token for good; a revoked token stays as it is.

        Args:
            token_id: The token.
            caller: The caller.
            with_created: Also revoke the tokens that were created with it, directly or through others.
            validate_only: Write nothing.

        Raises:
            NotFoundError: The token does not exist, and the caller may revoke all.
            ForbiddenError: There is no such token that the caller may revoke, or the caller may not revoke one that
                was created with it; nothing was revoked.
        """
        token = await self._repository.find_alterable(token_id, caller.access)
        created = await self._store.created_with(token_id)
        if with_created:
            self._repository.require_all(caller.access, Operation.ALTER, created)
        if validate_only:
            return RevokedToken(token, len(created))
        token = await self._revoke(token, caller)
        if not with_created:
            return RevokedToken(token, len(created))
        # None of these creates another one once it is revoked, so that a round finds fewer than the one before.
        revoked = 0
        while created:
            for each in created:
                await self._revoke(each, caller)
            revoked += len(created)
            created = await self._store.created_with(token_id)
        return RevokedToken(token, revoked=revoked)

    async def _revoke(self, token: Token, caller: Caller) -> Token:
        if token.revoked_at is not None:
            return token
        now = datetime.now(UTC)
        after = replace(token, revoked_at=now)
        change = change_of(
            caller,
            "token-revoked",
            _subject(token.id),
            before=token_view(token, now),
            after=token_view(after, now),
        )
        return await self._store.revoke_token(token.id, change) or after

    async def confirm(self, caller: Caller) -> bool:
        """Admit the tokens of a restored Postgres again; return False if none were rejected.

        Raises:
            ForbiddenError: The caller may not alter the tokens of every principal.
        """
        self._check_every(caller.access)
        return await self._store.confirm_tokens(change_of(caller, "tokens-confirmed", _EVERY))

    async def invalidate(self, before: datetime, caller: Caller) -> int:
        """Revoke all valid tokens created before a time, and return their number.

        Raises:
            InvalidRequestError: The time is in the future.
            ForbiddenError: The caller may not alter the tokens of every principal.
        """
        self._check_every(caller.access)
        if before > datetime.now(UTC):
            raise InvalidRequestError("The time is in the future. Give a time up to now.", pointer="/issuedBefore")
        after = {"issuedBefore": before.isoformat()}
        return await self._store.invalidate_tokens(before, change_of(caller, "tokens-invalidated", _EVERY, after=after))

    def _check_every(self, access: Access) -> None:
        if not self._repository.covers_every(access, Operation.ALTER):
            raise ForbiddenError("This needs the grant ALTER on tokens of every principal")

    async def rotate(
        self,
        token_id: UUID,
        overlap_s: int,
        caller: Caller,
        *,
        expires_at: datetime | None = None,
        validate_only: bool = False,
    ) -> CreatedToken:
        """Replace a token by a new one of the same principal, groups, note, limits and owner.

        A token that replaces itself keeps all of these and lives as long again, at most. For other tokens the rules of
        new ones apply: a caller that can't grant all rights of the old token is refused.

        Args:
            token_id: The old token, which stays valid for the overlap, or until its own expiry where this is earlier.
            overlap_s: Seconds.
            caller: The caller.
            expires_at: The expiry of the new token; None: after the same time as the old one lasted.
            validate_only: Write nothing.

        Raises:
            InvalidRequestError: The overlap or the expiry is not valid, or the token was revoked or has expired.
            NotFoundError: The token does not exist, and the caller may alter all.
            ForbiddenError: The caller may alter no such token, lacks a right of the token, may make no token of its
                owner, or has a credential that is more limited or ends earlier than the new token.
        """
        if not 0 <= overlap_s <= LONGEST_OVERLAP_S:
            raise InvalidRequestError(
                f"overlapSeconds has to be 0 to {LONGEST_OVERLAP_S} (30 days)", pointer="/overlapSeconds"
            )
        old = await self._repository.find_alterable(token_id, caller.access)
        now, identity = datetime.now(UTC), caller.access.identity
        by_itself = _is_itself(identity, old)
        if not by_itself and not _keeps(identity, old.narrowing):
            raise ForbiddenError(
                f"The credential of {identity.principal} is limited, and the new token would have the same limits,"
                " unlike the old one; rotate it with a credential that has no limits that the token lacks"
            )
        made = replace(
            old,
            id=uuid7(),
            created_at=now,
            created_by=caller.principal,
            owner=old.owner if by_itself else self._owner(old.owner, caller.access),
            expires_at=self._next_expiry(old, expires_at, now, identity),
            last_used_at=None,
            replaces=old.id,
            created_with=identity.token_id,
        )
        self._check_rights(made, caller.access)
        if old.revoked_at is not None or old.expires_at <= now:
            raise _ended(token_id)
        if validate_only:
            return CreatedToken(made, None)
        text, digest = self._mint()
        change = change_of(
            caller,
            "token-rotated",
            _subject(made.id),
            before=token_view(old, now),
            after=token_view(made, now),
        )
        if not await self._store.rotate_token(old.id, now + timedelta(seconds=overlap_s), made, digest, change):
            raise _ended(token_id)
        return CreatedToken(made, text)

    def _check(self, wanted: NewToken) -> None:
        rules.check_holder(wanted.principal, "/principal")
        rules.check_new_principal(wanted.principal, "/principal")
        for prefix in self._prefixes:
            if wanted.principal.startswith(f"{USER}{prefix}"):
                raise InvalidRequestError(
                    f"Users whose names begin with {prefix} are those of an issuer of access tokens alone; name the"
                    " token's user otherwise",
                    pointer="/principal",
                )
        for index, group in enumerate(wanted.groups):
            rules.check_group(group, f"/groups/{index}")
            rules.check_new_principal(group, f"/groups/{index}")
        rules.check_text(wanted.owner, "owner", "/owner")
        rules.check_text(wanted.note, "note", "/note")
        limits = wanted.narrowing
        if limits is None:
            return
        for name, given in (("clusters", limits.clusters), ("operations", limits.operations)):
            if given is not None and not given:
                raise InvalidRequestError(
                    f"No {name} at all would leave a token without any right; leave it out for no limit",
                    pointer=f"/narrowing/{name}",
                )
        for cluster in sorted(limits.clusters or ()):
            rules.check_cluster(cluster, self._clusters, "/narrowing/clusters")

    def _expiry(self, wanted: datetime | None, now: datetime, last: datetime | None) -> datetime:
        """Return the end of a new token; ``last`` is that of the credential which creates it."""
        longest = now + timedelta(days=self._lifetimes.longest_days)
        if wanted is None:
            wanted = min(longest, last or longest, now + timedelta(days=self._lifetimes.default_days))
        if last is not None and (wanted > last or last <= now):
            raise ForbiddenError(
                f"A token expires no later than the credential that creates it, which expires at {rfc3339(last)}; give"
                " an earlier expiresAt, or use a credential that lasts longer",
                pointer="/expiresAt",
            )
        if not now < wanted <= longest:
            raise InvalidRequestError(
                f"expiresAt has to be in the future, and within {self._lifetimes.longest_days} days",
                pointer="/expiresAt",
            )
        return wanted

    def _next_expiry(self, old: Token, wanted: datetime | None, now: datetime, creator: Identity) -> datetime:
        """Return the end of a token that replaces another."""
        again = now + min(timedelta(days=self._lifetimes.longest_days), old.expires_at - old.created_at)
        if not _is_itself(creator, old):
            return self._expiry(again if wanted is None else wanted, now, creator.expires_at)
        if wanted is not None and wanted > again:
            raise ForbiddenError(
                f"A token that replaces itself lives as long again at most, until {rfc3339(again)}; give an earlier"
                " expiresAt",
                pointer="/expiresAt",
            )
        return again if wanted is None else self._expiry(wanted, now, None)

    def _check_rights(self, token: Token, access: Access) -> None:
        self._repository.require(access, Operation.ALTER, token.principal, "/principal")
        for group in sorted(token.groups):
            # A group's later grants are the token's as well: only its members, and its keepers, hand it on.
            if group not in access.identity.groups or access.identity.behalf_of is not None:
                self._repository.require(access, Operation.ALTER, group, "/groups")
        identity = Identity(token.principal, Authentication.TOKEN, groups=token.groups, narrowing=token.narrowing)
        check_rights(access, self._control.rights(identity), self._clusters)

    def _owner(self, wanted: str | None, access: Access) -> str | None:
        """Return the owner of a new token: the person behind its maker, unless the maker manages everybody's tokens.

        The same applies to a rotation, because the caller receives the new token. A user for whom a portal acts is the
        owner in any case, because the token names only the portal as its maker.

        Raises:
            ForbiddenError: Another owner is requested, which would let a maker act as two persons.
        """
        identity = access.identity
        if identity.acts_for is None and self._repository.covers_every(access, Operation.ALTER):
            return wanted
        own = identity.acts_for or identity.owner or identity.principal
        if wanted not in {None, own}:
            raise ForbiddenError(
                f"The owner of this token is {own}, who makes it; another owner is set by callers with the grant ALTER"
                " on tokens of every principal, who act for nobody else",
                pointer="/owner",
            )
        return own


def _is_itself(identity: Identity, token: Token) -> bool:
    """Return True if a request was sent with the token that it is about."""
    return identity.token_id == token.id and identity.behalf_of is None


def _passed_on(identity: Identity, wanted: CredentialNarrowing | None) -> CredentialNarrowing | None:
    """Return the limits of a new token: at least those of the credential that creates it.

    Raises:
        ForbiddenError: More is wanted than that credential has.
    """
    try:
        return passed_on(identity.narrowing, wanted)
    except ValueError as error:
        raise ForbiddenError(
            f"The new token would have {error} that the limits of your own credential leave out; ask for fewer, or use"
            " a credential without such limits",
            pointer=f"/narrowing/{error}",
        ) from None


def _keeps(identity: Identity, narrowing: CredentialNarrowing | None) -> bool:
    """Return True if a token that a credential creates can have exactly these limits."""
    try:
        return passed_on(identity.narrowing, narrowing) == narrowing
    except ValueError:
        return False


def _subject(token_id: UUID) -> str:
    return f"tokens/{token_id}"


def _revoked() -> UnauthenticatedError:
    return UnauthenticatedError("The token of this request was revoked; nothing was created")


def _ended(token_id: UUID) -> InvalidRequestError:
    return InvalidRequestError(
        f"The token {token_id}, or that of this request, was revoked or has expired: nothing was rotated; create a new"
        " one"
    )
