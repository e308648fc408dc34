"""The end of a temporary change: its keys get their earlier values, where they still are as the change left them.

An end is a change like any other, which the trail has with ``ends`` and ``reverts``. Its intent, with its id, is
durable before its transaction, and it rests on the versions of the znodes on which it was decided. So it is applied
once, although several processes may attempt it, and may be killed at any step:

- The znodes are read first, and then the earlier attempts. Each attempt whose transaction a read could see has an
  intent, and no attempt follows one without an outcome.
- Of two attempts that were decided on the same versions, ZooKeeper commits one. It also confirms the versions where no
  value differs.
- The fallbacks of covered keys are passed on before other values are restored, so that a change above leads back to
  them if it ends before this end is recorded.
- After a committed attempt nothing is written any more. What is left is the state of the schedule.

The domain decides for each key (:mod:`confplane.domain.temporary_changes`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from confplane.domain.changes import stored
from confplane.domain.errors import (
    ConcurrentChangeError,
    ConfplaneError,
    NotFoundError,
    PreconditionFailedError,
    UnavailableError,
    WriteOutcome,
)
from confplane.domain.facets import FacetName, full_path
from confplane.domain.ops import Op, OpType
from confplane.domain.temporary_changes import KeyEnd, LayerChange, key_end
from confplane.services.changes.callers import unavailable_with
from confplane.services.changes.edits import Edit, offender
from confplane.services.changes.stored_draft import ExpectedVersion
from confplane.services.ports.history import TouchedKeys, Znode
from confplane.services.ports.schedules import EntityKey, ScheduleState
from confplane.services.reads.layouts import layouts_of
from confplane.services.reverts.expected import readable, same_value
from confplane.services.reverts.parts import RevertParts, of_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confplane.domain.access.ranges import NameRanges
    from confplane.domain.changes import Node
    from confplane.services.changes.alter import AlterService, Entry
    from confplane.services.changes.callers import Caller
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.clusters import Cluster
    from confplane.services.ports.history import SubsequentChange, TrailHistory
    from confplane.services.ports.schedules import EndAttempts, Fallbacks, Schedule, ScheduleStore
    from confplane.services.ports.trail import AuditLog
    from confplane.services.reverts.parts import RevertPart

_TRIES: Final = 5
"""Attempts at one end in a row, while other writers change the same entities."""
_SETTLED_AFTER: Final = timedelta(seconds=60)
"""The age of a write from which the trail must have it, if it ever gets it."""


@dataclass(slots=True)
class _EndPlan:
    """The work of the end of a temporary change."""

    edits: dict[str, dict[ClusterFacet, Edit]] = field(default_factory=dict)
    """Entity id -> the edits of its facets."""
    kept: list[EntityKey] = field(default_factory=list)
    passed: dict[UUID, Fallbacks] = field(default_factory=dict)
    """The fallbacks that changes above take over."""

    @property
    def entries(self) -> list[Entry]:
        """The entries to write."""
        return list(self.edits.values())


class ScheduleEnder:
    """Ends temporary changes. One instance serves all clusters of a process.

    Args:
        audit: The trail as changes.
        trail: The trail as a history of znodes.
        alter: Runs the edits.
        schedules: The schedules.
        now: The clock.
    """

    def __init__(
        self,
        audit: AuditLog,
        trail: TrailHistory,
        alter: AlterService,
        schedules: ScheduleStore,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._audit = audit
        self._trail = trail
        self._alter = alter
        self._schedules = schedules
        self._now = now

    async def end(self, cluster: Cluster, change_id: UUID, caller: Caller) -> Schedule:
        """End a temporary change, and return its schedule. Nothing is done if it has ended.

        Args:
            cluster: The cluster.
            change_id: The change.
            caller: The caller of the end.

        Raises:
            NotFoundError: The cluster has no such temporary change.
            ConfplaneError: The end is delayed for this reason, and may be attempted again.
        """
        with caller.preparing():
            schedule = await self._schedules.begin(cluster.name, change_id)
        if schedule is not None:
            try:
                await self._end(cluster, schedule, replace(caller, ends=change_id, revert_at=None))
            except ConfplaneError as error:
                # Only the list of schedules lacks the reason then.
                with suppress(UnavailableError):
                    await self._schedules.delay(change_id, error.detail)
                raise
        with unavailable_with(WriteOutcome.UNKNOWN):
            found = await self._schedules.find(cluster.name, change_id)
        if found is None:
            raise NotFoundError(f"Cluster {cluster.name} has no temporary change {change_id}")
        return found

    async def is_recorded(self, cluster: str, change_id: UUID, visible: NameRanges) -> bool:
        """Return True for a temporary change of visible entities, also before it has an outcome and a schedule."""
        found = await self._audit.get(cluster, change_id, within=visible)
        accepted = found is not None and (found.outcome is None or found.outcome.committed)
        return found is not None and accepted and found.intent.revert_at is not None

    async def _end(self, cluster: Cluster, schedule: Schedule, caller: Caller) -> None:
        with caller.preparing():
            parts = await self._parts(cluster, schedule)
        error: ConfplaneError | None = None
        for _ in range(_TRIES):
            with caller.preparing():
                await cluster.store.catch_up(caller.deadline)
                nodes = {part.key: part.cluster_facet.get(part.entity.id) for part in parts}
                attempts = await self._schedules.attempts(schedule.change_id)
                if attempts.open:
                    raise _not_recorded("An earlier attempt has no outcome yet; it is settled within seconds")
                plan = await self._plan(schedule, parts, nodes, attempts)
                # Before the values are restored, because the changes above may end right after that.
                if plan.passed and not await self._schedules.pass_on(schedule, plan.passed):
                    raise _wait("Another temporary change of the same keys ends now")
            end_id = attempts.committed
            if plan.entries:
                results = await self._alter.alter_entries(plan.entries, caller, atomic=True)
                each = [result for entry in results for result in entry.results]
                error = offender(result.error for result in each)
                if isinstance(error, PreconditionFailedError):
                    continue
                if error is not None:
                    raise error
                end_id = next((_uuid(result.change_id) for result in each if result.change_id is not None), end_id)
            with unavailable_with(WriteOutcome.UNKNOWN):
                if await self._schedules.finish(schedule, end_id, plan.kept):
                    return
            raise _not_recorded("The values are restored; the end is recorded within seconds")
        raise error or _wait("Other writers keep changing the same entities")

    async def _parts(self, cluster: Cluster, schedule: Schedule) -> list[RevertPart]:
        """Return the entities and keys of the change, with their values before and after it."""
        record = await self._audit.get(cluster.name, schedule.change_id)
        if record is None:
            raise NotFoundError(f"The trail of cluster {cluster.name} has no change {schedule.change_id}")
        layouts = await layouts_of(self._audit, cluster.facets[FacetName.CLIENT_CONFIGS])
        parts = RevertParts(cluster.facets, layouts, None)
        parts.add([record])
        return list(of_parts(parts.groups()))

    async def _plan(
        self,
        schedule: Schedule,
        parts: Sequence[RevertPart],
        nodes: Mapping[tuple[FacetName, str], Node | None],
        attempts: EndAttempts,
    ) -> _EndPlan:
        """Plan an end on the nodes as read. The trail explains them, and it is read before and after the schedules.

        Raises:
            ConcurrentChangeError: The trail does not explain a node yet, or changed in between.
        """
        touched = [
            TouchedKeys(part.entity.id, tuple(part.spans), part.revision, part.time_ms, part.incarnation)
            for part in parts
        ]
        before = await self._trail.later(schedule.cluster, touched)
        for part, some in zip(parts, before, strict=True):
            if not await self._is_explained(schedule, part, nodes[part.key], some or ()):
                raise _wait(f"The trail does not explain the last write of {part.entity.id} yet")
        await self._schedules.register(schedule.cluster)
        ids = _ids(before)
        states = await self._schedules.states(list(ids))
        later = await self._trail.later(schedule.cluster, touched)
        if _ids(later) != ids or not all(map(_is_current, parts, [nodes[part.key] for part in parts], later)):
            raise _wait("The same keys are being changed")
        ended = {each for each, state in states.items() if state in {ScheduleState.ENDED, ScheduleState.ENDED_PARTLY}}
        plan = _EndPlan()
        for part, some in zip(parts, later, strict=True):
            if some is None or part.error is not None:
                # More changes since than a search reads, or the content after the change is not known.
                plan.kept += [EntityKey(part.entity.id, key) for key in part.spans]
                continue
            ends = {}
            for key in part.spans:
                # A revert led back to the value of a temporary change that ended below, not to the value before both.
                passed = EntityKey(part.entity.id, key) in schedule.fallbacks
                left_out = schedule.change_id if passed and attempts.committed is None else None
                ends[key] = key_end(schedule.change_id, _of_key(key, some, states, left_out), ended)
            _add(plan, schedule, part, nodes[part.key], ends, attempts)
        return plan

    async def _is_explained(
        self, schedule: Schedule, part: RevertPart, node: Node | None, later: Sequence[SubsequentChange]
    ) -> bool:
        """Return True if the trail has the last write of a node, or will never have it."""
        written = schedule.revert_at if node is None else datetime.fromtimestamp(node.mtime_ms / 1000, UTC)
        if self._now() - written > _SETTLED_AFTER:
            return True
        if node is not None and node.mzxid in {part.revision, *(each.change.revision for each in later)}:
            return True
        znode = Znode(part.cluster_facet.tree, part.entity.id)
        [around] = await self._trail.around(schedule.cluster, [znode], part.revision if node is None else node.mzxid)
        if node is None:
            return around.recorded is not None and not around.recorded.present and around.later is None
        known = around.earlier is not None and around.earlier.revision == node.mzxid
        return known or (around.recorded is not None and around.recorded.mzxid >= node.mzxid)


def _add(
    plan: _EndPlan,
    schedule: Schedule,
    part: RevertPart,
    node: Node | None,
    ends: Mapping[str, tuple[KeyEnd, UUID | None]],
    attempts: EndAttempts,
) -> None:
    """Add one entity in one facet to a plan."""
    cluster_facet, entity, content = part.cluster_facet, part.entity, stored(node)
    ops: list[Op] = []
    for key, span in sorted(part.spans.items()):
        name, now = EntityKey(entity.id, key), content.get(key)
        wanted = schedule.fallbacks.get(name, span.before if isinstance(span.before, str) else None)
        doing, above = ends[key]
        is_wanted = same_value(cluster_facet, entity, key, now, wanted)
        if doing is KeyEnd.PASS and above is not None:
            plan.passed.setdefault(above, {})[name] = wanted
        elif doing is KeyEnd.RESTORED or (doing is KeyEnd.KEEP and is_wanted):
            continue
        elif doing is KeyEnd.RESTORE and (is_wanted or _is_of_layer(part, key, now, passed=name in schedule.fallbacks)):
            if attempts.committed is None:
                # Also of a key that has the value: ZooKeeper then confirms the version on which this was decided.
                value = None if wanted is None else readable(cluster_facet, entity, key, wanted)
                ops.append(Op(key, OpType.DELETE) if wanted is None else Op(key, OpType.SET, value))
            elif not is_wanted:
                plan.kept.append(name)
        else:
            plan.kept.append(name)
    if ops:
        version, czxid = (None, None) if node is None else (node.version, node.czxid)
        expected = ExpectedVersion(full_path(cluster_facet.tree, entity), version, czxid)
        edit = Edit(entity, tuple(ops), expected=expected, reverts=(schedule.change_id,))
        plan.edits.setdefault(entity.id, {})[cluster_facet] = edit


def _is_of_layer(part: RevertPart, key: str, now: str | None, *, passed: bool) -> bool:
    """Return True if a key has the value that the change set, or with a passed fallback the value before it."""
    span = part.spans[key]
    left = (span.after, span.before) if passed else (span.after,)
    return any(same_value(part.cluster_facet, part.entity, key, now, value) for value in left)


def _of_key(
    key: str, later: Sequence[SubsequentChange], states: Mapping[UUID, ScheduleState], left_out: UUID | None
) -> list[LayerChange]:
    """Return the changes of one key in the order of their revisions, without the reverts of one change.

    The changes are given the latest first.
    """
    return [
        LayerChange(each.change.change_id, each.change.change_id in states, each.reverts)
        for each in reversed(later)
        if each.change.change_id is not None and key in each.change.keys and left_out not in each.reverts
    ]


def _uuid(change_id: str | None) -> UUID | None:
    return None if change_id is None else UUID(change_id)


def _is_current(part: RevertPart, node: Node | None, later: Sequence[SubsequentChange] | None) -> bool:
    """Return True if a node was read after all known changes of the keys.

    An absent node has no revision, and revisions of an earlier incarnation of the store can't be compared.
    """
    places = [(each.incarnation, each.change.revision or 0) for each in later or ()]
    places.append((part.incarnation, part.revision))
    now = part.cluster_facet.store.incarnation
    return node is None or all(revision <= node.mzxid for incarnation, revision in places if incarnation == now)


def _ids(later: Sequence[Sequence[SubsequentChange] | None]) -> set[UUID]:
    return {each.change.change_id for some in later for each in some or () if each.change.change_id is not None}


def _not_recorded(text: str) -> UnavailableError:
    return UnavailableError(text, outcome=WriteOutcome.UNKNOWN, retry_after_s=2)


def _wait(text: str) -> ConcurrentChangeError:
    return ConcurrentChangeError(text, outcome=WriteOutcome.NOT_APPLIED, retry_after_s=2)
