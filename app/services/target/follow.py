"""Decisions of changes that follow a cluster: from an entity as it was seen, and its znode, to the write.

A sight of a look has the whole config of an entity. A sight of the log has the records of an entity, and applies to the
config as it is stored. Foreign keys stay. A decision reads the mirror first, and ZooKeeper after a conflict.

No decision removes a znode: the bounds of an emptied one keep out what is older (app/services/target/members.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from app.domain.changes import stored
from app.domain.errors import CorruptZnodeError, UnavailableError, WriteOutcome
from app.domain.facets import Tree, full_path
from app.domain.observed import Sight
from app.domain.ops import Op, OpType
from app.services.altered import altered
from app.services.changes.draft import Draft, Unchanged
from app.services.ports.kafka import area_of
from app.services.ports.trail import IMPORT, OBSERVED, IntentEntity, Sighting
from app.services.ports.transactions import EntityWrite, Guarded
from app.services.target import members

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from app.domain.changes import Node
    from app.domain.entities import Entity
    from app.domain.facets import Facet
    from app.domain.observed import Rules
    from app.services.ports.applying import TargetState
    from app.services.ports.kafka import Area
    from app.services.ports.store import ClusterStore
    from app.services.redaction import Redact
    from app.services.target.members import Members


class Verdict(Enum):
    """The end of a decision."""

    SAME = "same"
    """The znode is as seen."""
    STALE = "stale"
    """The znode has later records than the look: another look is needed."""
    PENDING = "pending"
    """Callers altered the znode, and the cluster has not taken it yet: it is looked at again afterwards."""
    ENFORCED = "enforced"
    """Others changed the entity in the cluster, which is to get the values here again."""
    WRITTEN = "written"
    REMOVED = "removed"
    """The topic's znode is emptied, because the topic is gone."""
    REMADE = "remade"
    """The znode is emptied of an earlier topic of this name; the present topic's configs are a change of its own."""


LEFT: Final = frozenset({Verdict.SAME, Verdict.STALE, Verdict.PENDING, Verdict.ENFORCED})
"""The verdicts by which nothing is written."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One entity as it was seen."""

    entity: Entity
    sighting: Sighting
    """For the trail."""
    after: int
    """All records up to this offset are in the sight."""
    sight: Sight | None = None
    """The whole config of a look; None for a topic that is gone, and for records of single keys."""
    records: tuple[tuple[str, str | None], ...] = ()
    """Of the log: keys with their values in order; None is a removal."""
    topic_id: str | None = None
    state: TargetState | None = None
    """The record of what was sent to the cluster of the entity; read behind the look, under ``adopt`` alone."""
    emptied: int | None = None
    """The revision at which the znode was emptied for this sight: :attr:`Verdict.REMADE`."""

    @property
    def of_log(self) -> bool:
        """True for records of the log, false for a look."""
        return self.sighting.exact


