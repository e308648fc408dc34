"""The merge of the mirror's journal with the changes in the trail: which writes are external. Pure functions.

The journal has what the mirror saw, and the trail has the changes of this service. Versions that no change explains are
external writes, or those of a change whose outcome is not in the trail yet.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.domain.entities import Entity
from confplane.domain.facets import Tree, full_path
from confplane.domain.znode_versions import ABSENT, Gap, OwnWrite, Point, gaps
from confplane.services.ports.feed import FeedChange, FeedEntity, is_complete
from confplane.services.ports.trail import EXTERNAL, EXTERNAL_PRINCIPAL, HistoryPlace
from confplane.services.recorder.external import change_id, row_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from confplane.domain.changes import Node
    from confplane.domain.redaction import Redact
    from confplane.services.ports.journal import JournalEntry

LATE: Final = timedelta(minutes=15)
"""The time for which an external write may lack its notification: the recorder looks for those every ten minutes."""
_LATE_MS: Final = LATE // timedelta(milliseconds=1)
_TIME_SHIFT = 80


class EntitySteps(NamedTuple):
    """The node of one entity before some entries of the journal, and the last one."""

    tree: Tree
    entity_id: str
    path: str
    before: Node | None
    after: Node | None
    notified: int = 0
    """The revision of the last notification after the last write; 0 if there was none."""


class ExternalGap(NamedTuple):
    """External writes to one entity, or a change whose outcome is not known."""

    steps: EntitySteps
    gap: Gap


def steps_of(entries: Iterable[JournalEntry]) -> list[EntitySteps]:
    """Return the entries of the journal by entity."""
    found: dict[tuple[Tree, str], EntitySteps] = {}
    for entry in entries:
        key = (entry.tree, entry.entity_id)
        known = found.get(key)
        notified = entry.revision if entry.after is entry.before else 0
        if known is None:
            path = full_path(entry.tree, Entity.from_id(entry.entity_id))
            found[key] = EntitySteps(*key, path, entry.before, entry.after, notified)
        else:
            found[key] = known._replace(after=entry.after, notified=notified)
    return list(found.values())


def unexplained(
    steps: Sequence[EntitySteps], changes: Iterable[FeedChange], redact: Redact, until: int, time_ms: int
) -> list[ExternalGap]:
    """Return the versions that none of the changes explains.

    Args:
        steps: What the mirror saw.
        changes: All changes of this service that may have made it.
        redact: Removes the secrets.
        until: The mirror's revision; absent entities were absent at it.
        time_ms: The time of an absence.
    """
    writes: dict[str, list[OwnWrite]] = {}
    for change in changes:
        if change.kind != EXTERNAL:
            for entity in change.entities:
                with contextlib.suppress(TypeError, ValueError):  # its versions then count as external
                    writes.setdefault(entity.path, []).append(_write(change, entity))
    found = []
    for each in steps:
        own = writes.get(each.path, ())
        before = _point(each.tree, each.before, redact) or ABSENT
        after = _point(each.tree, each.after, redact)
        when = time_ms if each.after is None else each.after.mtime_ms
        end = Point(present=False, czxid=before.czxid, mzxid=until) if after is None else after
        found += [ExternalGap(each, gap) for gap in gaps(before, own, end, when)]
    return found


def with_complete_states(change: FeedChange, steps: Mapping[str, EntitySteps], loaded: int) -> FeedChange:
    """Return a change with complete states of the entities that nothing altered since the mirror was loaded.

    The load may have found an external write that has no notification yet. Consumers then lack its keys.

    Args:
        change: The change.
        steps: What the mirror saw, by the paths of the entities.
        loaded: The mirror's revision after the load.
    """

    def is_first(entity: FeedEntity) -> bool:
        node = steps[entity.path].before if entity.path in steps else None
        return (
            node is not None
            and node.mzxid <= loaded
            and (node.czxid, node.version) == (entity.czxid_read, entity.version_read)
            and change.time_ms - node.mtime_ms <= _LATE_MS
        )

    first = [is_first(each) for each in change.entities]
    if not any(first):
        return change
    found = zip(change.entities, first, strict=True)
    return replace(change, entities=[replace(each, complete=True) if is_one else each for each, is_one in found])


def with_requests(
    changes: Sequence[FeedChange], requests: Sequence[FeedChange], *, all_changes: bool, all_requests: bool
) -> Iterator[FeedChange]:
    """Yield changes of the trail and events of requests in their order, as far as both are known.

    An event comes when it happened, and that of an applied request after its change.

    Args:
        changes: Changes by their places.
        requests: Events by their numbers.
        all_changes: False if further changes follow.
        all_requests: False if further events follow.
    """
    left, waiting = deque(changes), deque(requests)
    while (left or all_changes) and (waiting or all_requests) and (left or waiting):
        yield waiting.popleft() if waiting and (not left or _is_before(waiting[0], left[0])) else left.popleft()


def _is_before(event: FeedChange, change: FeedChange) -> bool:
    applied = None if event.request is None else event.request.applied
    return event.time_ms <= change.time_ms and (applied is None or applied < change.place)


def notified_state(cluster: str, each: EntitySteps, redact: Redact, place: HistoryPlace) -> FeedChange | None:
    """Return the state of a node as an external change whose values before are not known; None if it has no keys."""
    node = each.after
    if node is None:
        return None
    content = redact(each.tree, node.id, node.config)
    state = Gap(ABSENT, Point(True, node.czxid, node.version, node.mzxid), node.mzxid, node.mtime_ms, node.mtime_ms)  # noqa: FBT003
    entity = FeedEntity(
        *(each.entity_id, each.path, None, None, node.version, None, list(content), {}, content),
        revision=node.mzxid,
        complete=True,
    )
    found = place._replace(change_id=change_id(cluster, each.path, state))
    return FeedChange(found, node.mtime_ms, EXTERNAL, EXTERNAL_PRINCIPAL, None, None, None, [entity])


def external_change(cluster: str, external: ExternalGap, place: HistoryPlace) -> FeedChange | None:
    """Return the change of external writes, at a place whose change id does not count.

    Returns None if the writes left every key as it was. The change has the id that the recorder gives it.
    """
    steps, gap = external
    row = row_of(cluster, steps.path, gap, steps.after, _differing(external))
    if row is None or not row["keys"]:
        return None
    version = row["versions"].get(steps.path)
    entity = FeedEntity(
        steps.entity_id,
        steps.path,
        row["version_read"],
        row["czxid_read"],
        version,
        None,
        row["keys"],
        gap.before.content,
        gap.after.content,
        revision=gap.revision,
        complete=is_complete(row["writes"], version),
    )
    found = place._replace(change_id=change_id(cluster, steps.path, gap))
    return FeedChange(found, gap.time_ms, EXTERNAL, EXTERNAL_PRINCIPAL, None, None, None, [entity])


def _differing(external: ExternalGap) -> frozenset[str] | None:
    """Return the keys that differ, secrets included, if the gap is all that lies between two nodes."""
    before, after = external.steps.before, external.steps.after
    if before is None or after is None:
        return None
    ends = (external.gap.before.version, external.gap.after.version)
    if ends != (before.version, after.version):
        return None
    old, new = before.config, after.config
    return frozenset(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def _write(change: FeedChange, entity: FeedEntity) -> OwnWrite:
    return OwnWrite(
        change.place.revision,
        change.time_ms,
        change.place.change_id.int >> _TIME_SHIFT,
        entity.version_read,
        entity.czxid_read if entity.remade is None else entity.remade,
        entity.version,
        dict(entity.before),
        dict(entity.after),
        unseen=entity.remade is not None,
    )


def _point(tree: Tree, node: Node | None, redact: Redact) -> Point | None:
    if node is None:
        return None
    return Point(True, node.czxid, node.version, node.mzxid, redact(tree, node.id, node.config))  # noqa: FBT003
