"""What a process serves: clusters, each with its store and its facets, and who is calling."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.domain.entities import EntityType
from app.domain.errors import LayoutUndecidedError, NotFoundError, WriteOutcome
from app.domain.facets import FacetName, Tree
from app.services.etags import etag_of
from app.services.policies import Policies

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from app.domain.changes import Node
    from app.domain.entities import Entity
    from app.domain.facets import Facet, JsonValue
    from app.services.config_describe import ConfigReader
    from app.services.edits import Planner
    from app.services.idempotency import Run
    from app.services.ports import ClusterStore, Redactor


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
    run: Run | None = None
    """Of a request with an Idempotency-Key."""


@dataclass(frozen=True, slots=True)
class Collection:
    """A facet of one cluster: its rules, the tree that holds its keys there, and how it is changed."""

    facet: Facet
    tree: Tree
    store: ClusterStore
    planner: Planner[Any]
    policies: Policies = field(default_factory=Policies)
    redactor: Redactor | None = None
    """Where the facet has secrets."""
    layout_chosen: bool = True

    @property
    def name(self) -> FacetName:
        """The facet's name."""
        return self.facet.name

    def own(self, entity: Entity, config: Mapping[str, str]) -> dict[str, str]:
        """Return this facet's keys of a stored map, sorted, as stored strings."""
        owns = self.facet.owns
        return {key: config[key] for key in sorted(config) if owns(entity, key)}

    def declared(self, entity: Entity, config: Mapping[str, str]) -> dict[str, JsonValue]:
        """Return this facet's keys of a stored map as JSON answers them.

        Raises:
            ValueError: A stored value is none of its key.
        """
        decode = self.facet.decode
        return {key: decode(entity, key, value) for key, value in self.own(entity, config).items()}

    def tagged(
        self, entity: Entity, config: Mapping[str, str], node: Node | None
    ) -> tuple[dict[str, JsonValue], str | None]:
        """Return what :meth:`declared` does, and its ETag: None where nothing is declared.

        Secrets are None in the former. In the latter the transaction that wrote the node stands for them, so that it
        changes whenever they may have, and nobody can try guesses on it.

        Raises:
            ValueError: A stored value is none of its key.
        """
        declared = self.declared(entity, config)
        if not self.facet.has_secrets:
            return declared, etag_of(declared)
        written = "never" if node is None else f"in {node.mzxid}"
        return declared, etag_of({key: written if value is None else value for key, value in declared.items()})

    def redacted(self, entity: Entity, config: Mapping[str, str]) -> dict[str, str | None]:
        """Return a stored map as the trail may have it.

        Of other facets' keys (SCRAM credentials, unknown ones) and of secrets only that they are there.
        """
        owns = self.facet.owns
        if not self.facet.has_secrets:
            return {key: value if owns(entity, key) else None for key, value in config.items()}
        is_secret = self.facet.is_secret
        return {
            key: value if owns(entity, key) and not is_secret(entity, key) else None for key, value in config.items()
        }

    async def fingerprints(self, entity: Entity, config: Mapping[str, str]) -> dict[str, str | None] | None:
        """Return a keyed fingerprint of each secret of a stored map, None where it can't be known.

        None where the facet has no secrets at all.
        """
        redactor = self.redactor
        if redactor is None:
            return None
        secrets = {key: value for key, value in config.items() if self.facet.is_secret(entity, key)}
        if not secrets:
            return {}
        broker = entity.get(EntityType.BROKER)
        return await asyncio.to_thread(redactor.fingerprints, None if broker is None else int(broker), secrets)

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
    configs: ConfigReader
    """What is in force on its topics and brokers."""


class Clusters:
    """The clusters of this process by name."""

    def __init__(self, clusters: Mapping[str, Cluster]) -> None:
        self._clusters = dict(sorted(clusters.items()))

    def __iter__(self) -> Iterator[Cluster]:
        return iter(self._clusters.values())

    def find(self, name: str) -> Cluster | None:
        """Return a cluster, or None where this service has no such one."""
        return self._clusters.get(name)

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
