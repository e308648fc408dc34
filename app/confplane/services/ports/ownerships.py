"""The owners of keys, as the trail explains them. Implemented by ``confplane.audit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.domain.ownership import Ownership
    from confplane.services.ports.history import Znode


@dataclass(frozen=True, slots=True)
class OwnedState:
    """The last state of a znode that the trail explains, with the owners of its keys."""

    present: bool
    czxid: int
    version: int
    ownership: Ownership


class Ownerships(Protocol):
    """The store of owners. Every call raises ``UnavailableError`` if Postgres is unavailable."""

    async def known(self, cluster: str, znodes: Sequence[Znode]) -> Mapping[Znode, OwnedState]:
        """Return the states of znodes; a znode that the trail has no state of is absent."""

    async def owned(self, cluster: str, tree: str, first: str, size: int) -> list[tuple[str, Ownership]]:
        """Return entities that have an owner, ordered by id: from an id on, so many at most."""
