"""Drafts of changes that follow a cluster: from the decision on an observed entity to its write and its trail row.

A draft is made from the mirror first, and from ZooKeeper after a conflict.

No draft removes a znode: the offsets in an emptied one keep out older observations (services/znode_metadata.py).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from confplane.domain.changes import stored
from confplane.domain.errors import CorruptZnodeError, UnavailableError, WriteOutcome
from confplane.domain.facets import Tree, full_path, shown_value
from confplane.domain.ops import OpType, op_as_json
from confplane.services.changes.edits import ChangeJob, Draft, NoChange
from confplane.services.kraft.decisions import UNWRITTEN, FollowDecision
from confplane.services.kraft.pending_entity import PendingEntity
from confplane.services.ports.trail import IMPORT, OBSERVED, IntentEntity, ObservedRange
from confplane.services.ports.transactions import EntityWrite, Guarded
from confplane.services.znode_metadata import ZnodeMetadata, write_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.domain.facets import Facet
    from confplane.domain.redaction import Redact
    from confplane.services.kraft.decisions import ClusterDecisions, EntityObservation
    from confplane.services.ports.store import ClusterStore


class FollowDrafts:
    """Drafts the changes that follow one cluster."""

    def __init__(self, store: ClusterStore, redact: Redact, decisions: ClusterDecisions) -> None:
        self._store = store
        self._redact = redact
        self.decisions = decisions

    def job(self, observed: Sequence[EntityObservation], deadline: float) -> ChangeJob[tuple[FollowDecision, ...]]:
        """Return the change of one or several entities."""
        paths = [full_path(Tree.CONFIG, each.entity) for each in observed]
        waits = any(each.emptied is not None for each in observed)
        return ChangeJob(partial(self._decide, observed, deadline=deadline), paths, waits=waits)

    async def _decide(
        self, observed: Sequence[EntityObservation], *, again: bool, deadline: float
    ) -> Draft[tuple[FollowDecision, ...]] | NoChange[tuple[FollowDecision, ...]]:
        """Draft one attempt at a change of one or several entities, with the decision on each.

        Raises:
            CorruptZnodeError: A znode can't be read, or not be written back.
            UnavailableError: ZooKeeper did not answer.
        """
        found: Sequence[Node | UnavailableError | None]
        if again or any(each.emptied is not None for each in observed):
            found = await self._store.read_many(Tree.CONFIG, [each.entity for each in observed], deadline)
        else:
            found = [self.decisions.node(each.entity) for each in observed]
        decisions, writes, rows, observed_ranges = [], [], [], []
        for each, node in zip(observed, found, strict=True):
            if isinstance(node, UnavailableError):
                raise node
            decision, after = self.decisions.decide(each, node)
            decisions.append(decision)
            if decision in UNWRITTEN:
                continue
            if node is not None and node.defect is not None:
                raise CorruptZnodeError(
                    full_path(Tree.CONFIG, each.entity), node.defect, outcome=WriteOutcome.NOT_APPLIED
                )
            writes.append(_write(each, node, decision, after))
            rows.append(self.row(each, node, after))
            observed_ranges.append(_observed_range(each, node, decision))
        if not writes:
            return NoChange(tuple(decisions))
        return Draft(
            tuple(decisions),
            writes=tuple(writes),
            entities=tuple(rows),
            guarded=Guarded.OBSERVED,
            kind=OBSERVED if self.decisions.target.imported else IMPORT,
            observed=min(observed_ranges, key=_begin),
        )

    def row(self, observed: EntityObservation, node: Node | None, after: Mapping[str, str]) -> IntentEntity:
        """Return the trail row, without secrets, of a change of a znode's map to ``after``."""
        entity, before = observed.entity, stored(node)
        facet = self.decisions.rules.facet_of(entity)
        keys = sorted([key for key in before.keys() | after.keys() if before.get(key) != after.get(key)])
        shown_before = self._redact(Tree.CONFIG, entity.id, before) if before else {}
        shown = self._redact(Tree.CONFIG, entity.id, after)
        ops = [_op(facet, entity, key, shown.get(key), removed=key not in after) for key in keys]
        if observed.records:
            given = dict(observed.records)
            # For secrets and unknown keys, only the fact of the write is recorded.
            unshown = sorted([key for key in given if not self.decisions.rules.governs(entity, key)])
            ops += [op_as_json(key, OpType.DELETE if given[key] is None else OpType.SET) for key in unshown]
            keys = sorted({*keys, *unshown})
            if not ops:
                # Records that did not change any value.
                ops = [_op(facet, entity, key, shown.get(key), removed=value is None) for key, value in given.items()]
        return IntentEntity(
            entity_id=entity.id,
            facet=facet.name,
            path=full_path(Tree.CONFIG, entity),
            version_read=None if node is None else node.version,
            czxid_read=None if node is None else node.czxid,
            keys=tuple(keys),
            ops=tuple(ops),
            before=shown_before,
            after=shown,
        )


def _op(facet: Facet, entity: Entity, key: str, shown: str | None, *, removed: bool) -> dict[str, Any]:
    """Return the op of a key; a quota's value is a number if possible."""
    if removed or shown is None:
        return op_as_json(key, OpType.DELETE if removed else OpType.SET)
    return op_as_json(key, OpType.SET, shown_value(facet, entity, key, shown))


def _observed_range(observed: EntityObservation, node: Node | None, decision: FollowDecision) -> ObservedRange:
    """Return the observation for the trail: a run of records that a poll has partly covered is no longer exact.

    Neither is the end of an earlier topic, which happened at some record before those of the current topic. The writes
    in the row of a poll come after everything that the znode has.
    """
    metadata, observed_range = PendingEntity(node, observed.state).metadata, observed.observed_range
    if not observed_range.exact:
        is_later = metadata.after > _begin(observed_range)
        return replace(observed_range, after=metadata.after) if is_later else observed_range
    if decision is FollowDecision.RECREATED:
        return replace(observed_range, after=None if metadata.after < 0 else metadata.after, exact=False, writes=1)
    if not observed.records or observed_range.after is None or metadata.until <= observed_range.after:
        return observed_range
    return replace(observed_range, after=max(observed_range.after, metadata.after), exact=False, writes=1)


def _begin(observed_range: ObservedRange) -> int:
    """Return the offset after which an observation was made. Of several, the earliest counts for all."""
    return -1 if observed_range.after is None else observed_range.after


def _write(
    observed: EntityObservation, node: Node | None, decision: FollowDecision, after: dict[str, str]
) -> EntityWrite:
    pending, observed_range = PendingEntity(node, observed.state), observed.observed_range
    metadata = pending.metadata
    match decision:
        case FollowDecision.REMOVED:
            left = ZnodeMetadata(None, observed.after, observed_range.until)
        case FollowDecision.RECREATED if observed.is_from_log and observed_range.after is not None:
            # The records of the present topic are still to be written.
            left = ZnodeMetadata(None, observed_range.after, observed_range.after)
        case FollowDecision.RECREATED:
            left = ZnodeMetadata(None, metadata.after, observed_range.until)
        case _:
            left = ZnodeMetadata(observed.topic_id or metadata.topic_id, observed.after, observed_range.until)
    left = left._replace(pending_keys=tuple(sorted(pending.refused_keys)) if after else ())
    extra = write_metadata(None if node is None else node.extra, left)
    version, czxid = (None, None) if node is None else (node.version, node.czxid)
    path = full_path(Tree.CONFIG, observed.entity)
    return EntityWrite(path, Tree.CONFIG, observed.entity, version, after, extra, czxid)
