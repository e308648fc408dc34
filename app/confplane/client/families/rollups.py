"""Results of rollups, by page and filtered by any column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confplane.client.core.calls import PageOptions, call
from confplane.client.core.operations import Family, S, listing, operation
from confplane.client.core.pages import Paged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from confplane.client.core.calls import ApiCall
    from confplane.client.types import (
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


class RollupReadOptions(PageOptions, total=False):
    """Options of a read of a rollup's rows."""

    if_none_match: str
    """``etag`` of an earlier list: no row is read while its run is still the latest."""
    filter: str
    """Conditions other than equality, such as ``"affected >= 10, value is null"``."""
    order_by: str
    """Columns by which the rows are ordered, such as ``"affected desc"``."""


class Rollups(Family[S]):
    """The latest complete run of each rollup; ``where`` has values of columns, and selects rows with all of them.

    Columns are named as in JSON (``configKey``) or as in the lake (``config_key``).
    """

    @operation
    def list(self) -> ApiCall[RollupList]:
        """List the rollups with their last runs."""
        return call("GET", f"{self._base}/rollups")

    @listing
    def compatibility(
        self, where: Where | None = None, **reading: Unpack[RollupReadOptions]
    ) -> Paged[CompatibilityRollup, CompatibilityRow]:
        """List which software supports which configs."""
        return Paged(self._page("compatibility", where, reading))

    @listing
    def drift(self, where: Where | None = None, **reading: Unpack[RollupReadOptions]) -> Paged[DriftRollup, DriftRow]:
        """List the values in which brokers and topics differ from most."""
        return Paged(self._page("drift", where, reading))

    @listing
    def impact(
        self, where: Where | None = None, **reading: Unpack[RollupReadOptions]
    ) -> Paged[ImpactRollup, ImpactRow]:
        """List the entities that a changed default would affect."""
        return Paged(self._page("impact", where, reading))

    @listing
    def quotas(
        self, where: Where | None = None, **reading: Unpack[RollupReadOptions]
    ) -> Paged[QuotasRollup, QuotasRow]:
        """List the totals of all quotas."""
        return Paged(self._page("quotas", where, reading))

    @listing
    def activity(
        self, where: Where | None = None, **reading: Unpack[RollupReadOptions]
    ) -> Paged[ActivityRollup, ActivityRow]:
        """List who changed how much on which day."""
        return Paged(self._page("activity", where, reading))

    @listing
    def integrity(
        self, where: Where | None = None, **reading: Unpack[RollupReadOptions]
    ) -> Paged[IntegrityRollup, IntegrityRow]:
        """List the places where the trail and ZooKeeper differ."""
        return Paged(self._page("integrity", where, reading))

    @listing
    def compare(
        self, where: Where | None = None, **reading: Unpack[RollupReadOptions]
    ) -> Paged[CompareRollup, CompareRow]:
        """List the keys in which two clusters differ, or one cluster from its past."""
        return Paged(self._page("compare", where, reading))

    @listing
    def usage(self, where: Where | None = None, **reading: Unpack[RollupReadOptions]) -> Paged[UsageRollup, UsageRow]:
        """List the usage of clients next to their quotas, with suggested quotas."""
        return Paged(self._page("usage", where, reading))

    def _page(self, name: str, where: Where | None, reading: RollupReadOptions) -> ApiCall[Any]:
        columns = {_member(column): _text(value) for column, value in (where or {}).items()}
        return call("GET", f"{self._base}/rollups/{name}", reading, params=columns)


def _member(column: str) -> str:
    first, *rest = column.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
