"""Verdicts on entities as they were seen in a cluster, given their znodes: what follows, and what is left.

A sight of a look has the whole config of an entity. A sight of the log has the records of an entity, and applies to the
config as it is stored. Foreign keys stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from confplane.domain.changes import stored
from confplane.services.altered import altered
from confplane.services.kraft import members
from confplane.services.ports.kafka import area_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.domain.observed import Rules, Sight
    from confplane.services.kraft.members import Members
    from confplane.services.ports.applying import TargetState
    from confplane.services.ports.kafka import Area
    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import Sighting


class Verdict(Enum):
    """The end of a decision."""

    SAME = "same"
    """The znode is as seen."""
    STALE = "stale"
    """The znode has later records than the look: another look is needed."""
    PENDING = "pending"
    """Callers altered the znode, and the cluster has not taken it yet: it is looked at again afterwards."""
    REFUSED = "refused"
    """The cluster refused what callers wrote: what others change waits until callers alter the entity again."""
    ENFORCED = "enforced"
    """Another writer changed the entity in the cluster, which is to get the values here again."""
    WRITTEN = "written"
    REMOVED = "removed"
    """The topic's znode is emptied, because the topic is gone."""
    REMADE = "remade"
    """The znode is emptied of an earlier topic of this name; the present topic's configs are a change of its own."""


LEFT: Final = frozenset({Verdict.SAME, Verdict.STALE, Verdict.PENDING, Verdict.REFUSED, Verdict.ENFORCED})
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
    late: Mapping[str, str | None] = field(default_factory=dict)
    """Keys with values of sendings that have no certain end, as they were sent. They are hidden in the sight."""
    emptied: int | None = None
    """The revision at which the znode was emptied for this sight: :attr:`Verdict.REMADE`."""

    @property
    def of_log(self) -> bool:
        """True for records of the log, false for a look."""
        return self.sighting.exact


class Judge:
    """Judges the sights of one cluster.

    Args:
        store: The cluster's store.
        rules: The rules of its configs.
    """

    def __init__(self, store: ClusterStore, rules: Rules) -> None:
        self._store = store
        self._rules = rules

    def applies_to(self, area: Area) -> bool:
        """Say whether callers write the quotas or configs of an entity type."""
        target = self._store.target()
        return target is not None and target.applies_to(area)

    @property
    def imported(self) -> bool:
        """True once the import is complete."""
        target = self._store.target()
        return target is not None and target.imported

    def verdict_in_mode(self, seen: Seen, node: Node | None) -> tuple[Verdict, dict[str, str]]:
        """Return the verdict in the target's mode, and the map to be stored."""
        verdict, after = self.verdict(seen, node)
        target, area = self._store.target(), area_of(seen.entity)
        if verdict is Verdict.SAME or target is None or not target.applies_to(area):
            return verdict, after
        verdict = _of_adopted(seen, node, verdict)
        if verdict is Verdict.WRITTEN and target.enforces(area):
            return self._of_enforced(seen, node, after)
        return verdict, after

    def puts_back(self, seen: Seen, node: Node | None) -> bool:
        """Say whether the late values of a look are to be put back: nothing of the entity waits, or was refused."""
        state = seen.state
        if state is None or (node is not None and state.sent_mzxid > node.mzxid):
            return False  # another process has seen more; the mirror follows
        return _of_adopted(seen, node, Verdict.WRITTEN) is Verdict.WRITTEN

    def verdict(self, seen: Seen, node: Node | None) -> tuple[Verdict, dict[str, str]]:
        """Return the verdict, and the map to be stored."""
        known = known_of(seen, node)
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
            return Verdict.REFUSED, before
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


def _of_adopted(seen: Seen, node: Node | None, verdict: Verdict) -> Verdict:
    """Return the verdict on an entity that callers write: what the cluster has not taken from here is not undone.

    The state was read behind the look. Where it names the znode's present revision, the cluster had taken that revision
    at some offset, and a look behind the offset shows what others did since. A topic that is gone, or was made again,
    takes what waits for the earlier one with it.
    """
    state = seen.state
    if verdict in {Verdict.REMOVED, Verdict.REMADE}:
        behind = state is not None and seen.after < state.applied_offset and seen.emptied is None
        return Verdict.STALE if behind else verdict
    if node is not None and state is not None and state.refused is not None and state.sent_mzxid == node.mzxid:
        return Verdict.REFUSED
    if node is not None and altered(node.extra) and (state is None or state.applied_mzxid != node.mzxid):
        return Verdict.PENDING
    if state is None:
        return verdict
    if state.is_open:
        return Verdict.PENDING
    return Verdict.STALE if seen.after < state.applied_offset else verdict


def known_of(seen: Seen, node: Node | None) -> Members:
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
