"""The store of an observed cluster, and a Kafka cluster that is observed and altered."""

from __future__ import annotations

from typing import Protocol

from confplane.services.ports.applying import WritableKafkaCluster
from confplane.services.ports.kafka import KafkaCluster
from confplane.services.ports.store import ClusterStore


class ObservedStore(ClusterStore, Protocol):
    """A cluster's store with the entities of its mirror that have pending keys."""

    def entities_with_pending_keys(self) -> list[str]:
        """Return the ids of the mirror's entities with pending keys (:mod:`confplane.services.pending_keys`).

        Raises:
            UnavailableError: The mirror was never loaded.
        """


class ReconciledCluster(KafkaCluster, WritableKafkaCluster, Protocol):
    """A Kafka cluster that is both observed and altered."""
