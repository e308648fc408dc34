"""The bypass of the rules by a request that breaks the glass."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from confplane.domain.errors import WriteOutcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from confplane.services.changes.edits import EditResult
    from confplane.services.ports.change_requests import ChangeRequest


class RuleBypass:
    """Opens the change request that another person has to acknowledge, once, before the first write past the rules.

    Args:
        opens: Opens it, with the ids of the entities.

    Attributes:
        request: The change request; None while nothing was decided past the rules.
        wrote: True if the request wrote something, or may have.
    """

    def __init__(self, opens: Callable[[Sequence[str]], Awaitable[ChangeRequest]]) -> None:
        self.request: ChangeRequest | None = None
        self.wrote = False
        self._opens = opens
        self._entity_ids: set[str] = set()
        self._opening = asyncio.Lock()

    def include(self, entity_ids: Iterable[str]) -> None:
        """Name entities that the request alters; none that the caller may not alter."""
        self._entity_ids.update(entity_ids)

    async def open(self) -> None:
        """Open the change request, unless it is open.

        Raises:
            UnavailableError: Postgres is unavailable, so nothing may be written.
        """
        async with self._opening:
            if self.request is None:
                self.request = await self._opens(sorted(self._entity_ids))

    def record(self, result: EditResult) -> None:
        """Take note of the result of an edit."""
        unknown = result.error is not None and result.error.outcome is WriteOutcome.UNKNOWN
        self.wrote = self.wrote or unknown or result.change_id is not None
