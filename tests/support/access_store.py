"""Tokens, grants and their history in memory: the whole port, with the behaviour of the tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from confplane.domain.errors import AlreadyExistsError
from confplane.services.ports.access import AccessDelta

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from confplane.services.ports.access import AccessChange, AccessQuery, StoredGrant, Token


@dataclass(slots=True)
class _TokenRow:
    token: Token
    digest: bytes
    version: int


@dataclass(slots=True)
class _GrantRow:
    grant: StoredGrant
    removed: bool = False


class MemoryAccessStore:
    """Implements :class:`confplane.services.ports.access.AccessStore`."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self.history: list[AccessChange] = []
        self._version = 0
        self.tokens_from: datetime | None = None
        self._tokens: dict[UUID, _TokenRow] = {}
        self._grants: dict[UUID, _GrantRow] = {}

    async def create_token(self, token: Token, digest: bytes, change: AccessChange) -> bool:
        assert all(row.digest != digest for row in self._tokens.values())
        version = self._raised()
        if not self._is_valid_creator(token.created_with):
            return False
        self._tokens[token.id] = _TokenRow(token, digest, version)
        self._record(change)
        return True

    async def revoke_token(self, token_id: UUID, change: AccessChange) -> Token | None:
        version, row = self._raised(), self._tokens.get(token_id)
        if row is None:
            return None
        if row.token.revoked_at is None:
            row.token, row.version = replace(row.token, revoked_at=datetime.now(UTC)), version
            self._record(change)
        return row.token

    async def rotate_token(
        self, token_id: UUID, until: datetime, token: Token, digest: bytes, change: AccessChange
    ) -> bool:
        version, row = self._raised(), self._tokens.get(token_id)
        if row is None or row.token.revoked_at is not None or row.token.expires_at <= self._now():
            return False
        if not self._is_valid_creator(token.created_with):
            return False
        self._record(change)
        row.version = version
        row.token = replace(row.token, expires_at=min(row.token.expires_at, until))
        self._tokens[token.id] = _TokenRow(token, digest, row.version)
        return True

    async def created_with(self, token_id: UUID) -> list[Token]:
        found: dict[UUID, Token] = {}
        creators = {token_id}
        while creators:
            new = {
                row.token.id: row.token
                for row in self._tokens.values()
                if row.token.created_with in creators and row.token.id not in found
            }
            found |= new
            creators = set(new)
        now = self._now()
        active = (each for each in found.values() if each.revoked_at is None and each.expires_at > now)
        return sorted(active, key=lambda each: each.id)

    def _is_valid_creator(self, token_id: UUID | None) -> bool:
        return token_id is None or (token_id in self._tokens and self._tokens[token_id].token.revoked_at is None)

    async def confirm_tokens(self, change: AccessChange) -> bool:
        if self.tokens_from is None:
            return False
        self._raised()
        self.tokens_from = None
        self._record(change)
        return True

    async def invalidate_tokens(self, before: datetime, change: AccessChange) -> int:
        version, now, count = self._raised(), self._now(), 0
        if self.tokens_from is not None and self.tokens_from <= before:
            self.tokens_from = None
        for row in self._tokens.values():
            if row.token.created_at < before and row.token.revoked_at is None and row.token.expires_at > now:
                row.token, row.version = replace(row.token, revoked_at=datetime.now(UTC)), version
                count += 1
        self._record(change)
        return count

    def distrust(self, at: datetime) -> None:
        """Reject the tokens created before a time, as after a restore."""
        self._raised()
        self.tokens_from = at

    async def find_token(self, token_id: UUID) -> Token | None:
        row = self._tokens.get(token_id)
        return None if row is None else row.token

    async def list_tokens(
        self, *, principal: str | None, page_size: int, after: UUID | None
    ) -> tuple[list[Token], UUID | None]:
        found = [row.token for row in self._tokens.values() if principal in {None, row.token.principal}]
        page = sorted((each for each in found if after is None or each.id > after), key=lambda each: each.id)
        return page[:page_size], page[page_size - 1].id if len(page) > page_size else None

    async def record_use(self, used: dict[UUID, datetime]) -> None:
        for token_id, at in used.items():
            row = self._tokens[token_id]
            row.token = replace(row.token, last_used_at=max(at, row.token.last_used_at or at))

    async def create_grant(self, grant: StoredGrant, change: AccessChange) -> StoredGrant:
        version, same = self._raised(), self._same(grant)
        if same is not None:
            return same
        self._record(change)
        made = replace(grant, revision=version)
        self._grants[grant.grant.id] = _GrantRow(made)
        return made

    def add(self, grant: StoredGrant) -> None:
        """Add a grant without history and without checking the other grants."""
        self._grants[grant.grant.id] = _GrantRow(grant)

    async def replace_grant(self, grant: StoredGrant, change: AccessChange) -> StoredGrant | None:
        row, same = self._current(grant.grant.id, grant.revision), self._same(grant)
        if row is not None and same is not None and same.grant.id != grant.grant.id:
            raise AlreadyExistsError("Another grant has this content already")
        version = self._raised()
        if row is None:
            return None
        self._record(change)
        row.grant = replace(grant, revision=version)
        return row.grant

    async def remove_grant(self, grant_id: UUID, revision: int, change: AccessChange) -> bool:
        version, row = self._raised(), self._current(grant_id, revision)
        if row is None:
            return False
        self._record(change)
        row.removed = True
        row.grant = replace(row.grant, revision=version)
        return True

    async def find_grant(self, grant_id: UUID) -> StoredGrant | None:
        row = self._grants.get(grant_id)
        return None if row is None or row.removed else row.grant

    async def list_grants(
        self, *, principal: str | None, cluster: str | None, page_size: int, after: UUID | None
    ) -> tuple[list[StoredGrant], UUID | None]:
        found = [
            row.grant
            for row in self._grants.values()
            if not row.removed
            and principal in {None, row.grant.grant.principal}
            and cluster in {None, row.grant.grant.cluster}
            and (after is None or row.grant.grant.id > after)
        ]
        page = sorted(found, key=lambda each: each.grant.id)
        return page[:page_size], page[page_size - 1].grant.id if len(page) > page_size else None

    async def load(self, since: int | None) -> AccessDelta | None:
        if since == self._version:
            return None
        known = -1 if since is None or since > self._version else since
        now = self._now()
        return AccessDelta(
            self._version,
            whole=known < 0,
            tokens={
                row.digest: row.token
                for row in self._tokens.values()
                if row.version > known and (known >= 0 or (row.token.revoked_at is None and row.token.expires_at > now))
            },
            grants=[row.grant for row in self._grants.values() if not row.removed and row.grant.revision > known],
            removed=frozenset(
                grant_id
                for grant_id, row in self._grants.items()
                if row.removed and known >= 0 and row.grant.revision > known
            ),
            tokens_from=self.tokens_from,
        )

    async def search(self, query: AccessQuery) -> tuple[list[AccessChange], UUID | None]:
        found = [
            row
            for row in sorted(self.history, key=lambda row: row.id, reverse=True)
            if query.kind in {None, row.kind}
            and query.principal in {None, row.principal}
            and query.subject in {None, row.subject}
            and row.recorded_at is not None
            and (query.since is None or row.recorded_at >= query.since)
            and (query.until is None or row.recorded_at < query.until)
            and (query.before is None or row.id < query.before)
        ]
        return found[: query.page_size], found[query.page_size - 1].id if len(found) > query.page_size else None

    async def add_events(self, rows: Sequence[AccessChange]) -> None:
        self.history += [replace(row, recorded_at=datetime.now(UTC)) for row in rows]

    def _raised(self) -> int:
        """Return the next version: each statement uses one, even if it changes nothing."""
        self._version += 1
        return self._version

    def _record(self, change: AccessChange) -> None:
        self.history.append(replace(change, recorded_at=datetime.now(UTC)))

    def _current(self, grant_id: UUID, revision: int) -> _GrantRow | None:
        row = self._grants.get(grant_id)
        return None if row is None or row.removed or row.grant.revision != revision else row

    def _same(self, grant: StoredGrant) -> StoredGrant | None:
        for row in self._grants.values():
            if not row.removed and replace(row.grant.grant, id=grant.grant.id) == grant.grant:
                return row.grant
        return None
