"""Versions of one entity: those explained by changes of this service, and the gaps between them: external writes.

Pure functions. An entity's states are a chain of (czxid, version): the zxid that created its znode, and the count of
writes since. The trail explains the chain up to a state. Changes of this service, each with the version that it was
based on, and the gaps between them lead from that state to a state seen later.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from confplane.domain.ownership import NO_OWNERS, Ownership

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from confplane.domain.ownership import OwnershipClaim

Content = dict[str, str | None]
"""A config without secrets: None is a hidden value."""


@dataclass(frozen=True, slots=True)
class Point:
    """A state of an entity's znode."""

    present: bool
    czxid: int = 0
    """The zxid of the znode's creation; of an absent entity that of its last znode, 0 if there was none."""
    version: int = -1
    mzxid: int = 0
    """The zxid of the last write; of an absent entity a revision at which it was absent."""
    content: Content = field(default_factory=dict)
    ownership: Ownership = field(default=NO_OWNERS, compare=False)
    """The owners of the keys; of a state that the trail explains only."""

    def same(self, other: Point) -> bool:
        """Return True if both are the same state, whatever their contents."""
        if not self.present or not other.present:
            return self.present == other.present
        return (self.czxid, self.version) == (other.czxid, other.version)


ABSENT = Point(present=False)


@dataclass(frozen=True, slots=True)
class OwnWrite:
    """The write of a committed change of this service to one entity."""

    revision: int
    time_ms: int
    began_ms: int
    """The time in the change's id."""
    version_read: int | None
    """The version that the change was made on; None for an absent znode."""
    czxid: int | None
    """The czxid of the znode that the change was made on."""
    version: int | None
    """The version that the change left; None for a removal."""
    before: Content = field(default_factory=dict)
    after: Content = field(default_factory=dict)
    unseen: bool = False
    """True if the znode was recreated externally since the read: ``before`` is the content of the earlier node."""
    claim: OwnershipClaim | None = None
    """The keys that the change gave to an owner."""


@dataclass(frozen=True, slots=True)
class Gap:
    """External writes between two known states."""

    before: Point
    after: Point
    revision: int
    """The revision of the last write of the gap, or a later one at which its result still stood."""
    time_ms: int
    listed_ms: int
    """The time of its place among all changes: before that of a later change of this service."""

    @property
    def writes(self) -> int:
        """The least number of writes in the gap: creations and deletions count as one each."""
        before, after = self.before, self.after
        if before.present and after.present and before.czxid == after.czxid:
            return after.version - before.version
        return before.present + (after.version + 1 if after.present else 0)


def explained(start: Point, own: Iterable[OwnWrite], end: Point) -> bool:
    """Return True if only changes of this service lead from one state to another. No contents are needed."""
    at = start
    for write in sorted(own, key=lambda each: each.revision):
        base = _base(write)
        if start.mzxid < write.revision <= end.mzxid and not _passed(at, base):
            if not at.same(base):
                return False
            at = _result(write)
    return at.same(end)


def gaps(start: Point, own: Iterable[OwnWrite], end: Point, time_ms: int) -> list[Gap]:
    """Return the gaps between changes of this service, from one state to another.

    Args:
        start: The last state that the trail explains, its content known.
        own: Changes of this service after it.
        end: The state seen, its content known.
        time_ms: The time of the end's write.
    """
    steps: list[tuple[Point, Point, OwnWrite]] = []
    at = start
    for write in sorted(own, key=lambda each: each.revision):
        base = _base(write)
        if write.revision <= start.mzxid or write.revision > end.mzxid or _passed(at, base):
            continue
        at = _result(write)
        steps.append((base, at, write))
    # The start, then the states that each change of ours saw and left, then the end: gaps lie between left and seen.
    points = [start, *(point for base, result, _ in steps for point in (base, result)), end]
    times = [(write.revision - 1, write.time_ms, min(write.time_ms, write.began_ms) - 1) for _, _, write in steps]
    found = []
    for index, (revision, when, listed) in enumerate([*times, (end.mzxid, time_ms, time_ms)]):
        before, after = points[2 * index], points[2 * index + 1]
        if not before.same(after):
            found.append(Gap(before, after, revision, when, listed))
    return found


def ownership_after(start: Point, own: Iterable[OwnWrite], end: Point) -> Ownership:
    """Return the owners of the keys of a state: changes claim keys, and a key that was removed has no owner any more.

    Args:
        start: The last state that the trail explains.
        own: Changes of this service after it, with the contents that they left.
        end: The state seen, its content known.
    """
    at = state_after(start, [write for write in own if write.revision <= end.mzxid])
    return _left_by_external(at.ownership, at, end)


def state_after(start: Point, own: Iterable[OwnWrite]) -> Point:
    """Return the state that the last change of this service left, with the owners of its keys.

    Args:
        start: The last state that the trail explains.
        own: Changes of this service after it, with the contents that they left.
    """
    at = start
    for write in sorted(own, key=lambda each: each.revision):
        base = _base(write)
        if write.revision > start.mzxid and not _passed(at, base):
            result = _result(write)
            ownership = _left_by_external(at.ownership, at, base).keeping(result.content)
            at = replace(result, ownership=ownership if write.claim is None else ownership.claimed(write.claim))
    return at


def _left_by_external(ownership: Ownership, before: Point, after: Point) -> Ownership:
    if before.same(after):
        return ownership
    recreated = not (before.present and after.present) or before.czxid != after.czxid
    return NO_OWNERS if recreated else ownership.keeping(after.content)


@dataclass(frozen=True, slots=True)
class OwnershipStep:
    """The part of a change that decides the owners of an entity's keys."""

    keys: Collection[str]
    """The keys that the change left."""
    recreated: bool
    """True if the znode was deleted and created again externally."""
    claim: OwnershipClaim | None


def ownership_after_all(steps: Iterable[OwnershipStep]) -> Ownership:
    """Return the owners of the keys of an entity after all of its changes, in their order."""
    ownership = NO_OWNERS
    for step in steps:
        ownership = NO_OWNERS if step.recreated else ownership.keeping(step.keys)
        if step.claim is not None:
            ownership = ownership.claimed(step.claim)
    return ownership


def changed_keys(before: Content, after: Content) -> list[str]:
    """Return the keys that differ, as far as values are known."""
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
    """Return True for a change on an earlier state of the chain: on a znode that has been deleted since."""
    if not base.present:
        return False
    if not at.present:
        return base.czxid <= at.czxid
    return (base.czxid, base.version) < (at.czxid, at.version)
