"""Checks a trail of client and external writes against the metadata log: whose records are whose.

The values say who wrote them, and each value is written once. So a record of the log belongs to a client or is external,
and a row of the trail names the record that it stands for. Of each key the records of others come in runs between
records of this service. A run is in rows up to its last record; or the records behind those of its rows left the value
as the rows have it; or a caller's change replaced them; or, under ``enforce``, what put back the rows' records replaced them too, or
the key was never set here.

A value of others that was there when everything was looked at, while nothing was under way and changes of callers
waited, is in a row: nothing replaces it unseen.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from tests.kraft.outside.trail_check import Kind, meaning, meanings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from tests.kraft.outside.trail_check import Happening, Row

    Config = Mapping[str, str]
    Owner = Callable[[str, str, str | None], bool]

_IN_THE_TREE: Final = {"import", "change", "observed"}
"""The kinds of rows that are versions of their entities."""


@dataclass(slots=True)
class Shares:
    """The faults, in sentences, and the numbers of external records by what became of them."""

    faults: list[str] = field(default_factory=list)
    named: int = 0
    """Each is the last of some row."""
    merged: int = 0
    """In a row's run, in front of the one that the row names."""
    undone: int = 0
    """Writes that left the value as it was."""
    overwritten: int = 0
    """A caller's change replaced them before a poll, or what reverted earlier external records."""
    repeated: int = 0
    """A value without a known end was sent again over them."""
    left: int = 0
    """The key was never set here, and they are left alone."""
    shown: int = 0
    """Each was there when everything was polled."""
    ours: int = 0
    """Records of this service."""


def check_shared_trail(
    happenings: Iterable[Happening],
    rows: Iterable[Row],
    tree: Mapping[str, Config],
    *,
    keys: Mapping[str, Collection[str]],
    is_ours: Owner,
    enforced: bool,
    repeats: int = 0,
    shown: Collection[int] = (),
) -> Shares:
    """Check a trail and the tree at its end.

    Args:
        happenings: The log in its order, without topics that are made again.
        rows: The trail in its order; rows that are no versions at any place.
        tree: The configs of the znodes by entity; those without keys may be left out.
        keys: The keys that were written, by entity; other keys are not checked, and no row may alter them.
        is_ours: Says of an entity, a key and its value whether a caller wrote it; of None whether a caller removed it.
        enforced: External changes are reverted; otherwise they are followed.
        repeats: How often a value of a key may have been sent again since its end was not known.
        shown: Offsets at which everything was polled while nothing was under way.
    """
    happened: dict[tuple[str, str], list[Happening]] = {}
    for each in happenings:
        if each.of_key:
            happened.setdefault((each.entity, each.key), []).append(each)
    written: dict[str, list[Row]] = {}
    for row in rows:
        written.setdefault(row.entity, []).append(row)
    shares = Shares()
    for entity, chosen in sorted(keys.items()):
        of_entity = written.get(entity, [])
        _chain(entity, of_entity, tree.get(entity, {}), shares)
        strange = {key for row in of_entity if row.kind != "import" for key in row.changed_keys} - set(chosen)
        if strange:
            shares.faults.append(f"{entity}: nobody wrote {strange}, and rows have it")
        for key in chosen:
            one = _Key(entity, key, happened.get((entity, key), []), of_entity, is_ours, shares, enforced=enforced)
            one.check(tree.get(entity, {}).get(key), repeats=repeats, shown=shown)
    return shares


def _chain(entity: str, rows: Sequence[Row], tree: Config, shares: Shares) -> None:
    """Expect each version to begin as the one before it ended, and the tree to be as the last."""
    stored: Config = {}
    for row in rows:
        if row.kind not in _IN_THE_TREE:
            continue
        if meanings(row.before) != meanings(stored):
            shares.faults.append(f"{entity}: {row.name} begins with {row.before}, and {stored} was there")
        stored = row.after
    if meanings(stored) != meanings(tree):
        shares.faults.append(f"{entity}: the tree has {tree}, the last row {stored}")


def _value(text: str | None) -> object:
    return None if text is None else meaning(text)


