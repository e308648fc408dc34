"""Checks a trail: the metadata log that it follows, record by record, against the rows and the final tree.

Each entity has its happenings in the order of the log, and its rows in the order of their commits. The rows are laid
over the happenings one after another: a row takes the next ones, its ``before`` is the state in front of the first, its
``after`` the state after the last, and all of them are within its bounds. A row that was read from the log counts
them exactly. Happenings between two rows are in no row; they may only be undone by each other, and where every single
write is promised there may be none. If no way of laying the rows satisfies all of this, the entity has a fault.

Values are compared by their meaning, since a describe answers another spelling than that of the log.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


class Kind(Enum):
    """The kinds of happenings."""

    SET = "set"
    REMOVED = "removed"
    MADE = "made"
    """A topic was made."""
    GONE = "gone"
    """A topic was removed, with its configs."""


@dataclass(frozen=True, slots=True)
class Happening:
    """One record of the metadata log about an entity that a znode can hold."""

    offset: int
    at_ms: int
    entity: str
    kind: Kind
    key: str = ""
    value: str = ""
    shown: bool = True
    """False for passwords and unknown keys, which no znode has."""

    @property
    def of_key(self) -> bool:
        """True where a key was set or removed."""
        return self.kind in {Kind.SET, Kind.REMOVED}


@dataclass(frozen=True, slots=True)
class Row:
    """One change of the trail about one entity: followed from the cluster, put back there, or made by a caller."""

    name: str
    entity: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    lower: int | None
    """The offset after which the writes were; also None for a change by a client."""
    until: int
    at_ms: int
    exact: bool
    writes: int
    kind: str = "observed"
    revision: int | None = None
    """None: no version of the entity."""

    @property
    def changed_keys(self) -> list[str]:
        """The keys with another meaning than before."""
        before, after = ({key: meaning(value) for key, value in config.items()} for config in (self.before, self.after))
        return sorted(key for key in {*before, *after} if before.get(key) != after.get(key))


@dataclass(slots=True)
class Findings:
    """The faults, in sentences, and the number of records by the rows that they are in."""

    faults: list[str] = field(default_factory=list)
    exact: int = 0
    """Records in rows that were read from the log."""
    seen: int = 0
    """Records in rows of polls."""
    undone: int = 0
    """Records in no row, undone between two polls."""


@dataclass(frozen=True, slots=True)
class _State:
    """The config of an entity at a moment; an empty config is the same for each topic of a name."""

    config: frozenset[tuple[str, object]] = frozenset()
    topic: int = 0


def meaning(value: str) -> object:
    """Return a value by its meaning: a number, or the trimmed parts of a list."""
    text = value.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    if text.lower() in {"true", "false"}:
        return text.lower()
    return tuple(part.strip() for part in text.split(","))


def meanings(config: Mapping[str, str]) -> frozenset[tuple[str, object]]:
    """Return a config by the meaning of its values."""
    return frozenset((key, meaning(value)) for key, value in config.items())


def check_trail(
    happenings: Iterable[Happening],
    rows: Iterable[Row],
    tree: Mapping[str, Mapping[str, str]],
    *,
    every_write_after: float = float("inf"),
) -> Findings:
    """Check a trail and the tree at its end.

    Args:
        happenings: The log in its order.
        rows: The trail in its order.
        tree: The configs of the znodes by entity; those without keys may be left out.
        every_write_after: The offset after which each record has to be in a row.
    """
    happened: dict[str, list[Happening]] = {}
    for each in happenings:
        happened.setdefault(each.entity, []).append(each)
    written: dict[str, list[Row]] = {}
    for row in rows:
        written.setdefault(row.entity, []).append(row)
    findings = Findings()
    for entity in sorted({*happened, *written, *tree}):
        _Entity(entity, happened.get(entity, []), every_write_after).check(
            written.get(entity, []), tree.get(entity, {}), findings
        )
    return findings


class _Entity:
    """The happenings of one entity.

    Args:
        name: Its id.
        happened: In the order of the log.
        strict: The offset after which each record has to be in a row.
    """

    def __init__(self, name: str, happened: Sequence[Happening], strict: float) -> None:
        self._name = name
        self._happened = happened
        self._offsets = [each.offset for each in happened]
        self._states = [_State()]
        self._owed = [0]
        """The number of records that have to be in a row, up to each."""
        config: dict[str, object] = {}
        topic = 0
        for each in happened:
            owed = each.offset > strict and (each.of_key or (each.kind is Kind.GONE and bool(config)))
            match each.kind:
                case Kind.SET if each.shown:
                    config[each.key] = meaning(each.value)
                case Kind.REMOVED:
                    config.pop(each.key, None)
                case Kind.GONE:
                    config = {}
                    topic += 1
            self._states.append(_State(frozenset(config.items()), topic) if config else _State())
            self._owed.append(self._owed[-1] + owed)

    def check(self, rows: Sequence[Row], tree: Mapping[str, str], findings: Findings) -> None:
        """Add the entity's findings."""
        faults = findings.faults
        for one, two in pairwise(rows):
            if dict(one.after) != dict(two.before):
                faults.append(f"{self._name}: {two.name} begins with {two.before}, {one.name} ended with {one.after}")
        if rows and dict(rows[-1].after) != dict(tree):
            faults.append(f"{self._name}: the tree has {tree}, the last row {rows[-1].after}")
        if self._states[-1].config != meanings(tree):
            faults.append(f"{self._name}: the tree has {tree}, the log ends with {sorted(self._states[-1].config)}")
        ends: list[dict[int, tuple[int, int]]] = []
        reached = {0}
        for row in rows:
            found = self._laid(row, reached)
            if not found:
                faults.append(f"{self._name}: {self._misfit(row, reached)}")
                return
            ends.append(found)
            reached = set(found)
        last = [at for at in reached if self._undone(at, len(self._happened))]
        if not last:
            at = max(reached)
            faults.append(f"{self._name}: in no row are the records {self._offsets[at:][:20]}, behind its last row")
            return
        self._count(rows, ends, max(last), findings)

    def _laid(self, row: Row, reached: set[int]) -> dict[int, tuple[int, int]]:
        """Return the ends that a row may have; for each the end of the row before it, and its own begin."""
        found: dict[int, tuple[int, int]] = {}
        low = 0 if row.lower is None else bisect_right(self._offsets, row.lower)
        while low > 0 and self._happened[low - 1].kind is Kind.MADE:
            low -= 1
        high = bisect_right(self._offsets, row.until)
        before, after = meanings(row.before), meanings(row.after)
        for begin in range(low, high):
            if self._states[begin].config != before:
                continue
            from_ = next((at for at in sorted(reached, reverse=True) if self._undone(at, begin)), None)
            if from_ is None:
                continue
            for end in range(high if row.exact else begin + 1, high + 1):
                if self._states[end].config == after and self._holds(row, begin, end):
                    found[end] = from_, begin
        return found

    def _undone(self, begin: int, end: int) -> bool:
        """Say whether the records between two places may be in no row."""
        return (
            begin <= end
            and self._owed[begin] == self._owed[end]
            and (begin == end or self._states[begin] == self._states[end])
        )

    def _holds(self, row: Row, begin: int, end: int) -> bool:
        """Say whether a row may stand for some records."""
        held = [each for each in self._happened[begin:end] if each.kind is not Kind.MADE]
        if len(held) < row.writes:
            return False
        if (
            any(each.kind is Kind.GONE for each in held[:-1])
            and self._states[begin].config
            and self._states[end].config
        ):
            return False  # Of several topics of a name, only their end has one row.
        if not row.exact:
            return True
        first, last = held[0], held[-1]
        return (
            (row.lower, row.until, row.at_ms, row.writes) == (first.offset - 1, last.offset, last.at_ms, len(held))
            and self._happened[end - 1] is last
            and (len(held) == 1 or all(each.of_key for each in held))
        )

    def _misfit(self, row: Row, reached: set[int]) -> str:
        behind = self._happened[min(reached) :][:20]
        return (
            f"{row.name} ({'exact' if row.exact else 'seen'}, {row.writes} behind {row.lower} up to {row.until}, at"
            f" {row.at_ms}) from {row.before} to {row.after} is not in the log, whose next records are"
            f" {[(each.offset, each.at_ms, each.kind.value, each.key, each.value) for each in behind]}"
        )

    def _count(self, rows: Sequence[Row], ends: Sequence[dict[int, tuple[int, int]]], at: int, to: Findings) -> None:
        to.undone += self._keys(at, len(self._happened))
        for row, found in zip(reversed(rows), reversed(ends), strict=True):
            before, begin = found[at]
            held = self._keys(begin, at)
            if row.exact:
                to.exact += held
            else:
                to.seen += held
            to.undone += self._keys(before, begin)
            at = before

    def _keys(self, begin: int, end: int) -> int:
        return sum(each.of_key for each in self._happened[begin:end])
