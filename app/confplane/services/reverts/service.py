"""Reverts of changes, and of an entity to a time (docs/trail-design.md, "Reverts").

A revert is an alter like any other: the same grants, policies, validation and runner. Its edits carry the contents that
they rest on (:mod:`confplane.services.reverts.expected`), which are compared with each node as read, and the changes
that they revert, which the trail keeps.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from confplane.domain.access.identities import untyped_hint
from confplane.domain.access.operations import Operation
from confplane.domain.changes import stored
from confplane.domain.errors import (
    BodyTooLargeError,
    ForbiddenError,
    NotFoundError,
    NotRevertibleError,
    RevertConflictError,
    UnavailableError,
    WriteOutcome,
)
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.services.changes.edits import Edit, EditResult
from confplane.services.ports.history import TouchedKeys, Znode
from confplane.services.ports.trail import EXTERNAL, MOST_REVERTS, AuditQuery
from confplane.services.reads import trail as reading
from confplane.services.reads.layouts import layouts_of
from confplane.services.reverts.expected import ExpectedKey, ExpectedKeys, ExpectedWhole, conflict, readable
from confplane.services.reverts.parts import OmittedChange, RevertParts, UnknownValue, not_kept, of_parts

if TYPE_CHECKING:
    from collections.abc import Collection as Names
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.domain.etags import Precondition
    from confplane.domain.facets import JsonValue
    from confplane.services.changes.alter import AlterService
    from confplane.services.changes.callers import Caller
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.clusters import Cluster
    from confplane.services.ports.history import SubsequentChange, TrailHistory
    from confplane.services.ports.trail import AuditLog, AuditRecord
    from confplane.services.reads.history import HistoryService, PastEntity
    from confplane.services.reverts.parts import RevertPart

_Key = tuple[FacetName, str]
"""The facet and the entity of a part."""
_Edits = dict[_Key, Edit | EditResult]
"""The edits of parts, or their refusals."""
_Results = dict[_Key, EditResult]
"""The results of parts."""
MOST_CHANGES: Final = 10_000
"""Changes of one revert: as many as entries of one request."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""Characters of the contents before and after the changes of one revert."""
PAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class RevertSelection:
    """The changes to revert: one change, those of one request, or those of a principal in a span of time."""

    change_id: UUID | None = None
    request_id: str | None = None
    applies: UUID | None = None
    """With a request id: only changes that apply this change request. Clients choose the ids of their requests."""
    principal: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Reversal:
    """The result for one entity in one facet."""

    cluster_facet: ClusterFacet
    result: EditResult
    changes: tuple[UUID, ...]
    """The reverted changes of the entity, in the order of their revisions."""

    @classmethod
    def of(cls, cluster_facet: ClusterFacet, result: EditResult, changes: Sequence[UUID]) -> Reversal:
        """Make one of a result; a request that is sent again may find its own change among the changes."""
        return cls(cluster_facet, result, tuple(each for each in changes if str(each) != result.change_id))


@dataclass(frozen=True, slots=True)
class RevertResult:
    """The result of a revert."""

    results: list[Reversal]
    skipped: list[OmittedChange]
    """The changes of the selection that are left out."""


