"""Stored Idempotency-Keys. Implemented by ``confplane.audit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from uuid import UUID

    from confplane.services.ports.trail import Outcome


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A stored answer: its status, its body, and the headers that belong to it."""

    status: int
    headers: dict[str, str]
    body: str
    needs: tuple[str, ...] | None = None
    """The grants without which the answer is not given again, each an operation and the spelling of a resource with a
    space between; None if they are not known."""


@dataclass(frozen=True, slots=True)
class KeyRow:
    """The stored row of a key."""

    id: UUID
    holder: UUID
    body: str
    writer: str
    """The writer node of the holder's first intent, or of its takeover."""
    in_time: bool
    """True while the holder's deadline is to come, by Postgres's clock."""
    answer: StoredAnswer | None


@dataclass(frozen=True, slots=True)
class KeyedChange:
    """One attempt of a change that was made under a key."""

    change_id: UUID
    attempt: int
    results: list[dict[str, Any]]
    outcome: Outcome | None
    """The outcome of the change; None if it has none yet."""


class RequestKeys(Protocol):
    """The store of keys. Every call raises ``UnavailableError`` if Postgres is unavailable."""

    async def find(self, key: str) -> KeyRow | None:
        """Return the row of a key."""

    async def take_over(self, row: KeyRow, holder: UUID, *, writer: str, seconds: float) -> bool:
        """Make another holder the key's, for so many seconds; False: the row has changed."""

    async def changes(self, key_id: UUID) -> list[KeyedChange]:
        """Return the changes made under a key, by id and attempt."""

    async def store(self, key_id: UUID, holder: UUID, answer: StoredAnswer) -> bool:
        """Store the holder's answer; False: the holder does not hold the key."""

    async def hand_on(self, key_id: UUID, holder: UUID) -> bool:
        """End the holder's turn without an answer; False: the holder does not hold the key."""

    async def release(self, key_id: UUID, holder: UUID) -> bool:
        """Forget the holder's key; False: the holder does not hold the key, or no longer."""

    async def purge(self, keep_s: float) -> None:
        """Forget the keys older than so many seconds."""
