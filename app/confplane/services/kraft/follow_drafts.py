"""Decisions of changes that follow a cluster: from the verdict on an entity as it was seen to the write and its row.

A decision reads the mirror first, and ZooKeeper after a conflict.

No decision removes a znode: the bounds of an emptied one keep out what is older (services/kraft/members.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from confplane.domain.changes import stored
from confplane.domain.errors import CorruptZnodeError, UnavailableError, WriteOutcome
from confplane.domain.facets import Tree, full_path
from confplane.domain.observed import Sight
from confplane.domain.ops import OpType, op_as_json
from confplane.services.changes.draft import Draft, Unchanged
from confplane.services.kraft import members
from confplane.services.kraft.verdicts import LEFT, Judge, Verdict, known_of
from confplane.services.ports.trail import IMPORT, OBSERVED, IntentEntity, Sighting
from confplane.services.ports.transactions import EntityWrite, Guarded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.domain.facets import Facet
    from confplane.domain.observed import Rules
    from confplane.services.kraft.verdicts import Seen
    from confplane.services.ports.applying import TargetState
    from confplane.services.ports.store import ClusterStore
    from confplane.services.redaction import Redact


class Decisions:
    """Decides the changes of one cluster.

    Args:
        store: The cluster's store.
        rules: The rules of its configs.
        redact: The redaction of znodes for the trail.

    Attributes:
        judge: The verdicts.
    """

    def __init__(self, store: ClusterStore, rules: Rules, redact: Redact) -> None:
        self._store = store
        self._rules = rules
        self._redact = redact
        self.judge = Judge(store, rules)

    def differs(self, seen: Seen) -> bool:
        """Say whether an entity's znode is another than seen, by the mirror.

        Raises:
            UnavailableError: The mirror was never loaded.
        """
        return self.judge.verdict(seen, self._store.get(Tree.CONFIG, seen.entity.id))[0] is not Verdict.SAME

    def followed(self, seen: Seen, node: Node | None) -> dict[str, str]:
        """Return the map that a look's sight would leave in a znode."""
        return stored(node) if seen.sight is None else self._rules.followed(seen.entity, stored(node), seen.sight)

    def beside(self, seen: Seen, state: TargetState | None) -> Seen:
        """Return a look's sight beside what was sent to the cluster.

        A value is late where it is another than here, and a sending of it has no certain end: that one may have arrived
        just now, whoever set the key meanwhile. The keys' values here stay, and are to be sent again. A look that may
        be in front of the newest values shows nothing of the kind.
        """
        sight = seen.sight
        if state is None or sight is None:
            return seen
        seen = replace(seen, state=state)
        if not state.is_applied or not state.is_of(seen.topic_id) or seen.after < state.applied_offset:
            return seen
        ours, late = stored(self._store.get(Tree.CONFIG, seen.entity.id)), dict[str, str | None]()
        for key, values in state.uncertain.items():
            if key in sight.hidden or not self._rules.governs(seen.entity, key):
                continue  # nobody sees the values of passwords
            now = sight.config.get(key)
            arrived = [each for each in values if self.is_same(seen.entity, key, now, each)]
            if arrived and not self.is_same(seen.entity, key, now, ours.get(key)):
                late[key] = arrived[0]
        if not late:
            return seen
        config = {key: value for key, value in sight.config.items() if key not in late}
        # The values of hidden keys are not followed.
        return replace(seen, sight=Sight(config, sight.hidden | late.keys()), late=late)

    def is_same(self, entity: Entity, key: str, one: str | None, other: str | None) -> bool:
        """Say whether two values of a key mean the same; None is absent."""
        if one is None or other is None:
            return one is other
        return self._rules.same(entity, key, one, other)

    async def decide(
        self, seen: Sequence[Seen], *, again: bool, deadline: float
    ) -> Draft[tuple[Verdict, ...]] | Unchanged[tuple[Verdict, ...]]:
        """Decide one attempt at a change of one entity, or of several; return with the verdict on each.

        Raises:
            CorruptZnodeError: A znode can't be read, or not be written back.
            UnavailableError: ZooKeeper did not answer.
        """
        if again or any(each.emptied is not None for each in seen):
            nodes = await self._read(seen, deadline)
        else:
            nodes = [self._store.get(Tree.CONFIG, each.entity.id) for each in seen]
        verdicts, writes, rows, sightings = [], [], [], []
        for each, node in zip(seen, nodes, strict=True):
            verdict, after = self.judge.verdict_in_mode(each, node)
            verdicts.append(verdict)
            if verdict in LEFT:
                continue
            if node is not None and node.defect is not None:
                raise CorruptZnodeError(
                    full_path(Tree.CONFIG, each.entity), node.defect, outcome=WriteOutcome.NOT_APPLIED
                )
            writes.append(_write(each, node, verdict, after))
            rows.append(self.row(each, node, after))
            sightings.append(_sighting(each, node, verdict))
        if not writes:
            return Unchanged(tuple(verdicts))
        return Draft(
            tuple(verdicts),
            writes=tuple(writes),
            entities=tuple(rows),
            guarded=Guarded.OBSERVED,
            kind=OBSERVED if self.judge.imported else IMPORT,
            observed=min(sightings, key=_begin),
        )

    async def _read(self, seen: Sequence[Seen], deadline: float) -> list[Node | None]:
        found = await self._store.read_many(Tree.CONFIG, [each.entity for each in seen], deadline)
        nodes = []
        for node in found:
            if isinstance(node, UnavailableError):
                raise node
            nodes.append(node)
        return nodes

    def enforces(self, seen: Seen) -> bool:
        """Say whether an entity is to be put back in the cluster, by the mirror.

        Raises:
            UnavailableError: The mirror was never loaded.
        """
        node = self._store.get(Tree.CONFIG, seen.entity.id)
        return self.judge.verdict_in_mode(seen, node)[0] is Verdict.ENFORCED

    def puts_back(self, seen: Seen) -> bool:
        """Say whether the late values of a look are to be put back, by the mirror.

        Raises:
            UnavailableError: The mirror was never loaded.
        """
        return self.judge.puts_back(seen, self._store.get(Tree.CONFIG, seen.entity.id))

    def row(self, seen: Seen, node: Node | None, after: Mapping[str, str]) -> IntentEntity:
        """Return the row of the trail, without secrets, for a change of a znode's map to ``after``."""
        entity, before = seen.entity, stored(node)
        facet = self._rules.facet_of(entity)
        keys = sorted([key for key in before.keys() | after.keys() if before.get(key) != after.get(key)])
        shown_before = self._redact(Tree.CONFIG, entity.id, before) if before else {}
        shown = self._redact(Tree.CONFIG, entity.id, after)
        ops = [_op(facet, entity, key, shown.get(key), removed=key not in after) for key in keys]
        if seen.records:
            given = dict(seen.records)
            # Of secrets and unknown keys a record shows that they were written, and nothing more.
            unshown = sorted([key for key in given if not self._rules.governs(entity, key)])
            ops += [op_as_json(key, OpType.DELETE if given[key] is None else OpType.SET) for key in unshown]
            keys = sorted({*keys, *unshown})
            if not ops:
                # Records that left values as they were.
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
    """Return the op of a key; a quota's value is a number, where it can be one."""
    if removed or shown is None:
        return op_as_json(key, OpType.DELETE if removed else OpType.SET)
    try:
        return op_as_json(key, OpType.SET, facet.decode(entity, key, shown))
    except ValueError:
        return op_as_json(key, OpType.SET, shown)


