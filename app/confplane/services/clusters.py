"""The clusters of a process, each with its store and its facets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confplane.domain.errors import UnknownClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confplane.domain.facets import FacetName
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.kraft.apply.apply_status import ApplyWaiter
    from confplane.services.kraft.reconcile.drift import DriftService
    from confplane.services.kraft.refresh import Refresher
    from confplane.services.ports.store import ClusterStore
    from confplane.services.reads.config_describe import ConfigReader


@dataclass(frozen=True, slots=True)
class Cluster:
    """One Kafka cluster as this process serves it."""

    name: str
    store: ClusterStore
    facets: Mapping[FacetName, ClusterFacet]
    configs: ConfigReader
    """The effective configs of the cluster's topics and brokers."""
    apply_waiter: ApplyWaiter
    refresher: Refresher | None = None
    """Refreshes a Kafka cluster without ZooKeeper. None if the settings name no brokers of it."""
    drift: DriftService | None = None
    """The drift of a Kafka cluster without ZooKeeper. None if the settings name no brokers of it."""


class ClusterRegistry:
    """The clusters of this process by name."""

    def __init__(self, clusters: Mapping[str, Cluster]) -> None:
        self._clusters = dict(sorted(clusters.items()))

    def __iter__(self) -> Iterator[Cluster]:
        return iter(self._clusters.values())

    def find(self, name: str) -> Cluster | None:
        """Return a cluster, or None if this service has no cluster of that name."""
        return self._clusters.get(name)

    def get(self, name: str) -> Cluster:
        """Return a cluster.

        Raises:
            UnknownClusterError: This service has no cluster of that name; the text lists the clusters it has.
        """
        try:
            return self._clusters[name]
        except KeyError:
            known = ", ".join(self._clusters)
            raise UnknownClusterError(f"There is no cluster {name!r} here; there are: {known}") from None
