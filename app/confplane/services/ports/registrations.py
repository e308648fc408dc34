"""Registrations of client software (KIP-649). Implemented by ``confplane.audit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from confplane.domain.access.ranges import NameRanges


@dataclass(frozen=True, slots=True)
class ClientRegistration:
    """The configs that a client software says it supports, for one ``<user, client-id>`` or ``<user>`` (KIP-649)."""

    cluster: str
    entity_id: str
    software_name: str
    software_version: str
    supported_configs: tuple[str, ...]
    """Sorted, without repeats."""


class RegistrationLog(Protocol):
    """Registrations: append-only in Postgres, deduplicated and answered from memory.

    Coroutines raise ``UnavailableError`` if Postgres is unavailable.
    """

    def record(self, registration: ClientRegistration) -> None:
        """Take a registration; never waits, never fails. An unknown registration is written in the background."""

    def registered(self, cluster: str, *, within: NameRanges | None = None) -> Collection[str]:
        """Return the ids of the entities with registrations, from memory, in no order.

        ``within`` leaves out ids outside of these ranges, at no cost for each; None: all ids.
        """

    def compatibility(self, cluster: str, entity_id: str) -> list[ClientRegistration]:
        """Return the known registrations of one entity, from memory, ordered by software name and version."""

    async def search(
        self,
        cluster: str,
        *,
        entity_id: str | None,
        page_size: int,
        after: str | None,
        within: NameRanges | None = None,
    ) -> tuple[list[tuple[ClientRegistration, datetime, datetime]], str | None]:
        """Return a page of (registration, first seen, last seen) ordered by entity id, and the next cursor.

        ``within`` is as in :meth:`registered`.
        """

    async def clear(self, cluster: str, *, entity_id: str | None, principal: str, request_id: str) -> int:
        """Append the clearing of an entity's registrations (None: all of the cluster); return the number hidden."""
