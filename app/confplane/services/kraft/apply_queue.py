"""The lines of an applier: what waits for one kind of request to the cluster, sent together and one request at a time.

Client quotas are one line, all shared configs another, and the own configs of each broker a line for that broker alone.
So a broker that is away or slow holds up nothing but its own configs.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from confplane.domain.changes import Node
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import ConfplaneError, UnavailableError
from confplane.domain.facets import Tree
from confplane.services.kraft import topics
from confplane.services.kraft.sendings import Unsent
from confplane.services.ports.applying import Applied, Ending, Held, Refused, Unknown
from confplane.services.ports.kafka import Area, area_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from confplane.services.kraft.ports import ObservedStore
    from confplane.services.kraft.secrets import Secrets
    from confplane.services.kraft.sendings import Sent
    from confplane.services.ports.applying import Alteration, AlteredCluster, End, TargetState, TargetStates
    from confplane.services.ports.cluster_states import Target

MOST: Final = 1_000
"""Entities in one sending."""
_SLOWEST_S: Final = 30.0
_HELD_S: Final = 5.0
_MIRROR_S: Final = 0.2
"""Seconds between two looks at a mirror that shows less than was sent."""
_BEHIND_S: Final = 10.0
"""Seconds after which such a mirror is no matter of moments."""
_RESTORED: Final = (
    "A newer revision than that of ZooKeeper was sent: ZooKeeper was restored, or is another ensemble. End the mode and"
    " begin it again"
)
_QUOTAS: Final = "client-quotas"
_CONFIGS: Final = "configs"


def line_of(entity: Entity) -> str:
    """Return the name of an entity's line."""
    if area_of(entity) is Area.QUOTAS:
        return _QUOTAS
    own = entity.types[0] is EntityType.BROKER and entity.components[0][1] is not None
    return entity.id if own else _CONFIGS


@dataclass(slots=True)
class Counts:
    """The ends of all lines since the start of the process."""

    ends: Counter[str] = field(default_factory=Counter)
    refusals: Counter[int] = field(default_factory=Counter)
    """By Kafka's number of the error."""
    late: int = 0


@dataclass(slots=True)
class Parts:
    """The parts that the lines of a cluster share.

    Attributes:
        cluster: The Kafka cluster.
        store: The cluster's store.
        states: The durable states.
        secrets: Opens passwords.
        counts: Counts the ends.
        look: Called with entities that are to be looked at: those that were applied, and those that others wrote.
        ended: Called with an entity, and the revision up to which its changes have ended, where a later one waits.
    """

    cluster: AlteredCluster
    store: ObservedStore
    states: TargetStates
    secrets: Secrets
    counts: Counts
    look: Callable[[Collection[Entity]], None]
    ended: Callable[[str, int], None]