class _Key:
    """One key of one entity: its records after the import, and the rows that altered it."""

    def __init__(
        self,
        entity: str,
        key: str,
        happened: Sequence[Happening],
        rows: Sequence[Row],
        is_ours: Owner,
        shares: Shares,
        *,
        enforced: bool,
    ) -> None:
        self._name, self._key, self._shares = f"{entity} {key}", key, shares
        imported = max((row.until for row in rows if row.kind == "import"), default=-1)
        first = [each for each in happened if each.offset <= imported]
        self._begin = _written(first[-1]) if first else None
        self._records = happened[len(first) :]
        self._values = [_written(each) for each in self._records]
        self._rows = [row for row in rows if key in row.changed_keys and row.kind != "import"]
        self._imported = any(key in row.after for row in rows if row.kind == "import")
        self._enforced, self._is_ours, self._entity = enforced, is_ours, entity
        # Nobody else writes a value twice: an imported one is put back.
        back = {self._begin} - {None} if enforced else set()
        self._ours = [
            is_ours(entity, key, _text(each)) or value in back
            for each, value in zip(self._records, self._values, strict=True)
        ]
        self._sent_before: set[object] = back

    def _fault(self, text: str, *, at: int = 1 << 62) -> None:
        """Note a fault, with the records up to an offset, and a few after it."""
        near = [
            (each.offset, "ours" if ours else "theirs", _text(each))
            for each, ours in zip(self._records, self._ours, strict=True)
        ]
        first = bisect_right(near, at, key=itemgetter(0))
        shown = near[max(0, first - 20) : first + 5]
        rows = [(each.name, each.revision, each.lower, each.until, each.after.get(self._key)) for each in self._rows]
        values = {_value(text) for _, _, text in shown}
        told = [each for each in rows if _value(each[-1]) in values]
        self._shares.faults.append(f"{self._name}: {text}; the records are {shown}, their rows {told}")

    def check(self, tree: str | None, *, repeats: int, shown: Collection[int]) -> None:
        """Add the key's findings."""
        changes = [row for row in self._rows if row.kind == "change"]
        self._committed = {_value(row.after.get(self._key)): row for row in changes}
        self._shares.ours += sum(self._ours)
        for each, value, ours in zip(self._records, self._values, self._ours, strict=True):
            if ours and value not in {*self._committed, *self._sent_before}:
                self._fault(f"{_text(each)} at {each.offset} was sent, and no change has it")
        named = self._named([row for row in self._rows if row.kind in {"observed", "put-back"}])
        if not self._enforced:
            self._in_order(named)
        # Nothing removes or replaces a key that was never set here.
        left = self._enforced and not self._imported and not changes
        self._runs(named.keys(), left=left, repeats=repeats)
        if not left:
            self._shown(named.keys(), shown)
        end = self._values[-1] if self._values else self._begin
        if end != _value(tree) and not left:
            self._fault(f"the tree has {tree}, the log ends with {end}")

    def _named(self, rows: Sequence[Row]) -> dict[int, Row]:
        """Return the records that are named by a row: by their places. The last that fits counts, from the last row on."""
        named: dict[int, Row] = {}
        behind = len(self._records)
        for row in sorted(rows, key=lambda row: row.until, reverse=True):
            theirs = row.after.get(self._key)
            if theirs is not None and self._is_ours(self._entity, self._key, theirs):
                self._fault(f"the row {row.name} of others has {theirs}, a caller's value")
                continue
            lower = -1 if row.lower is None else row.lower
            fitting = [
                at
                for at in range(behind)
                if not self._ours[at]
                and self._values[at] == _value(theirs)
                and lower < self._records[at].offset <= row.until
            ]
            if not fitting:
                self._fault(
                    f"the row {row.name} of {theirs} behind {row.lower} up to {row.until} has no record", at=row.until
                )
                continue
            behind = fitting[-1]
            named[behind] = row
        return named

    def _shown(self, named: Collection[int], offsets: Iterable[int]) -> None:
        """Expect a row of each external value that was there at some offset."""
        for offset in offsets:
            at = bisect_right(self._records, offset, key=lambda each: each.offset) - 1
            # A removal may have found nothing.
            if at < 0 or self._ours[at] or self._values[at] is None:
                continue
            self._shares.shown += 1
            if at not in named:
                self._fault(f"{self._values[at]} was there at {offset}, a look showed it, and no row has it", at=offset)

    def _in_order(self, named: Mapping[int, Row]) -> None:
        """Expect no older change over a followed value, and no followed value over a change that was never sent."""
        newest = -1
        for at, value in enumerate(self._values):
            row = named.get(at)
            if row is not None:
                newest = max(newest, row.revision or 0)
            change = self._committed.get(value) if self._ours[at] and value is not None else None
            if change is not None and (change.revision or 0) < newest:
                self._fault(f"{value} of the older {change.name} was sent behind the row of what others wrote later")
        sent = {value for value, ours in zip(self._values, self._ours, strict=True) if ours}
        places = {row.name: at for at, row in named.items()}
        for one, two in zip(self._rows, self._rows[1:], strict=False):
            value = _value(one.after.get(self._key))
            if (one.kind, two.kind) != ("change", "observed") or value is None or two.name not in places:
                continue
            if value not in sent or self._values.index(value) > places[two.name]:
                self._fault(f"{value} of {one.name} was never sent, and {two.name} replaced it")

    def _runs(self, named: Collection[int], *, left: bool, repeats: int) -> None:
        """Expect each run of external records to be in rows, undone, replaced by a caller, or left alone."""
        shares = self._shares
        # A removal says nothing of the change that it was sent for.
        removals = sum(row.kind == "change" and self._key not in row.after for row in self._rows)
        sent = set(self._sent_before)
        at, count = 0, len(self._records)
        while at < count:
            if self._ours[at]:
                sent.add(self._values[at])
                at += 1
                continue
            end = next((each for each in range(at, count) if self._ours[each]), count)
            places = [each for each in range(at, end) if each in named]
            behind = places[-1] + 1 if places else at
            before = self._values[behind - 1] if behind else self._begin
            rest = end - behind
            shares.named += len(places)
            shares.merged += behind - at - len(places)
            if not rest or self._values[end - 1] == before:
                shares.undone += rest
            elif end == count:
                if left:
                    shares.left += rest
                else:
                    self._fault(f"the records from {self._records[behind].offset} on are in no row")
            elif (self._enforced and places) or (self._values[end] is not None and self._values[end] not in sent):
                # Some were written between the poll whose row they follow and what reverted it.
                shares.overwritten += rest
            elif self._values[end] is None and removals:
                removals -= 1
                shares.overwritten += rest
            elif repeats:
                repeats -= 1
                shares.repeated += rest
            else:
                offset = self._records[behind].offset
                self._fault(f"the records from {offset} on were taken back without a row", at=offset)
            at = end


def _text(each: Happening) -> str | None:
    return None if each.kind is Kind.REMOVED else each.value


def _written(each: Happening) -> object:
    return _value(_text(each))