class Decisions:
    """Decides the changes of one cluster.

    Args:
        store: The cluster's store.
        rules: The rules of its configs.
        redact: The redaction of znodes for the trail.
    """

    def __init__(self, store: ClusterStore, rules: Rules, redact: Redact) -> None:
        self._store = store
        self._rules = rules
        self._redact = redact

    def differs(self, seen: Seen) -> bool:
        """Say whether an entity's znode is another than seen, by the mirror.

        Raises:
            UnavailableError: The mirror was never loaded.
        """
        return self._judge(seen, self._store.get(Tree.CONFIG, seen.entity.id))[0] is not Verdict.SAME

    def applies_to(self, area: Area) -> bool:
        """Say whether callers write the quotas or configs of an entity type."""
        target = self._store.target()
        return target is not None and target.applies_to(area)

    def followed(self, seen: Seen, node: Node | None) -> dict[str, str]:
        """Return the map that a look's sight would leave in a znode."""
        return stored(node) if seen.sight is None else self._rules.followed(seen.entity, stored(node), seen.sight)

    def beside(self, seen: Seen, state: TargetState | None) -> tuple[Seen, frozenset[str]]:
        """Return a look's sight beside what was sent to the cluster, and the keys that have late values.

        A value is late where it was sent within a day and is not the newest that was sent for its key: some request
        that got no answer arrived after a newer one. The keys' values here stay, and are to be sent again. A look that
        may be in front of the newest values shows nothing of the kind.
        """
        if state is None or seen.sight is None:
            return seen, frozenset()
        if not state.is_applied or seen.after < state.applied_offset:
            return replace(seen, state=state), frozenset()
        config, late = dict(seen.sight.config), set()
        for key, sent in state.sent.items():
            if key in seen.sight.hidden or not self._rules.governs(seen.entity, key):
                continue  # nobody sees the values of passwords
            now, newest = config.get(key), sent[-1]
            if not self._is_same(seen.entity, key, now, newest) and any(
                self._is_same(seen.entity, key, now, each) for each in sent[:-1]
            ):
                late.add(key)
                config.pop(key, None)
        # The values of hidden keys are not followed.
        sight = Sight(config, seen.sight.hidden | late)
        return replace(seen, sight=sight, state=state), frozenset(late)

    def _is_same(self, entity: Entity, key: str, one: str | None, other: str | None) -> bool:
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
            verdict, after = self._judge_in_mode(each, node)
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
            kind=OBSERVED if self.imported else IMPORT,
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

    @property
    def imported(self) -> bool:
        """True once the import is complete."""
        target = self._store.target()
        return target is not None and target.imported

    def enforces(self, seen: Seen) -> bool:
        """Say whether an entity is to be put back in the cluster, by the mirror.

        Raises:
            UnavailableError: The mirror was never loaded.
        """
        node = self._store.get(Tree.CONFIG, seen.entity.id)
        return self._judge_in_mode(seen, node)[0] is Verdict.ENFORCED

    def _judge_in_mode(self, seen: Seen, node: Node | None) -> tuple[Verdict, dict[str, str]]:
        """Return the verdict in the target's mode, and the map to be stored."""
        verdict, after = self._judge(seen, node)
        target, area = self._store.target(), area_of(seen.entity)
        if verdict is Verdict.SAME or target is None or not target.applies_to(area):
            return verdict, after
        verdict = _of_adopted(seen, node, verdict)
        if verdict is Verdict.WRITTEN and target.enforces(area):
            return self._of_enforced(seen, node, after)
        return verdict, after

    def _judge(self, seen: Seen, node: Node | None) -> tuple[Verdict, dict[str, str]]:
        """Return the verdict, and the map to be stored."""
        known = _known(seen, node)
        if seen.of_log and self.applies_to(area_of(seen.entity)):
            # The log does not say which of the records are this service's own; looks follow the others.
            return Verdict.SAME, stored(node)
        if not seen.of_log:
            return self._judge_look(seen, node, known)
        before = stored(node)
        # Records that an earlier run of the log, or a look behind them, brought into the znode.
        if seen.sighting.until <= known.after:
            return Verdict.SAME, before
        verdict, after = self._judge_records(seen, before, known) if seen.records else _judge_topic(seen, before, known)
        if verdict is Verdict.SAME or seen.sighting.until > known.until:
            return verdict, after
        # A look may have seen them already, and later ones too: it was somewhere in front of its last offset. Written
        # over such a look, a record could bring an older value back.
        return (Verdict.SAME if verdict is Verdict.WRITTEN and after == before else Verdict.STALE), before

    def _judge_look(self, seen: Seen, node: Node | None, known: Members) -> tuple[Verdict, dict[str, str]]:
        before = stored(node)
        if seen.sight is None:
            verdict, after = _judge_topic(seen, before, known)
        else:
            after = self._rules.followed(seen.entity, before, seen.sight)
            if after == before and (node is None or seen.topic_id is None):
                verdict = Verdict.SAME
            elif _remade(seen, known):
                verdict, after = Verdict.REMADE, {}
            elif after == before and (seen.topic_id == known.topic_id or self.imported):
                # Without an id in the znode there is nothing but the id to write, and nobody changed anything. It is
                # written with the next change.
                verdict = Verdict.SAME
            else:
                verdict = Verdict.WRITTEN
        of_this_look = node is not None and node.mzxid == seen.emptied
        if verdict is not Verdict.SAME and seen.after < known.until and not of_this_look:
            verdict = Verdict.STALE
        return verdict, after

    def _of_enforced(self, seen: Seen, node: Node | None, after: dict[str, str]) -> tuple[Verdict, dict[str, str]]:
        """Return the verdict on an entity that others changed, and that is put back; and the map to be stored.

        Keys that the cluster sets by itself are followed all the same.
        """
        state, before = seen.state, stored(node)
        if state is not None and node is not None and state.sent_mzxid > node.mzxid:
            return Verdict.STALE, before  # another process has seen more; the mirror follows
        if state is not None and state.refused is not None:
            return Verdict.SAME, before
        ours = {key: value for key, value in before.items() if not self._rules.manages(seen.entity, key)}
        managed = {key: value for key, value in after.items() if self._rules.manages(seen.entity, key)}
        followed = ours | managed
        return Verdict.ENFORCED if followed == before else Verdict.WRITTEN, followed

    def _judge_records(self, seen: Seen, before: dict[str, str], known: Members) -> tuple[Verdict, dict[str, str]]:
        if _remade(seen, known):
            return Verdict.REMADE, {}
        after = dict(before)
        for key, value in seen.records:
            if not self._rules.governs(seen.entity, key):
                continue
            if value is None:
                after.pop(key, None)
            else:
                after[key] = value
        return Verdict.WRITTEN, after

    def row(self, seen: Seen, node: Node | None, after: Mapping[str, str]) -> IntentEntity:
        """Return the row of the trail, without secrets, for a change of a znode's map to ``after``."""
        entity, before = seen.entity, stored(node)
        facet = self._rules.facet_of(entity)
        keys = sorted([key for key in before.keys() | after.keys() if before.get(key) != after.get(key)])
        # Of secrets and unknown keys a record shows that they were written, and nothing more.
        unshown = sorted({key for key, _ in seen.records if not self._rules.governs(entity, key)})
        shown_before = self._redact(Tree.CONFIG, entity.id, before)
        shown = self._redact(Tree.CONFIG, entity.id, after)
        ops = [_op(facet, entity, key, shown.get(key), removed=key not in after) for key in keys]
        given = dict(seen.records)
        ops += [Op(key, OpType.DELETE if given[key] is None else OpType.SET).as_json() for key in unshown]
        if not ops:
            # Records that left values as they were.
            ops = [_op(facet, entity, key, shown.get(key), removed=value is None) for key, value in given.items()]
        return IntentEntity(
            entity_id=entity.id,
            facet=facet.name,
            path=full_path(Tree.CONFIG, entity),
            version_read=None if node is None else node.version,
            czxid_read=None if node is None else node.czxid,
            keys=tuple(sorted({*keys, *unshown})),
            ops=tuple(ops),
            before=shown_before,
            after=shown,
        )


