"""What a process serves: clusters, each with its store and its facets, and who is calling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.domain.errors import LayoutUndecidedError, NotFoundError, WriteOutcome
from app.domain.facets import FacetName, Tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from app.domain.changes import Node
    from app.domain.entities import Entity
    from app.domain.facets import Facet, JsonValue
    from app.services.ports import ClusterStore


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, how the request is told apart, and until when an answer is worth having."""

    principal: str
    source: str
    request_id: str
    deadline: float
    """On the clock of ``time.monotonic()``."""
    reason: str | None = None
    ticket: str | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """A facet of one cluster: its rules, and the tree that holds its keys there."""

    facet: Facet
    tree: Tree
    store: ClusterStore
    layout_chosen: bool = True

    @property
    def name(self) -> FacetName:
        """The facet's name."""
        return self.facet.name

    def own(self, entity: Entity, config: Mapping[str, str]) -> dict[str, str]:
        """Return this facet's keys of a stored map, sorted, as stored strings."""
        owns = self.facet.owns
        return {key: config[key] for key in sorted(config) if owns(entity, key)}

    def declared(self, entity: Entity, node: Node | None) -> dict[str, JsonValue]:
        """Return this facet's keys of a node as JSON answers them.

        Raises:
            ValueError: A stored value is none of its key.
        """
        if node is None:
            return {}
        decode = self.facet.decode
        return {key: decode(key, value) for key, value in self.own(entity, node.config).items()}

    def check_layout(self) -> None:
        """Refuse a write whose place is undecided.

        Raises:
            LayoutUndecidedError: Client configs, brokers are registered, and the operator has not chosen.
        """
        if (
            self.layout_chosen
            or self.name is not FacetName.CLIENT_CONFIGS
            or not self.store.status().brokers_registered
        ):
            return
        raise LayoutUndecidedError(
            f"Brokers are registered in cluster {self.store.name!r}, and client_configs_layout is not set for it. "
            "Choose 'separate' to keep Kafka's own tools able to alter entities that have client configs, or 'shared' "
            "to store client configs beside the quotas as KIP-649 does (docs/kafka-compatibility.md).",
            outcome=WriteOutcome.NOT_APPLIED,
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """One Kafka cluster as this process serves it."""

    name: str
    store: ClusterStore
    collections: Mapping[FacetName, Collection]


class Clusters:
    """The clusters of this process by name."""

    def __init__(self, clusters: Mapping[str, Cluster]) -> None:
        self._clusters = dict(sorted(clusters.items()))

    def __iter__(self) -> Iterator[Cluster]:
        return iter(self._clusters.values())

    def get(self, name: str) -> Cluster:
        """Return a cluster.

        Raises:
            NotFoundError: This service has no such cluster; the text lists those it has.
        """
        try:
            return self._clusters[name]
        except KeyError:
            known = ", ".join(self._clusters)
            raise NotFoundError(f"There is no cluster {name!r} here; there are: {known}") from None
