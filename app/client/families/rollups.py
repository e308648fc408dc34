"""Results of rollups, by page and filtered by any column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from app.client.core.calls import call
from app.client.core.operations import Family, S, listing, operation
from app.client.core.pages import Paged
from app.client.families.resources import page_params

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app.client.core.calls import Call
    from app.client.types import (
        ActivityRollup,
        ActivityRow,
        CompareRollup,
        CompareRow,
        CompatibilityRollup,
        CompatibilityRow,
        DriftRollup,
        DriftRow,
        ImpactRollup,
        ImpactRow,
        IntegrityRollup,
        IntegrityRow,
        QuotasRollup,
        QuotasRow,
        RollupList,
        UsageRollup,
        UsageRow,
    )

    Where = Mapping[str, str | int | float | bool]


class Rollups(Family[S]):
    """The latest complete run of each rollup; ``where`` has values of columns, all of which a row has to have."""

    @operation
    def list(self) -> Call[RollupList]:
        """List the rollups with their last runs."""
        return call("GET", f"{self._base}/rollups")

    @listing
    def compatibility(
        self, where: Where | None = None, *, page_size: int | None = None, page_token: str | None = None
    ) -> Paged[CompatibilityRollup, CompatibilityRow]:
        """List which software supports which configs."""
        return Paged(self._page("compatibility", where, page_size, page_token))

    @listing
    def drift(
        self, where: Where | None = None, *, page_size: int | None = None, page_token: str | None = None
    ) -> Paged[DriftRollup, DriftRow]:
        """List the values in which brokers and topics differ from most."""
        return Paged(self._page("drift", where, page_size, page_token))

    @listing
    def impact(
        self, where: Where | None = None, *, page_size: int | None = None, page_token: str | None = None
    ) -> Paged[ImpactRollup, ImpactRow]:
        """List who would see a changed default."""
        return Paged(self._page("impact", where, page_size, page_token))

    @listing
    def quotas(
        self, where: Where | None = None, *, page_size: int | None = None, page_token: str | None = None
    ) -> Paged[QuotasRollup, QuotasRow]:
        """List what all quotas come to."""
        return Paged(self._page("quotas", where, page_size, page_token))

    @listing
    def activity(
        self, where: Where | None = None, *, page_size: int | None = None, page_token: str | None = None
    ) -> Paged[ActivityRollup, ActivityRow]:
        """List who changed how much on which day."""
        return Paged(self._page("activity", where, page_size, page_token))

    @listing
    def integrity(
        self, where: Where | None = None, *, page_size: int | None = None, page_token: str | None = None
    ) -> Paged[IntegrityRollup, IntegrityRow]:
        """List the places where the trail and ZooKeeper differ."""
        return Paged(self._page("integrity", where, page_size, page_token))

    @listing
    def compare(
        self, where: Where | None = None, *, page_size: int | None = None, page_token: str | None = None
    ) -> Paged[CompareRollup, CompareRow]:
        """List the keys in which two clusters differ, or one cluster from its past."""
        return Paged(self._page("compare", where, page_size, page_token))

    @listing
    def usage(
        self, where: Where | None = None, *, page_size: int | None = None, page_token: str | None = None
    ) -> Paged[UsageRollup, UsageRow]:
        """List what clients used beside their quotas, with quotas to consider."""
        return Paged(self._page("usage", where, page_size, page_token))

    def _page(self, name: str, where: Where | None, page_size: int | None, page_token: str | None) -> Call[Any]:
        columns = {column: _text(value) for column, value in (where or {}).items()}
        return call("GET", f"{self._base}/rollups/{name}", params={**columns, **page_params(page_size, page_token)})


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
