"""The store of an observed cluster."""

from __future__ import annotations

from typing import Protocol

from confplane.services.ports.store import ClusterStore


class ObservedStore(ClusterStore, Protocol):
    """A cluster's store with the altered entities of its mirror."""

    def altered(self) -> list[str]:
        """Return ids of the entities whose znodes name altered keys (:mod:`confplane.services.altered`), by the mirror.

        Raises:
            UnavailableError: The mirror was never loaded.
        """
