"""The store of an observed cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from app.services.ports.store import ClusterStore

if TYPE_CHECKING:
    from app.services.ports.journal import Journal
    from app.services.ports.store import Leadership


class ObservedStore(ClusterStore, Protocol):
    """A cluster's store with the observer's further ports. Both are available once the store was started."""

    @property
    def journal(self) -> Journal:
        """The journal of the mirror."""

    @property
    def leadership(self) -> Leadership:
        """The leadership of the cluster."""

    def altered(self) -> list[str]:
        """Return ids of the entities whose znodes name altered keys (:mod:`app.services.altered`), by the mirror.

        Raises:
            UnavailableError: The mirror was never loaded.
        """
