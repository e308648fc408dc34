"""The contents that a revert expects, compared with each node as read, so that no external write is lost unseen.

A key that already has its wanted value is left as it is, regardless of who set it. Any other key must have the value
that the reverted changes left, and no unreverted later change. A later change that a still later one reverts does not
count, and neither does the one that reverts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confplane.domain.changes import difference, stored
from confplane.domain.errors import ConflictingChange, RevertConflictError
from confplane.domain.texts import clipped
from confplane.services.reverts.parts import UnknownValue

if TYPE_CHECKING:
    from collections.abc import Collection as Ids
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.domain.facets import JsonValue
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.history import SubsequentChange
    from confplane.services.reverts.parts import Span, Value

_LISTED: Final = 100
"""Later changes that a refusal lists."""
_NAMED: Final = 3
"""Later changes that its text names."""


@dataclass(frozen=True, slots=True)
class ExpectedKey:
    """One key that a revert restores."""

    wanted: Value
    """The value before the reverted changes."""
    left: Value
    """The value that they left."""
    later: tuple[ConflictingChange, ...]
    """The later changes of the key, the latest first."""
    unreverted: tuple[ConflictingChange, ...]
    """The later changes that no still later change reverts."""

    @classmethod
    def of(cls, key: str, span: Span, later: Sequence[SubsequentChange], reverted: Ids[UUID]) -> ExpectedKey:
        """Make one of the changes of an entity after the first reverted change.

        Args:
            key: The key.
            span: Its values.
            later: The changes, the latest first.
            reverted: The reverted changes.
        """
        others = [
            each
            for each in later
            if key in each.change.keys
            and (each.incarnation, each.change.revision or 0) > (span.incarnation, span.revision)
            and each.change.change_id not in reverted
        ]
        return cls(span.before, span.after, *(_changes(key, each) for each in (others, unreverted(others))))


@dataclass(frozen=True, slots=True)
class ExpectedKeys:
    """The keys that a revert restores."""

    keys: Mapping[str, ExpectedKey]
    explained: int | None
    """The zxid of the znode's last write, where the trail explains that write. While the znode has this zxid, a hidden
    value is still that of the reverted changes."""

    def check(self, cluster_facet: ClusterFacet, entity: Entity, node: Node | None) -> None:
        """Refuse a node with unreverted later changes.

        Raises:
            RevertConflictError: Later changes touched the keys.
        """
        content = stored(node)
        later: dict[UUID | None, ConflictingChange] = {}
        for key, expected in self.keys.items():
            now = content.get(key)
            if same_value(cluster_facet, entity, key, now, expected.wanted):
                continue
            if expected.left is UnknownValue.NOT_KEPT:
                is_left = node is not None and node.mzxid == self.explained
            else:
                is_left = same_value(cluster_facet, entity, key, now, expected.left)
            if is_left and not expected.unreverted:
                continue
            for each in expected.unreverted or expected.later or (unrecorded(node, key),):
                known = later.get(each.change_id)
                keys = each.keys if known is None else (*known.keys, *each.keys)
                later[each.change_id] = each._replace(keys=keys)
        if later:
            raise conflict(entity, later.values())


@dataclass(frozen=True, slots=True)
class ExpectedWhole:
    """All keys of a facet, of an entity that goes back to a moment."""

    before: Mapping[str, str]
    """The facet's keys as they were when the revert was planned."""
    wanted: Mapping[str, JsonValue]
    """The keys as they will be, each as :func:`readable` gives its value."""

    def check(self, cluster_facet: ClusterFacet, entity: Entity, node: Node | None) -> None:
        """Refuse a node that was changed externally in the meantime, unless it is as wanted.

        Raises:
            RevertConflictError: Keys were changed externally in the meantime.
        """
        now = cluster_facet.own(entity, stored(node))
        changed = [item.key for item in difference(self.before, now)]
        if changed and {key: readable(cluster_facet, entity, key, now[key]) for key in now} != self.wanted:
            raise conflict(entity, [unrecorded(node, *changed)])


def unreverted(later: Sequence[SubsequentChange]) -> list[SubsequentChange]:
    """Return the changes that no still later change of them reverts, of changes the latest first."""
    ids = {each.change.change_id for each in later}
    undone: set[UUID | None] = set()
    left = []
    for each in later:
        if each.change.change_id in undone:
            continue
        reverted = ids.intersection(each.reverts)
        if reverted:
            undone |= reverted
        else:
            left.append(each)
    return left


def unrecorded(node: Node | None, *keys: str) -> ConflictingChange:
    """Return the change that left a node, which the trail does not have yet."""
    if node is None:
        return ConflictingChange(None, None, None, None, None, keys)
    return ConflictingChange(None, None, None, node.mzxid, node.mtime_ms, keys)


def conflict(entity: Entity, later: Iterable[ConflictingChange]) -> RevertConflictError:
    """Return the refusal that names later changes."""
    changes = sorted(later, key=lambda each: each.revision or 0, reverse=True)
    named = "; ".join(_named(each) for each in changes[:_NAMED])
    more = f"; and {len(changes) - _NAMED} more" if len(changes) > _NAMED else ""
    return RevertConflictError(
        f"{entity.id}: later changes touched the same keys: {named}{more}. Revert these first, or use force to revert"
        " over them",
        later=tuple(changes[:_LISTED]),
    )


def readable(cluster_facet: ClusterFacet, entity: Entity, key: str, value: str) -> JsonValue:
    """Return a stored value as an edit takes it: decoded where it can be, a secret as it is stored."""
    try:
        decoded = cluster_facet.facet.decode(entity, key, value)
    except ValueError:
        return value
    return value if decoded is None else decoded


def same_value(cluster_facet: ClusterFacet, entity: Entity, key: str, value: str | None, other: Value) -> bool:
    """Return True if a stored value of a key is another one, possibly in another spelling."""
    if value == other:
        return True
    if value is None or not isinstance(other, str) or cluster_facet.facet.is_secret(entity, key):
        return False
    return readable(cluster_facet, entity, key, value) == readable(cluster_facet, entity, key, other)


def _changes(key: str, later: Iterable[SubsequentChange]) -> tuple[ConflictingChange, ...]:
    return tuple(each.change._replace(keys=(key,)) for each in later)


def _named(change: ConflictingChange) -> str:
    keys = ", ".join(clipped(key) for key in change.keys[:_NAMED])
    at = "" if change.revision is None else f" at revision {change.revision}"
    if change.change_id is None:
        return f"a write{at} that is not in the trail yet ({keys})"
    return f"change {change.change_id} by {change.principal}{at} ({keys})"
