"""The cells of a listed row: values in readable form, with links to their entity in the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from confplane.domain.errors import KafkaCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


LEVELS: Final = {
    1: "user with client-id",
    2: "user with any client-id",
    3: "user",
    4: "any user with client-id",
    5: "any user with any client-id",
    6: "any user",
    7: "client-id",
    8: "any client-id",
}
"""The level of a quota's entry, as numbered in KIP-55 -> the clients to which the entry applies."""

_BYTE_RATES: Final = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")
_THOUSAND: Final = 1_000
_UNITS: Final = {
    "request_percentage": "% of a thread",
    "controller_mutation_rate": "partitions/s",
}


def amount(config_key: str, value: float) -> str:
    """Return a quota, or the use of it, with its unit; prefixes are decimal: a MB has 1,000,000 bytes."""
    if not config_key.endswith("_byte_rate"):
        return f"{number(value)} {_UNITS.get(config_key, '')}".rstrip()
    unit = 0
    while abs(value) >= _THOUSAND and unit < len(_BYTE_RATES) - 1:
        value, unit = value / _THOUSAND, unit + 1
    return f"{number(value)} {_BYTE_RATES[unit]}"


def percent(share: float) -> str:
    """Return a fraction in percent."""
    return f"{number(100 * share)} %"


def number(value: float) -> str:
    """Return a number with its significant digits."""
    if value == 0:
        return "0"
    if abs(value) < 1:
        return f"{value:.2g}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2  # noqa: PLR2004 - three digits in all
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, or the code if this service never returns it."""
    try:
        return KafkaCode(code).name
    except ValueError:
        return str(code)


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
