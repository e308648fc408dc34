"""Client quotas and client configs: the resources, KIP-546's and KIP-649's requests, and reports of running clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from confplane.client.core.calls import call, drop_none, path_of, segment
from confplane.client.core.operations import Family, S, operation
from confplane.client.families.bodies import Change, ClientChange, client_entry, entry
from confplane.client.families.resources import FacetResources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from confplane.client.core.calls import ApiCall, ReadOptions, WriteOptions
    from confplane.client.types import (  # noqa: F401 - bases of classes name some of them as texts
        AlteredClients,
        AlteredConfigs,
        AlteredQuotas,
        AppliedConfigs,
        AppliedStatus,
        ClientConfigsList,
        ClientConfigsResource,
        ClientInformation,
        ClientQuotasList,
        ClientQuotasResource,
        ConfigFilterComponent,
        DescribedConfigs,
        DescribedQuotas,
        EffectiveClientConfigs,
        EffectiveClientQuotas,
        QuotaFilterComponent,
        TakenReport,
    )
    from confplane.domain.entities import Entity


class ClientQuotas(FacetResources[S, float, "ClientQuotasList", "ClientQuotasResource", "EffectiveClientQuotas"]):
    """Quotas of users, client-ids and addresses."""

    facet: ClassVar[str] = "client-quotas"
    member: ClassVar[str] = "quotas"

    @operation
    def describe(
        self,
        components: Sequence[QuotaFilterComponent] = (),
        *,
        strict: bool = False,
        **fresh: Unpack[ReadOptions],
    ) -> ApiCall[DescribedQuotas]:
        """Describe quotas by a filter (DescribeClientQuotas); ``strict``: only entities with exactly its types."""
        body = {"components": list(components), "strict": strict}
        return call("POST", f"{self._base}/client-quotas:describe", fresh, json=body, reads=True)

    @operation
    def alter(
        self,
        changes: Sequence[Change[float]],
        *,
        atomic: bool = False,
        **terms: Unpack[WriteOptions],
    ) -> ApiCall[AlteredQuotas]:
        """Alter quotas of entities (AlterClientQuotas).

        Args:
            changes: The entities with their new values.
            atomic: All in one change, or nothing.
            **terms: The terms of the write.
        """
        body = {"entries": [entry(change) for change in changes], "atomic": atomic}
        return call("POST", f"{self._base}/client-quotas:alter", terms, json=body, keyed=True)


class ClientConfigs(FacetResources[S, str, "ClientConfigsList", "ClientConfigsResource", "EffectiveClientConfigs"]):
    """Dynamic configs of clients, by user and client-id."""

    facet: ClassVar[str] = "client-configs"
    member: ClassVar[str] = "configs"

    @operation
    def describe(
        self,
        components: Sequence[ConfigFilterComponent] = (),
        *,
        strict: bool = False,
        resolve_entity: bool = False,
        supported_configs: Sequence[str] | None = None,
        client_information: ClientInformation | None = None,
        **fresh: Unpack[ReadOptions],
    ) -> ApiCall[DescribedConfigs]:
        """Describe client configs by a filter (DescribeClientConfigs).

        Args:
            components: The filter.
            strict: Only entities with exactly the types of the filter.
            resolve_entity: Return one entry: the configs effective for the client that the filter names.
            supported_configs: Register that the client supports these configs.
            client_information: Register this software.
            **fresh: How new the state must be.
        """
        body = {
            "components": list(components),
            "strict": strict,
            "resolveEntity": resolve_entity,
            **drop_none(
                supportedConfigs=None if supported_configs is None else list(supported_configs),
                clientInformation=client_information,
            ),
        }
        return call("POST", f"{self._base}/client-configs:describe", fresh, json=body, reads=True)

    @operation
    def alter(
        self, changes: Sequence[Change[str]], *, atomic: bool = False, **terms: Unpack[WriteOptions]
    ) -> ApiCall[AlteredConfigs]:
        """Alter client configs of entities (AlterClientConfigs).

        Args:
            changes: The entities with their new values.
            atomic: All in one change, or nothing.
            **terms: The terms of the write.
        """
        body = {"entries": [entry(change) for change in changes], "atomic": atomic}
        return call("POST", f"{self._base}/client-configs:alter", terms, json=body, keyed=True)

    @operation
    def report(self, entity: Entity | str, instance: str, applied: AppliedConfigs) -> ApiCall[TakenReport]:
        """Report the configs that a running client has applied; ``instance`` is the client's name for itself."""
        path = f"{self._base}/client-configs/{path_of(entity)}/instances/{segment(instance)}"
        return call("PUT", path, json=applied, repeatable=True)

    @operation
    def status(self, entity: Entity | str, **fresh: Unpack[ReadOptions]) -> ApiCall[AppliedStatus]:
        """Count the reports of an entity's clients by revision and software."""
        return call("GET", f"{self._base}/client-configs/{path_of(entity)}/status", fresh)


class Clients(Family[S]):
    """Both facets of users and client-ids."""

    @operation
    def alter(
        self, changes: Sequence[ClientChange], *, atomic: bool = False, **terms: Unpack[WriteOptions]
    ) -> ApiCall[AlteredClients]:
        """Alter quotas and client configs, those of an entity in one change.

        Args:
            changes: The entities with their new values.
            atomic: All in one change, or nothing.
            **terms: The terms of the write.
        """
        body = {"entries": [client_entry(change) for change in changes], "atomic": atomic}
        return call("POST", f"{self._base}/clients:alter", terms, json=body, keyed=True)
