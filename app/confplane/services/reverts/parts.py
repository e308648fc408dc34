"""The parts of a revert: for each entity and facet, the keys that a set of changes touched. Pure functions.

A key goes back to its value before the first of the changes, and is expected to have its value after the last. Changes
of several entities at once keep these together: what was changed in one change is reverted in one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity
from confplane.domain.errors import (
    ConfplaneError,
    ForbiddenError,
    InvalidRequestError,
    InvalidTopicError,
    NotRevertibleError,
)
from confplane.domain.facets import FacetName, Tree, full_path
from confplane.domain.texts import clipped
from confplane.services.ports.cluster_states import ENTITY
from confplane.services.ports.trail import WHOLE_OPS

if TYPE_CHECKING:
    from collections.abc import Collection as Names
    from collections.abc import Iterator, Mapping, Sequence
    from uuid import UUID

    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.history import Content
    from confplane.services.ports.trail import AuditRecord, IntentEntity, Outcome
    from confplane.services.reads.layouts import Layouts

_SHOWN: Final = 5
"""Keys that a text names."""


class UnknownValue(Enum):
    """A value that the trail does not keep."""

    NOT_KEPT = "not kept"


Value = str | UnknownValue | None
"""A stored value by the trail; None: the key was absent."""


@dataclass(slots=True)
class Span:
    """One key, from the first of the changes that touched it to the last."""

    before: Value
    after: Value
    revision: int
    """The revision of the first."""
    incarnation: int
    """The incarnation of the store at that revision."""


@dataclass(slots=True, eq=False)
class RevertPart:
    """One entity's part of a revert, in one facet."""

    cluster_facet: ClusterFacet
    entity: Entity
    revision: int
    """The revision of the first change."""
    incarnation: int
    """The incarnation of the store at that revision."""
    time_ms: int
    spans: dict[str, Span] = field(default_factory=dict)
    changes: list[UUID] = field(default_factory=list)
    """The changes in the order of their revisions."""
    error: ConfplaneError | None = None
    """The reason why the part can't be reverted."""

    @property
    def key(self) -> tuple[FacetName, str]:
        """Facet and entity."""
        return self.cluster_facet.name, self.entity.id

    def refuse(self, error: ConfplaneError) -> None:
        """Take note of a reason; the first counts."""
        self.error = self.error or error


@dataclass(frozen=True, slots=True)
class OmittedChange:
    """A change that the revert leaves out, and the reason."""

    change_id: UUID
    reason: str


class RevertParts:
    """The parts of a set of changes.

    Args:
        facets: The cluster's facets.
        layouts: The layouts of its client configs.
        keys: Only these keys; None: all.
    """

    def __init__(self, facets: Mapping[FacetName, ClusterFacet], layouts: Layouts, keys: Names[str] | None) -> None:
        self.skipped: list[OmittedChange] = []
        self._facets = facets
        self._layouts = layouts
        self._keys = keys
        self._found: dict[tuple[FacetName, str], RevertPart] = {}
        self._groups: dict[tuple[FacetName, str], list[RevertPart]] = {}
        """The group of each part: the parts that are reverted together."""

    def add(self, records: Sequence[AuditRecord]) -> None:
        """Add the changes of a set, in the order of their revisions."""
        for record in sorted(records, key=_order):
            reason = _no_alter(record) or self._add(record)
            if reason is not None:
                self.skipped.append(OmittedChange(record.intent.change_id, reason))
        for part in self._found.values():
            hidden = sorted(key for key, span in part.spans.items() if span.before is UnknownValue.NOT_KEPT)
            if hidden:
                part.refuse(not_kept(part.entity, hidden))

    def groups(self) -> list[list[RevertPart]]:
        """Return the parts in groups that are reverted together, those of a group ordered by facet and entity."""
        groups = {id(group): group for group in self._groups.values()}
        return [sorted(group, key=lambda part: part.key) for group in groups.values()]

    def _add(self, record: AuditRecord) -> str | None:
        """Add one change; return the reason if it has no part."""
        outcome = record.outcome
        if outcome is None or outcome.revision is None or outcome.time_ms is None:
            return "It has no outcome yet; it is settled within seconds"
        added: dict[tuple[FacetName, str], RevertPart] = {}
        reason = "It gave no key another value" if self._keys is None else "It touched none of these keys"
        for row in record.intent.entities:
            entity = Entity.from_id(row.entity_id)
            mine: dict[tuple[FacetName, str], RevertPart] = {}
            foreign = []
            for key in row.keys:
                if self._keys is not None and key not in self._keys:
                    continue
                cluster_facet = self._owner(entity, key)
                if cluster_facet is None:
                    foreign.append(key)
                elif row.path in self._paths(cluster_facet, entity, outcome):
                    part = self._part(cluster_facet, entity, outcome)
                    mine[part.key] = part
                    _extend(part, key, row, outcome)
            if foreign:
                error = _of_no_facet(entity, foreign)
                reason = error.detail
                for part in mine.values():
                    part.refuse(error)
            for part in mine.values():
                part.changes.append(record.intent.change_id)
                _refuse_unknown(part, record, row, outcome)
            added |= mine
        self._join(list(added.values()))
        return None if added else reason

    def _owner(self, entity: Entity, key: str) -> ClusterFacet | None:
        for cluster_facet in self._facets.values():
            try:
                cluster_facet.facet.check_entity(entity)
            except (InvalidRequestError, InvalidTopicError):
                continue
            if cluster_facet.facet.owns(entity, key):
                return cluster_facet
        return None

    def _paths(self, cluster_facet: ClusterFacet, entity: Entity, outcome: Outcome) -> set[str]:
        """Return the znodes from which a facet's keys were read when a change was committed."""
        trees: tuple[Tree, ...] = (Tree.CONFIG,)
        if cluster_facet.name is FacetName.CLIENT_CONFIGS:
            trees = self._layouts.at(outcome.revision or 0, outcome.incarnation)
        return {full_path(tree, entity) for tree in trees}

    def _part(self, cluster_facet: ClusterFacet, entity: Entity, outcome: Outcome) -> RevertPart:
        key = cluster_facet.name, entity.id
        if key not in self._found:
            part = self._found[key] = RevertPart(
                cluster_facet, entity, outcome.revision or 0, outcome.incarnation, outcome.time_ms or 0
            )
            self._groups[key] = [part]
        return self._found[key]

    def _join(self, parts: Sequence[RevertPart]) -> None:
        """Join the groups of parts that one change touched."""
        for part in parts[1:]:
            whole, other = self._groups[parts[0].key], self._groups[part.key]
            if other is not whole:
                whole += other
                for each in other:
                    self._groups[each.key] = whole


