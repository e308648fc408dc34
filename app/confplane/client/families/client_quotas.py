"""Client quotas: the resources, and KIP-546's requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from confplane.client.core.calls import call
from confplane.client.core.operations import S, operation
from confplane.client.families.bodies import Change, entry
from confplane.client.families.resources import FacetResources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from confplane.client.core.calls import ApiCall, ReadOptions, WriteOptions
    from confplane.client.types import (  # noqa: F401 - bases of classes name some of them as texts
        AlteredQuotas,
        ClientQuotasList,
        ClientQuotasResource,
        DescribedQuotas,
        EffectiveClientQuotas,
        QuotaFilterComponent,
    )


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
