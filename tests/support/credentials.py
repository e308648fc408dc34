"""Tokens and grants for tests, written into the tables like the service does."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from uuid_utils.compat import uuid7

from confplane.audit import Database, PostgresAccessStore
from confplane.domain.access.grants import Grant
from confplane.security import api_tokens
from confplane.services.ports.access import AccessChange, StoredGrant, Token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID


class Credentials:
    """Makes and ends tokens and grants."""

    def __init__(self, store: PostgresAccessStore) -> None:
        self.store = store

    async def token(self, principal: str, **more: Any) -> tuple[UUID, str]:
        """Make a token; return its id and its text."""
        now, text = datetime.now(UTC), api_tokens.make()
        made = Token(uuid7(), principal, now, "User:admin", **{"expires_at": now + timedelta(days=1), **more})
        await self.store.create_token(made, api_tokens.digest(text), _change("token-created"))
        return made.id, text

    async def revoke(self, token_id: UUID) -> None:
        """Revoke a token."""
        assert await self.store.revoke_token(token_id, _change("token-revoked")) is not None

    async def grant(self, principal: str, **more: Any) -> StoredGrant:
        """Make a grant."""
        made = StoredGrant(Grant(uuid7(), principal, **more), datetime.now(UTC), "User:admin")
        return await self.store.create_grant(made, _change("grant-created"))

    async def remove(self, grant: StoredGrant) -> None:
        """Remove a grant."""
        assert await self.store.remove_grant(grant.grant.id, grant.revision, _change("grant-removed"))


@asynccontextmanager
async def credentials(dsn: str) -> AsyncIterator[Credentials]:
    """Open the tables of a database with the service's role."""
    database = Database(dsn, 2)
    await database.start()
    try:
        yield Credentials(PostgresAccessStore(database))
    finally:
        await database.close()


_FORM: Final = re.compile(rb"confplane_[0-9A-Za-z]{49}")


def parse(given: bytes) -> bytes | None:
    """Return the digest of a text that a secret scanner takes for an API token, by form and checksum; else None."""
    if not _FORM.fullmatch(given) or given[-6:] != api_tokens._checksum(given[:-6]).encode():
        return None
    return api_tokens.digest(given.decode())


def _change(kind: str) -> AccessChange:
    return AccessChange(uuid7(), kind, "User:admin", "127.0.0.1", "tests")