class RevertService:
    """Reverts changes. One instance serves all clusters of a process.

    Every coroutine raises ``UnavailableError`` if a store is unavailable.

    Args:
        audit: The trail as changes.
        trail: The trail as a history of znodes.
        history: Reads contents of the past.
        alter: Runs the edits.
    """

    def __init__(self, audit: AuditLog, trail: TrailHistory, history: HistoryService, alter: AlterService) -> None:
        self._audit = audit
        self._trail = trail
        self._history = history
        self._alter = alter

    # ------------------------------------------------------------ changes

    async def changes(
        self,
        cluster: Cluster,
        selection: RevertSelection,
        caller: Caller,
        *,
        keys: Names[str] | None = None,
        force: bool = False,
        validate_only: bool = False,
    ) -> RevertResult:
        """Revert changes: set each key that they touched to its value before them.

        What one change did to several entities is reverted in one change; everything else entity by entity.

        Args:
            cluster: The cluster.
            selection: The changes.
            caller: The caller.
            keys: Only these keys; None: all.
            force: Revert over later changes of the same keys.
            validate_only: Go the same way up to the write, and return the results that the write would have.

        Raises:
            NotFoundError: The trail has no such change that the caller may see.
            ForbiddenError: The caller may alter none of the entities.
            BodyTooLargeError: The changes are too many.
            NotRevertibleError: None of the changes gave a key another value, or none can be reverted.
            UnavailableError: None of the changes has an outcome yet, or a store is unavailable.

        Each result has its own error; besides those of an alter RevertConflictError, and NotRevertibleError where an
        earlier value is not kept.
        """
        with caller.preparing():
            records = await self._selected(cluster.name, selection, caller)
            layouts = await layouts_of(self._audit, cluster.facets[FacetName.CLIENT_CONFIGS])
        parts = RevertParts(cluster.facets, layouts, keys)
        parts.add(records)
        groups = parts.groups()
        if not groups:
            first = parts.skipped[0]
            if any(record.outcome is None for record in records):
                text = f"Change {first.change_id} has no outcome yet; it is settled within seconds"
                raise UnavailableError(text, outcome=WriteOutcome.NOT_APPLIED, retry_after_s=1)
            raise NotRevertibleError(f"Change {first.change_id} can't be reverted. {first.reason}")
        reverted = {record.intent.change_id for record in records}
        sound = [part for part in of_parts(groups) if part.error is None]
        with caller.preparing():
            expected = {} if force else await self._expected(sound, reverted)
        edits = {part.key: _edit(part, expected.get(part.key)) for part in of_parts(groups)}
        caller = replace(caller, altered=frozenset([(part.cluster_facet.name.value, part.entity) for part in sound]))
        results: list[Reversal] = []
        for some, together in _loads(groups):
            run = self._together if together else self._run
            done = await run(some, edits, caller, validate_only=validate_only)
            results += [
                Reversal.of(part.cluster_facet, await self._naming_later(part, done[part.key], reverted), part.changes)
                for part in some
            ]
        return RevertResult(results, parts.skipped)

    async def _run(
        self, parts: Sequence[RevertPart], edits: _Edits, caller: Caller, *, validate_only: bool
    ) -> _Results:
        """Run parts that no change joins, all of one facet, each in a change of its own."""
        given = [edits[part.key] for part in parts]
        results = await self._alter.alter(parts[0].cluster_facet, given, caller, validate_only=validate_only)
        return {part.key: result for part, result in zip(parts, results, strict=True)}

    async def _together(
        self, parts: Sequence[RevertPart], edits: _Edits, caller: Caller, *, validate_only: bool
    ) -> _Results:
        """Run parts that a change joins, in one change or not at all."""
        entries: dict[str, list[RevertPart]] = {}
        for part in parts:
            entries.setdefault(part.entity.id, []).append(part)
        made = [{part.cluster_facet: edits[part.key] for part in some} for some in entries.values()]
        results = await self._alter.alter_entries(made, caller, validate_only=validate_only, atomic=True)
        return {
            part.key: result
            for some, entry in zip(entries.values(), results, strict=True)
            for part, result in zip(some, entry.results, strict=True)
        }

    async def _selected(self, cluster: str, selection: RevertSelection, caller: Caller) -> list[AuditRecord]:
        """Return the selected changes. They are read only if they are few and the caller may revert some of them."""
        if selection.change_id is not None:
            return [await reading.find(self._audit, caller.access, cluster, selection.change_id)]
        query = AuditQuery(
            cluster,
            principal=selection.principal,
            request_id=selection.request_id,
            since=selection.since,
            until=selection.until,
            page_size=PAGE,
        )
        await self._check_selected(query, selection, caller)
        found: list[AuditRecord] = []
        size = 0
        while True:
            caller.check_in_time()
            records, cursor = await reading.search(self._audit, caller.access, query)
            found += [each for each in records if selection.applies in {None, each.intent.applies}]
            size += sum(map(_size, records))
            if len(found) > MOST_CHANGES or size > MOST_BYTES:
                raise _too_many_changes()
            if cursor is None and not found:
                raise NotFoundError(f"The trail of cluster {cluster!r} has no change that applies {selection.applies}")
            if cursor is None:
                return found
            query = replace(query, before=cursor)

    async def _check_selected(self, query: AuditQuery, selection: RevertSelection, caller: Caller) -> None:
        """Check a selection without reading its changes.

        Raises:
            ForbiddenError: The caller may alter no entity of these changes.
            NotFoundError: The caller may see none of the changes.
            BodyTooLargeError: The changes are too many.
            UnavailableError: Postgres is unavailable, or the deadline has passed.
        """
        access, cluster = caller.access, query.cluster
        alterable = access.allowed(cluster, Operation.ALTER_CONFIGS)
        may_alter = access.unlimited or await self._audit.count(replace(query, within=alterable), 0) > 0
        caller.check_in_time()
        count = await reading.count(self._audit, access, query, MOST_CHANGES if may_alter else 0)
        if count == 0:
            named = selection.principal if selection.request_id is None else f"request {selection.request_id}"
            hint = untyped_hint(selection.principal)
            raise NotFoundError(f"The trail of cluster {cluster!r} has no such change of {named}{hint}")
        if not may_alter:
            raise ForbiddenError(
                f"{access.identity.principal} may alter none of the entities of these changes; a revert needs"
                " ALTER_CONFIGS on each entity",
                outcome=WriteOutcome.NOT_APPLIED,
            )
        if count > MOST_CHANGES:
            raise _too_many_changes()

    async def _expected(self, parts: Sequence[RevertPart], reverted: Names[UUID]) -> dict[_Key, ExpectedKeys]:
        """Return the contents that the edits of parts rest on; parts with too many later changes are refused."""
        # The mirror before the trail: the trail then has all later changes up to the explained one.
        explained = {part.key: await self._explained(part) for part in parts}
        touched = [_touched(part) for part in parts]
        found = await self._trail.later(parts[0].cluster_facet.store.name, touched) if parts else []
        expected: dict[_Key, ExpectedKeys] = {}
        for part, later in zip(parts, found, strict=True):
            if later is None:
                part.refuse(_too_many(part.entity))
                continue
            keys = {key: ExpectedKey.of(key, span, later, reverted) for key, span in part.spans.items()}
            expected[part.key] = ExpectedKeys(keys, explained[part.key])
        return expected

    async def _explained(self, part: RevertPart) -> int | None:
        """Return the zxid of the last write of a znode with hidden values, if the trail explains that write."""
        if all(span.after is not UnknownValue.NOT_KEPT for span in part.spans.values()):
            return None
        node = part.cluster_facet.get(part.entity.id)
        return node.mzxid if node is not None and await self._is_explained(part.cluster_facet, node) else None

    async def _is_explained(self, cluster_facet: ClusterFacet, node: Node) -> bool:
        """Return True if the trail explains the last write of a znode. If not, a hidden value may be of anyone."""
        [around] = await self._trail.around(cluster_facet.store.name, [Znode(cluster_facet.tree, node.id)], node.mzxid)
        known = around.earlier is not None and around.earlier.revision == node.mzxid
        return known or (around.recorded is not None and around.recorded.mzxid >= node.mzxid)

    async def _naming_later(self, part: RevertPart, result: EditResult, reverted: Names[UUID]) -> EditResult:
        """Return a result whose error names the change that came in between, if the trail has it by now."""
        error = result.error
        if not isinstance(error, RevertConflictError) or all(each.change_id is not None for each in error.later):
            return result
        try:
            later = await self._since(part, reverted)
        except UnavailableError:
            return result  # other parts may be written: the caller must get their results
        return replace(result, error=conflict(part.entity, [each.change for each in later])) if later else result

    async def _since(self, part: RevertPart, reverted: Names[UUID]) -> list[SubsequentChange]:
        [later] = await self._trail.later(part.cluster_facet.store.name, [_touched(part)])
        return [each for each in later or () if each.change.change_id not in reverted]

    # ------------------------------------------------------------ an entity

    async def entity(
        self,
        cluster_facet: ClusterFacet,
        entity: Entity,
        to: int | datetime,
        caller: Caller,
        *,
        precondition: Precondition,
        force: bool = False,
        validate_only: bool = False,
    ) -> Reversal:
        """Give an entity the keys of a facet that it had at a moment.

        Args:
            cluster_facet: The facet.
            entity: The entity.
            to: The moment, a revision or a time.
            caller: The caller.
            precondition: The content that the entity must have now.
            force: Continue if the entity is changed externally in the meantime.
            validate_only: Go the same way up to the write, and return the result that the write would have.

        Raises:
            ForbiddenError: The caller may not alter the entity.
            InvalidRequestError: The facet has no such entities; or the revision is above the newest.
            BeforeHistoryError: The trail does not know the moment.
            NotRevertibleError: The content is not known exactly, or a value is not kept.

        Any other error is in the result.
        """
        caller.require(cluster_facet.store.name, Operation.ALTER_CONFIGS, entity.id)
        while True:
            made = await self._to(cluster_facet, entity, to, caller, precondition, validate_only=validate_only)
            contended = isinstance(made.result.error, RevertConflictError)
            if not (contended and force and time.monotonic() < caller.deadline):
                return made

    async def _to(
        self,
        cluster_facet: ClusterFacet,
        entity: Entity,
        to: int | datetime,
        caller: Caller,
        precondition: Precondition,
        *,
        validate_only: bool,
    ) -> Reversal:
        with caller.preparing():
            edit, changes = await self._edit_to(cluster_facet, entity, to, caller, precondition)
        [result] = await self._alter.alter(cluster_facet, [edit], caller, validate_only=validate_only)
        return Reversal.of(cluster_facet, result, changes)

    async def _edit_to(
        self,
        cluster_facet: ClusterFacet,
        entity: Entity,
        to: int | datetime,
        caller: Caller,
        precondition: Precondition,
    ) -> tuple[Edit, tuple[UUID, ...]]:
        """Return the edit that gives an entity the keys of a moment, and the changes that it reverts."""
        seen = cluster_facet.visible_to(caller.access)
        past = await self._history.entity(seen, entity, to, caller.deadline, name="/to")
        if not past.exact:
            raise _vague(past)
        await cluster_facet.store.catch_up(caller.deadline)
        node = cluster_facet.get(entity.id)
        own = cluster_facet.own(entity, stored(node))
        # Before the trail's later changes, which then include the explained write.
        explained = not past.not_kept or node is None or await self._is_explained(cluster_facet, node)
        later = await self._undone(cluster_facet, entity, past.revision)
        touched = {key for each in later or () for key in each.change.keys}
        # The row of an external change lacks a hidden key if several writes were seen as one.
        certain = explained and later is not None and all(each.change.kind != EXTERNAL for each in later)
        hidden = [key for key in past.not_kept if not certain or key in touched or key not in own]
        if hidden:
            raise not_kept(entity, hidden)
        wanted: dict[str, JsonValue] = {
            **{key: value for key, value in past.declared.items() if key not in past.not_kept},
            **{key: readable(cluster_facet, entity, key, own[key]) for key in past.not_kept},
        }
        ops = tuple(
            Op(key, OpType.SET, wanted[key]) if key in wanted else Op(key, OpType.DELETE)
            for key in sorted(wanted.keys() | own.keys())
            if key not in own or key not in wanted or readable(cluster_facet, entity, key, own[key]) != wanted[key]
        )
        changes = tuple(each.change.change_id for each in reversed(later or ()) if each.change.change_id is not None)
        edit = Edit(
            entity, ops, precondition=precondition, expected=ExpectedWhole(own, wanted), reverts=changes[-MOST_REVERTS:]
        )
        return edit, changes

    async def _undone(
        self, cluster_facet: ClusterFacet, entity: Entity, revision: int
    ) -> list[SubsequentChange] | None:
        """Return the changes of a facet's keys after a revision, the latest first; None if they are too many."""
        owns = cluster_facet.facet.owns
        [later] = await self._trail.later(cluster_facet.store.name, [TouchedKeys(entity.id, None, revision, None)])
        if later is None:
            return None
        return [each for each in later if any(owns(entity, key) for key in each.change.keys)]


