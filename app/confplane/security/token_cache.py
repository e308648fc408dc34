"""The token cache: tokens and grants in memory, refreshed from Postgres.

Every change to a token or grant increments a version number in Postgres. The cache polls this version twice a second
and loads the rows that changed since its own version, so every process learns of a revocation within two seconds. While
Postgres is unavailable, the cache remains in use until it is too old. After that, every credential except the admin
token is refused, cached or not.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from confplane.domain.access.identities import Authentication, Identity
from confplane.domain.errors import RequestStateError, UnauthenticatedError, UnavailableError, WriteOutcome
from confplane.security import api_tokens
from confplane.services.background import BackgroundService, BackgroundTask
from confplane.services.metrics import Sample
from confplane.services.operator_warnings import OperatorWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from uuid import UUID

    from confplane.domain.access.grants import Grant
    from confplane.services.ports.access import AccessDelta, AccessStore, Token

_log: Final = logging.getLogger(__name__)

_PREFIX: Final = api_tokens.PREFIX.encode()
_STALE_WARNING_S: Final = 10.0
"""Age in seconds above which the cache reports a warning."""
_REVOKED: Final = "The API token is not valid: it is unknown, was revoked, or has expired; ask for a new one"
_UNCONFIRMED: Final = (
    "Postgres was restored to an earlier moment. Change requests that were rejected or cancelled since may be back, and"
    " so may temporary changes that had ended. Until an operator has checked them and has run `confplane tokens"
    " confirm`, no request is approved, is applied or expires, and no temporary change ends by itself"
)
_RESTORED: Final = (
    "The API token was created before Postgres was restored, and may have been revoked since. It is rejected until an"
    " operator has run `confplane tokens confirm`"
)


class TokenCache(BackgroundService):
    """A recent copy of all tokens and grants.

    Args:
        store: The tables.
        max_age_s: Seconds for which the cache may be used without a successful refresh.
        clock: A monotonic clock, for the age of the cache.
        now: Seconds since 1970, for the expiry of tokens.
        interval_s: Seconds between two polls of the version.
        uses_s: Seconds between two updates of the tokens' last use.
    """

    def __init__(
        self,
        store: AccessStore,
        max_age_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        interval_s: float = 0.5,
        uses_s: float = 30.0,
    ) -> None:
        self._store = store
        self._max_age_s = max_age_s
        self._clock = clock
        self._now = now
        self._interval_s = interval_s
        self._uses_s = uses_s
        self._version: int | None = None
        self._identities: dict[bytes, Identity] = {}
        """By the SHA-256 of the token's text."""
        self._groups: dict[str, dict[UUID, frozenset[str]]] = {}
        """The groups of each principal's tokens, for those that have some."""
        self._expiry_times: dict[UUID, float] = {}
        """Expiry of each token in Unix seconds; 0 for a revoked token."""
        self._created_at: dict[UUID, float] = {}
        """Creation of each token in Unix seconds."""
        self._tokens_from = -math.inf
        """Tokens created before this time are rejected, in Unix seconds."""
        self._grants: dict[UUID, Grant] = {}
        self._by_principal: dict[str, dict[UUID, Grant]] = {}
        self._confirmed_at: float | None = None
        self._valid_until = -math.inf
        self._needs_full_load = False
        """True after a loss of Postgres, which may have been restored from a backup: the next load must be complete."""
        self._unrecorded_uses: dict[UUID, float] = {}
        """Last uses that are not stored yet, in Unix seconds."""
        self._refresh_lock = asyncio.Lock()
        self._background = BackgroundTask(self._run, name="look at tokens and grants")
        self.version = 0

    async def stop(self) -> None:
        """Stop, after storing the last uses of tokens."""
        await self._background.stop()
        await self._record_uses()

    # -- lookups

    def grants_of(self, identity: Identity) -> Sequence[Grant]:
        """Return the grants that decide for a caller: see :class:`confplane.services.ports.access.AccessCopy`."""
        found = [grant for name in identity.grantees for grant in self._by_principal.get(name, {}).values()]
        for name in identity.denying_groups:
            found += [grant for grant in self._by_principal.get(name, {}).values() if not grant.allows]
        return found

    def check(self, identity: Identity) -> None:
        """Refuse a credential that is no longer valid: see :class:`confplane.services.ports.access.AccessCopy`."""
        if identity.is_admin:
            return
        if self._clock() > self._valid_until:
            raise self._too_old()
        if identity.token_id is not None:
            now = self._now()
            if self._expiry_times.get(identity.token_id, 0) <= now:
                raise UnauthenticatedError(_REVOKED)
            if self._created_at.get(identity.token_id, 0) < self._tokens_from:
                raise UnauthenticatedError(_RESTORED)
            self._unrecorded_uses[identity.token_id] = now

    def authenticate(self, given: bytes) -> Identity | None:
        """Return the identity of an API token, or None if the text is not an API token.

        Raises:
            UnauthenticatedError: There is no such token.
            UnavailableError: The cache is empty or too old to decide.
        """
        if not given.startswith(_PREFIX):
            return None
        # Whether the token is still valid is checked with its access, as for every credential.
        identity = self._identities.get(hashlib.sha256(given).digest())
        if identity is None:
            raise self._too_old() if self._clock() > self._valid_until else UnauthenticatedError(_REVOKED)
        return identity

    def groups_of(self, principal: str) -> frozenset[str]:
        """Return the groups of a user's valid tokens."""
        now, of_tokens = self._now(), self._groups.get(principal)
        if of_tokens is None:
            return frozenset()
        return frozenset(
            group
            for token_id, groups in of_tokens.items()
            if self._expiry_times.get(token_id, 0) > now
            for group in groups
        )

    def age_s(self) -> float | None:
        """Return the seconds since the last successful refresh, or None before the first."""
        return None if self._confirmed_at is None else self._clock() - self._confirmed_at

    def _too_old(self) -> UnavailableError:
        age = self.age_s()
        return UnavailableError(
            "Postgres is away, and no credential but the admin token can be decided: tokens and grants"
            + (" were never read" if age is None else f" were read {age:.0f} seconds ago"),
            retry_after_s=2,
        )

    # -- refresh

    async def refresh(self) -> None:
        """Refresh now, so that this process sees a change that it just made.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        async with self._refresh_lock:
            asked_at = self._clock()
            try:
                loaded = await self._store.load(None if self._needs_full_load else self._version)
            except UnavailableError:
                self._needs_full_load = True
                raise
            if loaded is not None:
                self._apply(loaded)
            self._needs_full_load = False
            self._confirmed_at = asked_at
            self._valid_until = asked_at + self._max_age_s

    async def refresh_confirmed(self) -> None:
        """Refresh, for decisions about requests and schedules, which a restored Postgres has as of an earlier moment.

        Raises:
            UnavailableError: Postgres is unavailable.
            RequestStateError: Postgres was restored, and no operator has confirmed its tokens.
        """
        await self.refresh()
        if self._tokens_from > -math.inf:
            raise RequestStateError(_UNCONFIRMED, outcome=WriteOutcome.NOT_APPLIED)

    def _apply(self, loaded: AccessDelta) -> None:
        """Apply changes without yielding to the event loop, so that no caller sees a part of them."""
        if loaded.whole:
            self._identities, self._expiry_times, self._grants, self._by_principal = {}, {}, {}, {}
            self._groups, self._created_at = {}, {}
        self._tokens_from = -math.inf if loaded.tokens_from is None else loaded.tokens_from.timestamp()
        for digest, token in loaded.tokens.items():
            self._identities[digest] = _identity(token)
            self._created_at[token.id] = token.created_at.timestamp()
            self._expiry_times[token.id] = token.expires_at.timestamp() if token.revoked_at is None else 0
            if token.groups:
                self._groups.setdefault(token.principal, {})[token.id] = token.groups
        for grant_id in loaded.removed:
            self._drop(grant_id)
        for stored in loaded.grants:
            self._drop(stored.grant.id)
            self._grants[stored.grant.id] = stored.grant
            self._by_principal.setdefault(stored.grant.principal, {})[stored.grant.id] = stored.grant
        self._version = loaded.version
        self.version += 1

    def _drop(self, grant_id: UUID) -> None:
        grant = self._grants.pop(grant_id, None)
        if grant is not None:
            of_principal = self._by_principal[grant.principal]
            del of_principal[grant_id]
            if not of_principal:
                del self._by_principal[grant.principal]

    async def _run(self) -> None:
        noted_at = self._clock()
        while True:
            try:
                await self.refresh()
            except UnavailableError as error:
                _log.debug("%s; tokens and grants stay as they are", error.detail)
            except Exception:  # noqa: BLE001 - a failed refresh must not be the last
                _log.exception("Tokens and grants could not be read; they stay as they are")
            if self._clock() - noted_at >= self._uses_s:
                noted_at = self._clock()
                await self._record_uses()
            await asyncio.sleep(self._interval_s)

    async def _record_uses(self) -> None:
        used, self._unrecorded_uses = self._unrecorded_uses, {}
        if used:
            try:
                await self._store.record_use({key: datetime.fromtimestamp(at, UTC) for key, at in used.items()})
            except UnavailableError:
                self._unrecorded_uses = used | self._unrecorded_uses

    # -- for operators

    def warnings(self) -> list[OperatorWarning]:
        """Return a warning while the cache is empty or old."""
        age = self.age_s()
        if age is None:
            return [OperatorWarning("Tokens and grants were not read yet: only the admin token is decided")]
        if age <= _STALE_WARNING_S:
            return []
        return [
            OperatorWarning(
                f"Tokens and grants are as of {age:.0f} seconds ago; from {self._max_age_s:.0f} seconds on only the"
                " admin token is decided"
            )
        ]

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        age = self.age_s()
        if age is not None:
            yield Sample("access_age_seconds", age)
        yield Sample("access_tokens", len(self._identities))
        yield Sample("access_grants", len(self._grants))


def _identity(token: Token) -> Identity:
    return Identity(
        token.principal,
        Authentication.TOKEN,
        groups=token.groups,
        narrowing=token.narrowing,
        token_id=token.id,
        owner=token.owner,
        expires_at=token.expires_at,
    )
