"""Sessions of the web console in Postgres, whose clock decides when one ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import text
from typing_extensions import override

from confplane.services.ports.console_sessions import ConsoleSessions, StoredSession

if TYPE_CHECKING:
    from datetime import datetime

    from confplane.audit.database import Database

IDLE_S: Final = 3_600
"""Seconds without use after which a session ends."""
_ENDED: Final = f"(expires_at <= now() OR used_at <= now() - make_interval(secs => {IDLE_S}))"
_PURGED: Final = 100
"""Ended sessions that one sign-in removes."""
_ADD: Final = text("""
INSERT INTO console_sessions (digest, token, principal, expires_at) VALUES (:digest, :token, :principal, :expires_at)
ON CONFLICT DO NOTHING
""")
_PURGE: Final = text(f"""
DELETE FROM console_sessions WHERE digest IN (
  SELECT digest FROM console_sessions WHERE {_ENDED} LIMIT {_PURGED} FOR UPDATE SKIP LOCKED
)
""")  # noqa: S608 - of constants
_FIND: Final = text(f"""
SELECT token, principal, CAST(extract(epoch FROM expires_at - now()) AS double precision) AS remaining_s
FROM console_sessions WHERE digest = :digest AND NOT {_ENDED}
""")  # noqa: S608 - of constants
_TOUCH: Final = text(f"UPDATE console_sessions SET used_at = now() WHERE digest = :digest AND NOT {_ENDED}")  # noqa: S608 - of constants
_REMOVE: Final = text("DELETE FROM console_sessions WHERE digest = :digest")


class PostgresConsoleSessions(ConsoleSessions):
    """The sessions of the web console, in Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def add(self, digest: bytes, token: bytes, principal: str, expires_at: datetime) -> None:
        await self._database.execute(_ADD, digest=digest, token=token, principal=principal, expires_at=expires_at)
        await self._database.execute(_PURGE)

    @override
    async def find(self, digest: bytes) -> StoredSession | None:
        row = await self._database.row(_FIND, digest=digest)
        return None if row is None else StoredSession(row.token, row.principal, row.remaining_s)

    @override
    async def touch(self, digest: bytes) -> None:
        await self._database.execute(_TOUCH, digest=digest)

    @override
    async def remove(self, digest: bytes) -> None:
        await self._database.execute(_REMOVE, digest=digest)
