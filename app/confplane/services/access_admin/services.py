"""The services for tokens, grants and their history, as the API and the commands have them together."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from confplane.services.access import Access
    from confplane.services.access_admin.grants import GrantService
    from confplane.services.access_admin.overview import OverviewService
    from confplane.services.access_admin.tokens import TokenService
    from confplane.services.ports.access import AccessChange, AccessQuery, AccessStore

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AccessServices:
    """The services for tokens and grants."""

    tokens: TokenService
    grants: GrantService
    overview: OverviewService
    store: AccessStore
    refresh: Callable[[], Awaitable[None]]
    """Reads tokens and grants into memory."""

    async def take_effect(self) -> None:
        """Apply a change in this process at once; every process applies it within two seconds in any case."""
        try:
            await self.refresh()
        except UnavailableError as error:
            _log.debug("%s; a change of tokens or grants takes effect a little later", error.detail)

    async def history(self, query: AccessQuery, access: Access) -> tuple[list[AccessChange], UUID | None]:
        """Return a page of the history of tokens and grants, newest first, and the cursor of the next.

        Raises:
            ForbiddenError: The caller lacks DESCRIBE on audit.
            UnavailableError: Postgres is unavailable.
        """
        access.require(None, Operation.DESCRIBE, ResourceType.AUDIT)
        return await self.store.search(query)