class Line:
    """The entities that wait for one kind of request.

    Args:
        parts: The parts of the cluster's lines.

    Attributes:
        pending: Entity id -> the time from which on the entity waits, on the clock of ``time.monotonic()``.
        refused: Entity id -> Kafka's words.
        unknown: Entity id -> the reason why the end of its sending is not known.
        held: Entity id -> the reason why the entity is tried again later, alone.
        problem: The reason why nothing of the line can be sent now; empty where something can.
        due: The time of the next sending.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.pending: dict[str, float] = {}
        self.refused: dict[str, str] = {}
        self.unknown: dict[str, str] = {}
        self.held: dict[str, str] = {}
        self.problem = ""
        self.due = 0.0
        self._held_until: dict[str, float] = {}
        self._failures = 0

    def add(self, entity_id: str) -> None:
        """Let an entity wait."""
        self.pending.setdefault(entity_id, time.monotonic())

    def hurry(self) -> None:
        """Try everything that waits in the next sending."""
        self.due = 0.0
        self._held_until.clear()

    @property
    def waits(self) -> bool:
        """True where something may be sent now."""
        now = time.monotonic()
        return self.due <= now and any(self._held_until.get(each, 0.0) <= now for each in self.pending)

    async def send(self, deadline: float) -> None:
        """Send what waits, and write down the ends. What waits of observed entity types is left.

        Raises:
            UnavailableError: The cluster or a store is away. Values that were sent are sent again.
        """
        try:
            await self._send(deadline)
        except UnavailableError as error:
            self._trouble(error.detail)
            raise
        except Exception:
            self._trouble("Applying failed; the leader's log has the error")
            raise
        self.problem = ""
        self._failures = self._failures + 1 if self.unknown else 0
        if self._failures:
            self.due = time.monotonic() + self._pause()

    async def settle(self) -> None:
        """Settle the entities that wait although nothing of them is to be sent. Not while the line sends.

        Raises:
            UnavailableError: Postgres is away.
        """
        target = self._parts.store.target()
        if target is not None and self.pending:
            await self._due(target)

    def _trouble(self, problem: str) -> None:
        self.problem = problem
        self._failures += 1
        self.due = time.monotonic() + self._pause()

    def _pause(self) -> float:
        longest = min(_SLOWEST_S, 2.0 ** min(self._failures, 10) / 4)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    async def _send(self, deadline: float) -> None:
        parts, target = self._parts, self._parts.store.target()
        sent = [] if target is None else await self._next(target, deadline)
        if not sent:
            return
        allowed = await parts.states.begin(parts.store.name, [each.sending for each in sent])
        # Behind all writes of ZooKeeper: another mode, a pause or a freeze counts from its answer on.
        now, frozen = await parts.store.read_target_and_freeze(deadline)
        sent = [each for each in sent if each.sending.entity_id in allowed]
        if now.value != target or frozen.value is not None:
            # The values wait, and are sent if the mode is that of callers' writes again.
            await self._take_back(sent)
            return
        asked = [each for each in sent if each.sending.values]
        try:
            answered = await self._alter([each.alteration for each in asked], deadline) if asked else []
        except UnavailableError:
            await self._take_back(sent)
            raise
        ends: dict[str, End] = {each.sending.entity_id: Applied() for each in sent}
        ends |= {each.sending.entity_id: each.shown(end) for each, end in zip(asked, answered, strict=True)}
        # Before the barrier: a controller that hangs keeps that from its end as well.
        for entity_id, end in ends.items():
            if isinstance(end, Unknown | Held):
                self._note(entity_id, end)
        offset = await parts.cluster.barrier(deadline)
        endings = [
            Ending(each.sending, end, None if isinstance(end, Held) else offset)
            for each in sent
            if not isinstance(end := ends[each.sending.entity_id], Unknown)
        ]
        await parts.states.end(parts.store.name, endings)
        for each in sent:
            if isinstance(end := ends[each.sending.entity_id], Applied | Refused):
                self._note(each.sending.entity_id, end)
                self._add_newer(each.sending.entity_id, each.sending.mzxid)
        self._compare(sent, ends)

    def _add_newer(self, entity_id: str, mzxid: int) -> None:
        """Let an entity wait again that was changed behind a revision; the journal may have shown that already."""
        node = self._parts.store.get(Tree.CONFIG, entity_id)
        if node is not None and node.mzxid > mzxid:
            self.add(entity_id)
            self._parts.ended(entity_id, mzxid)

    async def _take_back(self, sent: Sequence[Sent]) -> None:
        """Write down that nothing of a sending went out."""
        nothing = Held("Nothing was sent")
        await self._parts.states.end(self._parts.store.name, [Ending(each.sending, nothing) for each in sent])

    async def _alter(self, alterations: Sequence[Alteration], deadline: float) -> list[End]:
        cluster = self._parts.cluster
        alter = cluster.alter_quotas if area_of(alterations[0].entity) is Area.QUOTAS else cluster.alter_configs
        return await alter(alterations, deadline)

    def _compare(self, sent: Sequence[Sent], ends: Mapping[str, End]) -> None:
        """Have the cluster looked at: what was applied, and znodes that others wrote, of which nothing is sent."""
        seen = [
            each.entity for each in sent if not each.sending.values or isinstance(ends[each.sending.entity_id], Applied)
        ]
        if seen:
            self._parts.look(seen)

    # -- what is to be sent

    async def _due(self, target: Target) -> tuple[dict[str, Node], dict[str, TargetState]]:
        """Return the znodes to be sent now, and the states; entities of which nothing is to be sent are settled."""
        for each in [each for each in self.pending if not target.applies_to(area_of(Entity.from_id(each)))]:
            self._settle(each, None)
        now, store = time.monotonic(), self._parts.store
        ids = [each for each in self.pending if self._held_until.get(each, 0.0) <= now][:MOST]
        known = await self._parts.states.known(store.name, ids)
        nodes: dict[str, Node] = {}
        for entity_id in ids:
            node, state = store.get(Tree.CONFIG, entity_id), known.get(entity_id)
            if node is None and state is not None and state.reapply:
                # It is gone here, and others set it again: nothing but removals.
                node = Node(entity_id, (), version=0, czxid=0, mzxid=state.sent_mzxid, mtime_ms=0)
            if state is not None and node is not None and state.sent_mzxid > node.mzxid:
                self._wait_for_mirror(entity_id)
            elif node is not None and node.defect is not None:
                self._hold(entity_id, f"The znode can't be read: it {node.defect}")
            elif node is None or not self._unsent(node, state).is_due:
                self._settle(entity_id, None if state is None else state.refused)
            else:
                nodes[entity_id] = node
        return nodes, known

    async def _next(self, target: Target, deadline: float) -> list[Sent]:
        """Return what is to be sent now, in clear."""
        nodes, known = await self._due(target)
        entities = {entity_id: Entity.from_id(entity_id) for entity_id in nodes}
        topic_ids = await topics.ids_of(self._parts.cluster, entities.values(), deadline)
        outlived = topics.outlived(topic_ids, nodes, known)
        if outlived:
            await self._parts.states.drop(self._parts.store.name, outlived)
            known = {entity_id: each for entity_id, each in known.items() if entity_id not in outlived}
        sent: list[Sent] = []
        taken: dict[str, set[str]] = {}
        for entity_id, node in nodes.items():
            entity, unsent = entities[entity_id], self._unsent(node, known.get(entity_id))
            if not unsent.is_due:
                self._settle(entity_id, None)
                self._add_newer(entity_id, node.mzxid)
                continue
            reason = topics.refusal(topic_ids, node, known.get(entity_id))
            if reason is not None:
                self._parts.look([entity])
                self._hold(entity_id, reason)
                continue
            keys = unsent.keys
            try:
                secrets = await self._parts.secrets.of(entity, node.config, keys)
            except ConfplaneError as error:
                self._hold(entity_id, error.detail)
                continue
            sent.append(unsent.sent(entity, keys, secrets, topic_ids.get(entity_id)))
            if same := unsent.taken(sent[-1]):
                taken[entity_id] = same
        named = await self._parts.states.named(self._parts.store.name, taken)
        left = {name: {key for key in same if (name, key) not in named} for name, same in taken.items()}
        return [each.without(left.get(each.sending.entity_id, ())) for each in sent]

    def _unsent(self, node: Node, state: TargetState | None) -> Unsent:
        return Unsent(node, state)

    # -- what became of it

    def _note(self, entity_id: str, end: End) -> None:
        match end:
            case Unknown():
                self._parts.counts.ends["unknown"] += 1
                if end.code is not None:
                    # The cluster answers, and may answer so for ever.
                    self._hold(entity_id, end.reason, _SLOWEST_S)
                    return
                self.held.pop(entity_id, None)
                self.unknown[entity_id] = end.reason
                self._defer(entity_id)
            case Held():
                self._hold(entity_id, end.reason)
            case Refused():
                self._parts.counts.ends["refused"] += 1
                self._parts.counts.refusals[end.code] += 1
                self._settle(entity_id, end)
            case Applied():
                self._parts.counts.ends["applied"] += 1
                self._settle(entity_id, None)

    def _hold(self, entity_id: str, reason: str, seconds: float = _HELD_S) -> None:
        """Try an entity again later, and let all others go on."""
        self.unknown.pop(entity_id, None)
        self.held[entity_id] = reason
        self._held_until[entity_id] = time.monotonic() + seconds * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        self._defer(entity_id)

    def _wait_for_mirror(self, entity_id: str) -> None:
        """Wait a moment: another leader has sent more than the mirror shows, and the mirror follows.

        It never does where the ensemble was restored to an earlier moment.
        """
        if time.monotonic() - self.pending[entity_id] >= _BEHIND_S:
            self._hold(entity_id, _RESTORED)
            return
        self._held_until[entity_id] = time.monotonic() + _MIRROR_S
        self._defer(entity_id)

    def _defer(self, entity_id: str) -> None:
        """Let all others that wait go first."""
        self.pending[entity_id] = self.pending.pop(entity_id)

    def _settle(self, entity_id: str, refused: Refused | None) -> None:
        """Take note that nothing more is to be sent of an entity; its next change comes by the journal."""
        for each in (self.pending, self.unknown, self.held, self._held_until, self.refused):
            each.pop(entity_id, None)
        if refused is not None:
            self.refused[entity_id] = f"{refused.text} (code {refused.code})"
