"""Versions of one entity: those explained by changes of ours, and the gaps between them, which others wrote.

Pure functions. An entity's states are a chain of (czxid, version): the zxid that created its znode, and the count of
writes since. The trail explains the chain up to a state; what was seen later is reached from there by changes of ours,
each of which knows the version it was made on, and by gaps between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Content = dict[str, str | None]
"""A config without secrets: None is a value that is not told."""


@dataclass(frozen=True, slots=True)
class Point:
    """A state of an entity's znode."""

    present: bool
    czxid: int = 0
    """Of an absent one: that of the znode which was there last, 0 where there was none."""
    version: int = -1
    mzxid: int = 0
    """Of an absent one: a revision at which it was absent."""
    content: Content = field(default_factory=dict)

    def same(self, other: Point) -> bool:
        """Say whether both are one state."""
        if not self.present or not other.present:
            return self.present == other.present
        return (self.czxid, self.version) == (other.czxid, other.version)


ABSENT = Point(present=False)


@dataclass(frozen=True, slots=True)
class OwnWrite:
    """What a committed change of ours did to one entity."""

    revision: int
    time_ms: int
    began_ms: int
    """The time that its id holds."""
    version_read: int | None
    """None: it was made on an absent znode."""
    czxid: int | None
    """Of the znode that it was made on."""
    version: int | None
    """None: it removed the znode."""
    before: Content = field(default_factory=dict)
    after: Content = field(default_factory=dict)
    unseen: bool = False
    """Whether others had made that znode anew since one was read: ``before`` is of the one that was read."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Writes of others between two states that are known."""

    before: Point
    after: Point
    revision: int
    """Of the last write of the gap, or a later one at which its result still stood."""
    time_ms: int
    listed_ms: int
    """The time by which it is listed among all changes: before that of a change of ours which came after it."""

    @property
    def writes(self) -> int:
        """How many writes it certainly was: creations and deletions count as one each."""
        before, after = self.before, self.after
        if before.present and after.present and before.czxid == after.czxid:
            return after.version - before.version
        return before.present + (after.version + 1 if after.present else 0)


def explained(start: Point, own: Iterable[OwnWrite], end: Point) -> bool:
    """Say whether changes of ours alone lead from one state to another. No contents are needed."""
    at = start
    for write in sorted(own, key=lambda each: each.revision):
        base = _base(write)
        if start.mzxid < write.revision <= end.mzxid and not _passed(at, base):
            if not at.same(base):
                return False
            at = _result(write)
    return at.same(end)


def gaps(start: Point, own: Iterable[OwnWrite], end: Point, time_ms: int) -> list[Gap]:
    """Return the gaps that lead from one state to another, together with changes of ours.

    Args:
        start: The last state that the trail explains, its content known.
        own: Changes of ours after it.
        end: What was seen, its content known.
        time_ms: When the end was written.
    """
    steps: list[tuple[Point, Point, OwnWrite]] = []
    at = start
    for write in sorted(own, key=lambda each: each.revision):
        base = _base(write)
        if write.revision <= start.mzxid or write.revision > end.mzxid or _passed(at, base):
            continue
        at = _result(write)
        steps.append((base, at, write))
    # start, then what each change of ours saw and left, then the end: the gaps lie between left and seen.
    points = [start, *(point for base, result, _ in steps for point in (base, result)), end]
    times = [(write.revision - 1, write.time_ms, min(write.time_ms, write.began_ms) - 1) for _, _, write in steps]
    found = []
    for index, (revision, when, listed) in enumerate([*times, (end.mzxid, time_ms, time_ms)]):
        before, after = points[2 * index], points[2 * index + 1]
        if not before.same(after):
            found.append(Gap(before, after, revision, when, listed))
    return found


def changed_keys(before: Content, after: Content) -> list[str]:
    """Return the keys that differ for all that can be told."""
    return sorted(
        key
        for key in before.keys() | after.keys()
        if key not in before or key not in after or before[key] != after[key]
    )


def _base(write: OwnWrite) -> Point:
    if write.version_read is None:
        return replace(ABSENT, content=write.before)
    content = dict.fromkeys(write.before) if write.unseen else write.before
    return Point(present=True, czxid=write.czxid or 0, version=write.version_read, mzxid=0, content=content)


def _result(write: OwnWrite) -> Point:
    czxid = write.revision if write.version_read is None else write.czxid or 0
    if write.version is None:
        return Point(present=False, czxid=czxid, mzxid=write.revision)
    return Point(present=True, czxid=czxid, version=write.version, mzxid=write.revision, content=write.after)


def _passed(at: Point, base: Point) -> bool:
    """Say whether a change was made on a state that the chain has left behind: of a znode that is gone by now."""
    if not base.present:
        return False
    if not at.present:
        return base.czxid <= at.czxid
    return (base.czxid, base.version) < (at.czxid, at.version)
