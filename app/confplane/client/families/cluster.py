"""The service itself and its clusters: their state, definitions of configs, drift, and registrations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.client.core.calls import call, drop_none, id_of
from confplane.client.core.operations import Family, S, listing, operation
from confplane.client.core.pages import Paged

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from typing_extensions import Unpack

    from confplane.client.core.calls import (
        ApiCall,
        FreezeOptions,
        PageOptions,
        ReadOptions,
        UnkeyedWriteOptions,
        WriteOptions,
    )
    from confplane.client.types import (
        AdoptedDrift,
        ClearedRegistrations,
        ClusterDetails,
        ClusterList,
        ConfigDefinitions,
        DriftedEntity,
        DriftPage,
        FreezeState,
        Liveness,
        ReadinessReport,
        ReappliedDrift,
        RegistrationData,
        RegistrationPage,
        ResourceMetadata,
        WhoAmI,
    )
    from confplane.domain.entities import Entity


class Process(Family[S]):
    """The process that answers."""

    @operation
    def livez(self) -> ApiCall[Liveness]:
        """Check that the process is alive."""
        return call("GET", "/livez")

    @operation
    def readyz(self) -> ApiCall[ReadinessReport]:
        """Read the readiness of the process.

        Status 503 with such a report raises a ProblemError with the report as its body.
        """
        return call("GET", "/readyz", once=True)

    @operation
    def metrics(self) -> ApiCall[str]:
        """Read the metrics of the process in Prometheus' text format."""
        return call("GET", "/metrics", text=True)

    @operation
    def protected_resource(self) -> ApiCall[ResourceMetadata]:
        """Read the issuers of access tokens for this service (RFC 9728)."""
        return call("GET", "/.well-known/oauth-protected-resource")

    @operation
    def whoami(self) -> ApiCall[WhoAmI]:
        """Read the caller's principal, its groups, limits and grants."""
        return call("GET", "/v1/whoami")


class Clusters(Family[S]):
    """The client's cluster, and the list of all."""

    @operation
    def list(self) -> ApiCall[ClusterList]:
        """List the clusters that the caller may see."""
        return call("GET", "/v1/clusters")

    @operation
    def get(self, **fresh: Unpack[ReadOptions]) -> ApiCall[ClusterDetails]:
        """Read the state of the cluster."""
        return call("GET", self._base, fresh)

    @operation
    def freeze(self, reason: str, **terms: Unpack[FreezeOptions]) -> ApiCall[FreezeState]:
        """Refuse all changes until a thaw."""
        return call("POST", f"{self._base}:freeze", terms, json={"reason": reason}, keyed=True)

    @operation
    def thaw(self, reason: str, **terms: Unpack[FreezeOptions]) -> ApiCall[FreezeState]:
        """Allow changes again."""
        return call("POST", f"{self._base}:thaw", terms, json={"reason": reason}, keyed=True)


class ClusterConfigDefinitions(Family[S]):
    """The configs that Kafka knows."""

    @operation
    def list(
        self,
        *,
        entity_type: str | None = None,
        search: str | None = None,
        dynamic: bool | None = None,
        release: str | None = None,
    ) -> ApiCall[ConfigDefinitions]:
        """List definitions of configs.

        Args:
            entity_type: A kind of config, or an entity type for what may be set on it.
            search: Part of a name, case-insensitive.
            dynamic: Only configs that may (True) or may not (False) be changed while the cluster runs.
            release: A release of Kafka; None: the cluster's own, or the nearest one with definitions.
        """
        params = {
            "entityType": entity_type,
            "search": search,
            "dynamic": None if dynamic is None else str(dynamic).lower(),
            "release": release,
        }
        return call("GET", f"{self._base}/config-definitions", params=params)


class Drift(Family[S]):
    """Differences between a Kafka cluster without ZooKeeper and the values written through Confplane."""

    @listing
    def list(
        self, *, entity: Entity | str | None = None, **page: Unpack[PageOptions]
    ) -> Paged[DriftPage, DriftedEntity]:
        """List the entities whose values in the Kafka cluster differ, or only one of them."""
        params = {"entity": None if entity is None else id_of(entity)}
        return Paged(call("GET", f"{self._base}/drift", page, params=params))

    @operation
    def adopt(
        self, entities: Sequence[Entity | str], *, keys: Sequence[str] | None = None, **terms: Unpack[WriteOptions]
    ) -> ApiCall[AdoptedDrift]:
        """Adopt the values that entities have in the Kafka cluster.

        Args:
            entities: The entities.
            keys: Only these keys of each; None: all that differ.
            **terms: The terms of the write.
        """
        return call("POST", f"{self._base}/drift:adopt", terms, json=_chosen(entities, keys), keyed=True)

    @operation
    def reapply(
        self,
        entities: Sequence[Entity | str],
        *,
        keys: Sequence[str] | None = None,
        **terms: Unpack[UnkeyedWriteOptions],
    ) -> ApiCall[ReappliedDrift]:
        """Deliver refused and contested values to the Kafka cluster again; the arguments are those of :meth:`adopt`."""
        return call("POST", f"{self._base}/drift:reapply", terms, json=_chosen(entities, keys), repeatable=True)


def _chosen(entities: Sequence[Entity | str], keys: Sequence[str] | None) -> dict[str, Any]:
    named = drop_none(keys=None if keys is None else list(keys))
    return {"entities": [{"id": id_of(each), **named} for each in entities]}


class Registrations(Family[S]):
    """Software that requested client configs, and the configs that it supports."""

    @listing
    def list(
        self, *, entity: Entity | str | None = None, **page: Unpack[PageOptions]
    ) -> Paged[RegistrationPage, RegistrationData]:
        """List registrations, those of one entity or all."""
        filters = {"id": None if entity is None else id_of(entity)}
        return Paged(call("GET", f"{self._base}/registrations", page, params=filters))

    @operation
    def clear(self, entity: Entity | str | None, **terms: Unpack[UnkeyedWriteOptions]) -> ApiCall[ClearedRegistrations]:
        """Forget the registrations of an entity; None: of all entities."""
        params = {"all": "true"} if entity is None else {"id": id_of(entity)}
        return call("DELETE", f"{self._base}/registrations", terms, params=params, repeatable=True)
