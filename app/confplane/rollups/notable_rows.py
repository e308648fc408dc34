"""The most notable rows of a rollup: the largest and the most unusual of any number of rows, found in one pass."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.rollups import ROLLUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_KINDS: Final = {kind: place for place, kind in enumerate(ROLLUPS["integrity"].kinds)}


@dataclass(frozen=True, slots=True)
class _Order:
    """The order of a rollup's rows by their significance.

    Attributes:
        weight: Row -> numbers, larger for more notable rows.
        description: The order, in words.
        group: The column whose values have different units. Each value gets its share of the rows.
    """

    weight: Callable[[Mapping[str, Any]], tuple[float, ...]]
    description: str
    group: str | None = None


_ORDERS: Final[dict[str, _Order]] = {
    "activity": _Order(
        lambda row: (row["rejected_keys"] + row["open_keys"] + row["reverted_keys"], row["committed_keys"]),
        "with the most keys that were refused, are open or were set back",
    ),
    "compare": _Order(
        lambda row: (row["same_effective"] is not True, row["kind"] != "differs"),
        "that differ in effect before those that do not",
    ),
    "compatibility": _Order(lambda row: (-len(row["common_configs"]),), "that support the fewest configs"),
    "drift": _Order(
        lambda row: (row["rank"] > 1, row["total"] - row["entities"]), "with the rarest values of the most entities"
    ),
    "impact": _Order(lambda row: (row["affected"], row["overridden"]), "whose change the most would see"),
    "integrity": _Order(
        lambda row: (not row["pending"], -_KINDS.get(row["kind"], 0)), "that will not go away, the worst kinds first"
    ),
    "quotas": _Order(
        lambda row: (not row["entity_id"], row["unreadable"], _or_less(row["value"])),
        "of all clients, those that can't be read, and the largest quotas",
        "config_key",
    ),
    "usage": _Order(
        lambda row: (not row["budget"], _or_less(row["throttled_share"]), row["peak"]),
        "of all clients, and those throttled most",
        "config_key",
    ),
}


def _or_less(value: float | None) -> float:
    return -1.0 if value is None else value


class NotableRows:
    """Keeps the most notable rows of a rollup.

    Args:
        name: The rollup.
        most: The number of rows to keep.
    """

    def __init__(self, name: str, most: int) -> None:
        self._order = _ORDERS[name]
        self._most = most
        self._heaps: dict[str, list[tuple[tuple[float, ...], int, Mapping[str, Any]]]] = {}
        self._seen = 0

    @property
    def description(self) -> str:
        """The order of the rows, in words that follow "rows"."""
        return self._order.description

    def passing(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield all rows, and keep the most notable ones."""
        for row in rows:
            self._seen += 1
            group = "" if self._order.group is None else row[self._order.group]
            heap = self._heaps.setdefault(group, [])
            # Of equally notable rows, the first ones are kept.
            entry = (self._order.weight(row), -self._seen, row)
            if len(heap) < self._most:
                heapq.heappush(heap, entry)
            elif entry[:2] > heap[0][:2]:
                heapq.heapreplace(heap, entry)
            yield row

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Return the kept rows group by group, the most notable row of each group first."""
        each = max(1, self._most // max(1, len(self._heaps)))
        found = [heapq.nlargest(each, heap) for _, heap in sorted(self._heaps.items())]
        return [row for heap in found for _, _, row in heap]
