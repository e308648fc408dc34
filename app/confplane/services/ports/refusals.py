"""Refused attempts: writes that a rule, a grant or a freeze refused before they were begun. Not part of the trail.

A change that was begun and refused is a rejected change of the trail. Attempts have no values: a value may be what is
wrong with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from confplane.domain.access.ranges import NameRanges
    from confplane.domain.errors import ConfplaneError


class RefusedEdit(NamedTuple):
    """An edit of a request that ended with an error."""

    entity_id: str
    """Empty if the request names no valid entity."""
    keys: Sequence[str]
    error: ConfplaneError


@dataclass(frozen=True, slots=True)
class RefusedAttempt:
    """A refused attempt of an authenticated caller, or a sum of further ones of the same minute."""

    cluster: str
    principal: str
    operation: str
    """The operation's id in the specification."""
    error_code: int
    """Kafka's error code."""
    problem: str
    """The problem type, without ``/problems/``."""
    request_id: str | None
    """None for a sum."""
    behalf_of: str | None = None
    """The user for whom the principal acted. None if it acted for itself, and for a sum."""
    entity_id: str | None = None
    """None if the request names no valid entity, and for a sum. A long id is cut, and ends with an ellipsis."""
    keys: tuple[str, ...] = ()
    """The first keys that the attempt names. Empty for a sum."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class StoredAttempt:
    """A refused attempt as it is stored."""

    id: UUID
    """UUIDv7 of the time of the attempt; of a sum, of its first attempt."""
    attempt: RefusedAttempt

    @property
    def time_ms(self) -> int:
        """The time in the id, in milliseconds since the epoch."""
        return self.id.int >> 80


@dataclass(frozen=True, slots=True)
class RefusedQuery:
    """A search for refused attempts; None means any. Newest first."""

    cluster: str
    entity_id: str | None = None
    key: str | None = None
    principal: str | None = None
    request_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    page_size: int = 100
    before: UUID | None = None
    """Cursor: only attempts before this one."""
    within: NameRanges | None = None
    """Only attempts to alter entities in these ranges; None: all, including those without an entity."""


class RefusedAttempts(Protocol):
    """The refused attempts of all processes."""

    def record(self, attempt: RefusedAttempt) -> None:
        """Take an attempt; never waits, never fails. It is written in the background, or dropped without room."""

    async def search(self, query: RefusedQuery) -> tuple[list[StoredAttempt], UUID | None]:
        """Return one page and the cursor of the next, or None. A page may be short: its work is bounded.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