def _too_many_changes() -> BodyTooLargeError:
    return BodyTooLargeError(
        f"These are more than {MOST_CHANGES} changes, or larger than {MOST_BYTES} bytes; revert them in several"
        " requests, the latest first, by since and until"
    )


def _size(record: AuditRecord) -> int:
    """Return about the number of bytes of a change in memory."""
    contents = (content for each in record.intent.entities for content in (each.before, each.after))
    return sum(len(key) + len(value or "") for content in contents for key, value in content.items())


def _touched(part: RevertPart) -> TouchedKeys:
    return TouchedKeys(part.entity.id, tuple(part.spans), part.revision, part.time_ms, part.incarnation)


def _edit(part: RevertPart, expected: ExpectedKeys | None) -> Edit | EditResult:
    """Return the edit of a part, or its refusal."""
    cluster_facet, entity = part.cluster_facet, part.entity
    ops = tuple(
        Op(key, OpType.SET, readable(cluster_facet, entity, key, span.before))
        if isinstance(span.before, str)
        else Op(key, OpType.DELETE)
        for key, span in sorted(part.spans.items())
    )
    edit = Edit(entity, ops, expected=expected, reverts=tuple(part.changes))
    return edit if part.error is None else EditResult(edit, part.error)


def _loads(groups: Sequence[Sequence[RevertPart]]) -> list[tuple[Sequence[RevertPart], bool]]:
    """Return the parts that are run at a time, each load with whether its parts belong together."""
    alone: dict[FacetName, list[RevertPart]] = {}
    for group in groups:
        if len(group) == 1:
            alone.setdefault(group[0].cluster_facet.name, []).append(group[0])
    return [*((group, True) for group in groups if len(group) > 1), *((parts, False) for parts in alone.values())]


def _too_many(entity: Entity) -> NotRevertibleError:
    return NotRevertibleError(
        f"{entity.id} has too many changes since to look for those of the same keys; set its values by PUT or by an"
        " alter, or use force to revert over all of them"
    )


def _vague(past: PastEntity) -> NotRevertibleError:
    high = "not known yet" if past.high is None else f"revision {past.high}"
    return NotRevertibleError(
        f"The content of {past.entity_id} at revision {past.revision} is not known exactly: it was changed externally"
        f" several times after revision {past.low} and up to {high}. Use a revision outside of this range"
    )