def value_of(content: Content, key: str) -> Value:
    """Return the value of a key in a content of the trail."""
    if key not in content:
        return None
    value = content[key]
    return UnknownValue.NOT_KEPT if value is None else value


def not_kept(entity: Entity, keys: Sequence[str]) -> NotRevertibleError:
    """Return the error of keys whose earlier values the trail does not keep."""
    return NotRevertibleError(
        f"{entity.id}: the trail does not keep the earlier values of {_named(keys)}, secrets or values that nobody saw;"
        " set them by PUT or by an alter, and name the other keys in keys to revert those alone"
    )


def of_hidden(change_id: UUID) -> ForbiddenError:
    """Return the error of a change of which the caller may not describe some entities."""
    return ForbiddenError(
        f"Change {change_id} has further entities, which the caller may not describe; it is reverted as a whole or not"
        " at all"
    )


def _of_no_facet(entity: Entity, keys: Sequence[str]) -> NotRevertibleError:
    return NotRevertibleError(
        f"{entity.id}: no facet has {_named(keys)}, so the values are not kept; use the tool that set them, such as"
        " kafka-configs.sh, and name the other keys in keys to revert those alone"
    )


def _named(keys: Sequence[str]) -> str:
    shown = ", ".join(clipped(key) for key in keys[:_SHOWN])
    return shown if len(keys) <= _SHOWN else f"{shown} and {len(keys) - _SHOWN} more keys"


def _order(record: AuditRecord) -> tuple[int, int, UUID]:
    """Changes of one revision are in the order of their ids."""
    outcome = record.outcome
    return (outcome and outcome.incarnation) or 0, (outcome and outcome.revision) or 0, record.intent.change_id


def _no_alter(record: AuditRecord) -> str | None:
    """Return the reason why a change as a whole can't be reverted, if there is one."""
    if record.outcome is not None and not record.outcome.committed:
        return "It was not applied"
    entities = record.intent.entities
    if any(row.facet == ENTITY for row in entities):
        return (
            "It is a freeze, a thaw, a layout or a target, and changed no config; use confplane freeze, thaw, layout or"
            " target"
        )
    ops = {op.get("op") for row in entities for op in row.ops}
    if ops & WHOLE_OPS:
        return "It moved client configs between layouts, and gave no key another value; use confplane layout move"
    if "REENCODE" in ops:
        return "It gave passwords another encoding, and no other value; use confplane secrets rotate"
    return None


def _extend(part: RevertPart, key: str, row: IntentEntity, outcome: Outcome) -> None:
    span = part.spans.get(key)
    if span is None:
        part.spans[key] = Span(
            value_of(row.before, key), value_of(row.after, key), outcome.revision or 0, outcome.incarnation
        )
    else:
        span.after = value_of(row.after, key)


def _refuse_unknown(part: RevertPart, record: AuditRecord, row: IntentEntity, outcome: Outcome) -> None:
    """Refuse a part if the change does not show all of it."""
    change_id = record.intent.change_id
    if record.partial:
        part.refuse(of_hidden(change_id))
    if row.path in outcome.remade:
        part.refuse(
            NotRevertibleError(
                f"{part.entity.id}: others deleted the znode and made it again while change {change_id} was under way,"
                " and nobody saw its content; set the values by PUT or by an alter"
            )
        )
    observed = record.intent.observed
    if observed is not None and not observed.exact:
        after = "an unknown offset" if observed.after is None else f"offset {observed.after}"
        part.refuse(
            NotRevertibleError(
                f"{part.entity.id}: change {change_id} stands for writes behind {after} of the metadata log, up to"
                f" offset {observed.until}, of which the states between are not known; set the values by an alter"
            )
        )


def of_parts(groups: Sequence[Sequence[RevertPart]]) -> Iterator[RevertPart]:
    """Iterate over the parts of all groups."""
    for group in groups:
        yield from group
