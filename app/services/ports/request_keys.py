"""Idempotency-Keys as they are kept. Implemented by ``app.audit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from uuid import UUID

    from app.services.ports.trail import Outcome


@dataclass(frozen=True, slots=True)
class Answer:
    """A stored answer: its body, and those of its headers that belong to it."""

    status: int
    headers: dict[str, str]
    body: str


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key as it is stored."""

    id: UUID
    holder: UUID
    body: str
    writer: str
    """Of the holder's first intent, or of its taking over."""
    in_time: bool
    """The holder's deadline is to come, by Postgres's clock."""
    answer: Answer | None


@dataclass(frozen=True, slots=True)
class KeyedChange:
    """One attempt of a change that was made under a key."""

    change_id: UUID
    attempt: int
    results: list[dict[str, Any]]
    outcome: Outcome | None
    """Of the change; None where it has none yet."""


class RequestKeys(Protocol):
    """Where keys are kept. Every call raises ``UnavailableError`` when Postgres is away."""

    async def find(self, key: str) -> KeyRow | None:
        """Return what is known of a key."""

    async def take_over(self, row: KeyRow, holder: UUID, *, writer: str, seconds: float) -> bool:
        """Make it another holder's turn, for so many seconds; False: the row is not as it was."""

    async def changes(self, key_id: UUID) -> list[KeyedChange]:
        """Return the changes made under a key, by id and attempt."""

    async def store(self, key_id: UUID, holder: UUID, answer: Answer) -> bool:
        """Keep the holder's answer; False: it does not hold the key."""

    async def hand_on(self, key_id: UUID, holder: UUID) -> bool:
        """End the holder's turn without an answer; False as above."""

    async def release(self, key_id: UUID, holder: UUID) -> bool:
        """Forget the holder's key; False: it does not hold it, or not any more."""

    async def purge(self, keep_s: float) -> None:
        """Forget the keys that are older than so many seconds."""
