"""The cells of a listed row: values in readable form, with links to their entity in the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from confplane.rollups.units import LEVELS, amount, error_name, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_AMOUNTS: Final = frozenset({"value", "quota", "capacity", "mean", "p95", "peak", "proposed"})
_SHARES: Final = frozenset({"share", "throttled_share"})
_PLAIN: Final = "=,~"
"""Signs of entity ids that need no escape in a path."""

_PLACES: Final[dict[tuple[str, str], str]] = {
    ("compare", "entity_id"): "audit?entity={value}",
    ("compatibility", "entity_id"): "client-configs/{value}/effective",
    ("impact", "default_id"): "{facet}/{value}",
    ("integrity", "entity_id"): "audit?entity={value}",
    ("integrity", "change_id"): "audit/{value}",
    ("quotas", "entity_id"): "client-quotas/{value}/effective",
    ("quotas", "source"): "client-quotas/{value}",
    ("usage", "budget"): "client-quotas/{value}/effective",
    ("usage", "source"): "client-quotas/{value}",
}
"""(rollup, column) -> the path below a cluster's address that describes the value."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell; an absent value is a hyphen."""

    text: str
    is_number: bool = False
    is_absent: bool = False
    link: str = ""


@dataclass(frozen=True, slots=True)
class Links:
    """The addresses of a cluster in the API.

    Attributes:
        base: The service's address, such as ``https://confplane.example.com``; None for no links.
        cluster: The cluster's name.
    """

    base: str | None
    cluster: str

    def to(self, place: str) -> str:
        """Return the address of a path of the cluster, or an empty text."""
        if self.base is None:
            return ""
        return f"{self.base.rstrip('/')}/v1/clusters/{quote(self.cluster, safe='')}/{place}"

    def of(self, rollup: str, column: str, row: Mapping[str, Any]) -> str:
        """Return the address that describes a value of a row, or an empty text."""
        place = _PLACES.get((rollup, column))
        if place is None or not row[column]:
            return ""
        return self.to(place.format(value=quote(row[column], safe=_PLAIN), facet=row.get("facet")))


def cells(rollup: str, row: Mapping[str, Any], links: Links) -> Sequence[Cell]:
    """Return the cells of a row, in the order of its columns."""
    return [_cell(rollup, column, row, links) for column in row]


def _cell(rollup: str, column: str, row: Mapping[str, Any], links: Links) -> Cell:
    value = row[column]
    if value is None:
        return Cell("-", is_absent=True)
    form = _form(column, row)
    if form is not None and not isinstance(value, str):
        return Cell(form(value), is_number=column not in {"level", "error_code"})
    if isinstance(value, list):
        return Cell(" ".join(value))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Cell(f"{value:,.6g}" if isinstance(value, float) else str(value), is_number=True)
    return Cell(str(value), link=links.of(rollup, column, row))


def _form(column: str, row: Mapping[str, Any]) -> Callable[[Any], str] | None:
    """Return the format of a column's numbers, if it has its own."""
    if column in _AMOUNTS:
        return lambda value: amount(row["config_key"], value)
    if column in _SHARES:
        return percent
    return {"level": lambda value: LEVELS.get(value, str(value)), "error_code": error_name}.get(column)