def _op(facet: Facet, entity: Entity, key: str, shown: str | None, *, removed: bool) -> dict[str, Any]:
    """Return the op of a key; a quota's value is a number, where it can be one."""
    if removed or shown is None:
        return Op(key, OpType.DELETE if removed else OpType.SET).as_json()
    try:
        return Op(key, OpType.SET, facet.decode(entity, key, shown)).as_json()
    except ValueError:
        return Op(key, OpType.SET, shown).as_json()


def _sighting(seen: Seen, node: Node | None, verdict: Verdict) -> Sighting:
    """Return the sighting for the trail: a run of records that a look has seen in part is exact no more.

    Nor is the end of an earlier topic, which was at some record in front of those of the present topic. The writes in a
    look's row are behind all that the znode has.
    """
    known = _known(seen, node)
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


def _of_adopted(seen: Seen, node: Node | None, verdict: Verdict) -> Verdict:
    """Return the verdict on an entity that callers write: what the cluster has not taken from here is not undone.

    The state was read behind the look. Where it names the znode's present revision, the cluster had taken that revision
    at some offset, and a look behind the offset shows what others did since. A topic that is gone, or was made again,
    takes what waits for the earlier one with it.
    """
    if verdict in {Verdict.REMOVED, Verdict.REMADE}:
        return verdict
    state = seen.state
    if node is not None and altered(node.extra) and (state is None or state.applied_mzxid != node.mzxid):
        refused = state is not None and state.is_settled(node.mzxid)
        return Verdict.SAME if refused else Verdict.PENDING
    if state is None:
        return verdict
    if state.is_open:
        return Verdict.PENDING
    return Verdict.STALE if seen.after < state.applied_offset else verdict


def _known(seen: Seen, node: Node | None) -> Members:
    """Return the members of a znode.

    A topic's first configs are written without its id where the cluster could not be asked. They are those of the topic
    that they were sent to.
    """
    if node is None:
        return members.NONE
    known = members.read(node.extra)
    if known.topic_id is None and seen.state is not None and altered(node.extra):
        return known._replace(topic_id=seen.state.topic_id)
    return known


def _judge_topic(seen: Seen, before: dict[str, str], known: Members) -> tuple[Verdict, dict[str, str]]:
    """Judge a topic that is gone, or that the log shows as made just now: no earlier config counts for it."""
    if not before and known.topic_id is None:
        return Verdict.SAME, before
    if seen.sight is not None:
        return Verdict.REMADE, {}
    # The log removes a topic by its id, and the znode may be that of a later topic of this name.
    return (Verdict.SAME, before) if _remade(seen, known) else (Verdict.REMOVED, {})


def _remade(seen: Seen, known: Members) -> bool:
    return None not in {seen.topic_id, known.topic_id} and seen.topic_id != known.topic_id


def _write(seen: Seen, node: Node | None, verdict: Verdict, after: dict[str, str]) -> EntityWrite:
    known, sighting = _known(seen, node), seen.sighting
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
