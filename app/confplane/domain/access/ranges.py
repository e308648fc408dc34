"""Sets of names as ranges of their spellings: a check is a search, and a list walks only the visible ranges.

A resource is spelled as an entity id is: ``user=alice``, ``tokens=User~3Aalice``, and a type alone for the default
entity and for resources without names: ``user``, ``cluster``. Spellings are ASCII, and sort as bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confplane.domain.access.operations import PatternType, ResourceType
from confplane.domain.entities import sanitize

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LAST: Final = "\x7f"
"""Behind every spelling: ids have ASCII letters, digits and ``~=,._-``."""


@dataclass(frozen=True, slots=True)
class NameRanges:
    """Disjoint ranges, ordered: each from its first spelling up to, but not including, its end."""

    starts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[tuple[str, str]]) -> NameRanges:
        """Return the union of ranges, given in any order."""
        starts: list[str] = []
        ends: list[str] = []
        for start, end in sorted(ranges):
            if ends and start <= ends[-1]:
                ends[-1] = max(ends[-1], end)
            elif start < end:
                starts.append(start)
                ends.append(end)
        return cls(tuple(starts), tuple(ends))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.starts, self.ends, strict=True)

    def __bool__(self) -> bool:
        return bool(self.starts)

    def __contains__(self, spelling: str) -> bool:
        place = bisect_right(self.starts, spelling)
        return place > 0 and spelling < self.ends[place - 1]

    def __or__(self, other: NameRanges) -> NameRanges:
        return NameRanges.of((*self, *other))

    def __and__(self, other: NameRanges) -> NameRanges:
        found: list[tuple[str, str]] = []
        theirs = list(other)
        place = 0
        for start, end in self:
            while place < len(theirs) and theirs[place][1] <= start:
                place += 1
            at = place
            while at < len(theirs) and theirs[at][0] < end:
                found.append((max(start, theirs[at][0]), min(end, theirs[at][1])))
                at += 1
        return NameRanges.of(found)

    def __sub__(self, other: NameRanges) -> NameRanges:
        return self & other.complement()

    def __le__(self, other: NameRanges) -> bool:
        """Return True where every spelling of these ranges is in the other ranges."""
        return all(
            (place := bisect_right(other.starts, start)) > 0 and end <= other.ends[place - 1] for start, end in self
        )

    def complement(self) -> NameRanges:
        """Return all other spellings."""
        found: list[tuple[str, str]] = []
        last = ""
        for start, end in self:
            found.append((last, start))
            last = end
        return NameRanges.of((*found, (last, LAST)))

    def between(self, low: str, high: str) -> Iterator[tuple[str, str]]:
        """Yield the parts of the ranges from one spelling up to, but not including, another; ordered."""
        place = max(bisect_right(self.starts, low) - 1, 0)
        while place < len(self.starts) and self.starts[place] < high:
            start, end = max(self.starts[place], low), min(self.ends[place], high)
            if start < end:
                yield start, end
            place += 1

    def within(self, prefix: str) -> NameRanges:
        """Return the part with a common prefix; ``""`` is the prefix of all."""
        return self & NameRanges((prefix,), (prefix + LAST,)) if prefix else self


EVERYTHING: Final = NameRanges(("",), (LAST,))
NOTHING: Final = NameRanges()


def spell(kind: ResourceType, name: str | None = None) -> str:
    """Return the spelling of one resource; None is the default entity, or a type without names."""
    return kind.value if name is None else f"{kind.value}={sanitize(name).replace('%', '~')}"


def named(kind: ResourceType, pattern: PatternType, name: str) -> tuple[str, str]:
    """Return the range of the names of a type that a pattern matches: never a default entity.

    A user's range has the pairs of the user and client-ids too.
    """
    if pattern is PatternType.PREFIXED:
        return spell(kind, name), spell(kind, name) + LAST
    if name == "*":
        return f"{kind.value}=", f"{kind.value}>"
    # Behind a name stands the comma of a pair, or nothing; of all letters of names only the comma is before "-".
    return spell(kind, name), f"{spell(kind, name)}-"


def whole(kind: ResourceType) -> tuple[str, str]:
    """Return the range of all resources of a type, defaults too."""
    return kind.value, f"{kind.value}>"