def _sighting(seen: Seen, node: Node | None, verdict: Verdict) -> Sighting:
    """Return the sighting for the trail: a run of records that a look has seen in part is exact no more.

    Nor is the end of an earlier topic, which was at some record in front of those of the present topic. The writes in a
    look's row are behind all that the znode has.
    """
    known = known_of(seen, node)
    sighting = seen.sighting
    if not sighting.exact:
        return sighting if known.after <= _begin(sighting) else replace(sighting, after=known.after)
    if verdict is Verdict.REMADE:
        return replace(sighting, after=None if known.after < 0 else known.after, exact=False, writes=1)
    if not seen.records or sighting.after is None:
        return sighting
    if known.until <= sighting.after:
        return sighting
    return replace(sighting, after=max(sighting.after, known.after), exact=False, writes=1)


def _begin(sighting: Sighting) -> int:
    """Return the offset behind which a sighting is: the earliest of several counts for all of them."""
    return -1 if sighting.after is None else sighting.after


def _write(seen: Seen, node: Node | None, verdict: Verdict, after: dict[str, str]) -> EntityWrite:
    known, sighting = known_of(seen, node), seen.sighting
    match verdict:
        case Verdict.REMOVED:
            left = members.Members(None, seen.after, sighting.until)
        case Verdict.REMADE if seen.of_log and sighting.after is not None:
            # The records of the present topic are still to be written.
            left = members.Members(None, sighting.after, sighting.after)
        case Verdict.REMADE:
            left = members.Members(None, known.after, sighting.until)
        case _:
            left = members.Members(seen.topic_id or known.topic_id, seen.after, sighting.until)
    extra = members.written(None if node is None else node.extra, left)
    version, czxid = (None, None) if node is None else (node.version, node.czxid)
    return EntityWrite(Tree.CONFIG, seen.entity, version, after, extra, czxid)
