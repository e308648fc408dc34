"""Stored sessions of the web console. Implemented by ``confplane.audit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class StoredSession:
    """The row of a session that has not ended."""

    token: bytes
    """The token, sealed."""
    principal: str
    remaining_s: float
    """Seconds until the session expires, by Postgres's clock."""


class ConsoleSessions(Protocol):
    """The store of sessions. Every call raises ``UnavailableError`` if Postgres is unavailable."""

    async def add(self, digest: bytes, token: bytes, principal: str, expires_at: datetime) -> None:
        """Store a session, and remove sessions that have ended."""

    async def find(self, digest: bytes) -> StoredSession | None:
        """Return a session, or None if there is none, or it has expired, or was not used for an hour."""

    async def touch(self, digest: bytes) -> None:
        """Store that a session is in use now."""

    async def remove(self, digest: bytes) -> None:
        """Remove a session, if it exists."""
