"""The queues of an applier: the entities that wait for one kind of request to the cluster, one request at a time.

There is one queue for client quotas, one for all shared configs, and one per broker for that broker's own configs. So a
broker that is unavailable or slow delays only its own configs.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from confplane.domain.changes import Node
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import ConfplaneError, UnavailableError
from confplane.domain.facets import Tree
from confplane.domain.texts import LONGEST_INDEXED
from confplane.services.background import backoff_s
from confplane.services.kraft.apply.deliveries import EntityDelivery, find_absent_keys, topic_ids_of
from confplane.services.kraft.apply.isolation import alter_isolated
from confplane.services.kraft.pending_entity import PendingEntity, describe_refusals
from confplane.services.metrics import span
from confplane.services.ports.applying import (
    NO_STATE,
    AlterApplied,
    AlterRefused,
    AlterRetriable,
    AlterUnknown,
    Delivery,
    DeliveryOutcome,
    DriftCause,
    DriftRecord,
    RefusedValue,
)
from confplane.services.ports.kafka import KraftEntityType, kraft_type_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from confplane.services.kraft.apply.deliveries import SecretOpener
    from confplane.services.ports.applying import AlterOutcome, TargetStates, WritableKafkaCluster
    from confplane.services.ports.cluster_states import Target
    from confplane.services.ports.store import ClusterStore

logger = logging.getLogger(__name__)

MAX_ENTITIES: Final = 1_000
"""Entities in one delivery round."""
_FIRST_BACKOFF_S: Final = 0.5
_SLOWEST_S: Final = 30.0
_HELD_S: Final = 5.0
_MIRROR_POLL_S: Final = 0.2
"""Seconds between two reads of a mirror that is older than what was sent."""
_RESTORED: Final = (
    "A newer revision than that of ZooKeeper was sent: ZooKeeper was restored, or is another ensemble. End the mode and"
    " begin it again"
)
_NO_TOPIC: Final = "The cluster shows no such topic"
_RECREATED: Final = "The topic was created again; its new configs are followed"
_QUOTAS: Final = "client-quotas"
_CONFIGS: Final = "configs"


def queue_name(entity: Entity) -> str:
    """Return the name of an entity's queue."""
    if kraft_type_of(entity) is KraftEntityType.QUOTAS:
        return _QUOTAS
    own = entity.types[0] is EntityType.BROKER and entity.components[0][1] is not None
    return entity.id if own else _CONFIGS


@dataclass(slots=True)
class ApplyQueueParts:
    """The parts that the queues of a cluster share."""

    cluster: WritableKafkaCluster
    store: ClusterStore
    states: TargetStates
    secrets: SecretOpener
    delivered: dict[str, Entity] = field(default_factory=dict)
    """Entity id -> entities to poll: those that were applied, and those changed outside Confplane."""
    outcomes: Counter[str] = field(default_factory=Counter)
    refusals: Counter[int] = field(default_factory=Counter)
    """Refusals by Kafka's error code."""
    completed: int = 0
    """Changes that no longer hold back the applied watermark."""


@dataclass(slots=True)
class QueuedEntity:
    """An entity that waits."""

    since: float
    """The time at which it was queued. This and the next one are on the clock of ``time.monotonic()``."""
    due: float = 0.0
    """The time before which it is not sent."""
    first: int | None = None
    """The first revision that may belong to its queued changes; None if these do not hold back the watermark."""
    unknown: str = ""
    """The reason why the outcome of its delivery is unknown; empty if it is known."""
    held: str = ""
    """The reason why it alone is retried later; empty if it is not."""


class ApplyQueue:
    """The entities that wait for one kind of request.

    Attributes:
        pending: Entity id -> the entity.
        refused: Entity id -> Kafka's error message.
        problem: The reason why the queue cannot deliver now; empty if it can.
        due: The time of the next delivery.
        mirror_lag_s: Seconds after which a mirror that is older than what was sent is reported as a problem.
    """

    def __init__(self, parts: ApplyQueueParts, name: str) -> None:
        self._parts = parts
        self._name = name
        self.pending: dict[str, QueuedEntity] = {}
        self.refused: dict[str, str] = {}
        self.problem = ""
        self.due = 0.0
        self.mirror_lag_s = 10.0
        self._failures = 0

    def add(self, entity_id: str, first: int | None = None) -> None:
        """Queue an entity, with the first revision that may belong to its changes if they hold back the watermark."""
        queued = self.pending.setdefault(entity_id, QueuedEntity(time.monotonic()))
        if queued.first is None and not queued.held:
            queued.first = first

    @property
    def is_ready(self) -> bool:
        """True if an entity may be sent now."""
        now = time.monotonic()
        return self.due <= now and any(each.due <= now for each in self.pending.values())

    async def send(self, deadline: float) -> None:
        """Send the queued entities, and record the outcomes. Entities of observed types are dropped.

        Values that were sent are sent again if the cluster or a store is unavailable.
        """
        cluster = self._parts.store.name
        try:
            with span("apply", cluster=cluster, entities=len(self.pending)):
                await self._send(deadline)
            self.problem = ""
        except UnavailableError as error:
            logger.warning("Cluster %s: %s wait to be applied: %s", cluster, self._name, error.detail)
            self.problem = error.detail
        except Exception:
            logger.exception("Cluster %s: applying of %s failed", cluster, self._name)
            self.problem = "Applying failed; the leader's log has the error"
        if self.problem or any(each.unknown for each in self.pending.values()):
            self._failures += 1
            self.due = time.monotonic() + backoff_s(self._failures, _FIRST_BACKOFF_S)
        else:
            self._failures = 0

    async def prune(self) -> None:
        """Complete queued entities that have nothing to deliver. Must not run during a delivery."""
        target = self._parts.store.target()
        if target is not None and self.pending:
            await self._due_entities(target)

    def list_refused_of(self, entity_types: Collection[KraftEntityType]) -> None:
        """Leave refused entities of other types out of the report: they are only observed now."""
        self.refused = {
            each: text for each, text in self.refused.items() if kraft_type_of(Entity.from_id(each)) in entity_types
        }

    async def _send(self, deadline: float) -> None:
        parts, target = self._parts, self._parts.store.target()
        cluster = parts.store.name
        with span("decide"):
            deliveries = [] if target is None else await self._next_deliveries(target, deadline)
        if not deliveries:
            return
        with span("intent", entities=len(deliveries)):
            allowed = await parts.states.begin(cluster, [each.delivery for each in deliveries])
            # Read after all writes of ZooKeeper: another mode, a pause or a freeze is effective once it was answered.
            now, frozen = await parts.store.read_target_and_freeze(deadline)
        deliveries = [each for each in deliveries if each.entity.id in allowed]
        nothing = [DeliveryOutcome(each.delivery, AlterRetriable("Nothing was sent")) for each in deliveries]
        if now.value != target or frozen.value is not None:
            # The entities stay queued, and are sent if the mode allows it again.
            await parts.states.end(cluster, nothing)
            return
        try:
            with span("alter", entities=sum(bool(each.delivery.values) for each in deliveries)):
                outcomes = await alter_isolated(parts.cluster, deliveries, deadline)
        except UnavailableError:
            await parts.states.end(cluster, nothing)
            raise
        # Before the barrier, because a controller that hangs blocks the barrier too.
        for each in deliveries:
            if isinstance(outcome := outcomes[each.entity.id], AlterUnknown | AlterRetriable):
                self._record(each, outcome)
        with span("verify"):
            offset = await parts.cluster.barrier(deadline)
        refused = {name: each.refused for name, each in outcomes.items() if isinstance(each, AlterApplied)}
        befores = await parts.states.values_before(cluster, refused)
        ended = [
            DeliveryOutcome(
                each.delivery,
                outcome,
                None if isinstance(outcome, AlterRetriable) else offset,
                _drift_of_refused(each.delivery, refused.get(each.entity.id, {}), befores),
            )
            for each in deliveries
            if not isinstance(outcome := outcomes[each.entity.id], AlterUnknown)
        ]
        with span("outcome", entities=len(ended)):
            await parts.states.end(cluster, ended)
        for each in deliveries:
            if isinstance(outcome := outcomes[each.entity.id], AlterApplied | AlterRefused):
                self._record(each, outcome)
                self._add_newer(each.entity.id, each.delivery.mzxid)
            if isinstance(outcome, AlterApplied):
                parts.delivered[each.entity.id] = each.entity

    def _add_newer(self, entity_id: str, mzxid: int) -> None:
        """Queue an entity again that was changed after a revision; the journal may have shown that already."""
        node = self._parts.store.get(Tree.CONFIG, entity_id)
        if node is not None and node.mzxid > mzxid:
            self.add(entity_id, mzxid + 1)

    # -- what is to be sent

    async def _due_entities(self, target: Target) -> dict[str, PendingEntity]:
        """Return the entities to send now, by id; complete those that have nothing to deliver."""
        for each in [each for each in self.pending if not target.applies_to(kraft_type_of(Entity.from_id(each)))]:
            self._complete(each)
        now, store = time.monotonic(), self._parts.store
        ids = [entity_id for entity_id, each in self.pending.items() if each.due <= now][:MAX_ENTITIES]
        known = await self._parts.states.load(store.name, ids)
        due: dict[str, PendingEntity] = {}
        for entity_id, state in known.items():
            node = store.get(Tree.CONFIG, entity_id)
            if node is None and state.reapply:
                # The znode is gone, and the entity was set externally: only removals are sent.
                node = Node(entity_id, (), version=0, czxid=0, mzxid=state.sent_mzxid, mtime_ms=0)
            pending = PendingEntity(node, state)
            if node is not None and state.sent_mzxid > node.mzxid:
                self._wait_for_mirror(entity_id)
            elif node is not None and node.defect is not None:
                self._hold(entity_id, f"The znode can't be read: it {node.defect}")
            elif node is not None and len(entity_id) > LONGEST_INDEXED:
                self._hold(entity_id, f"Postgres can't index its id, which takes more than {LONGEST_INDEXED} bytes")
            elif not pending.is_due:
                self._complete(entity_id, _describe(state.refused) or describe_refusals(pending.refused_keys))
            else:
                due[entity_id] = pending
        return due

    async def _next_deliveries(self, target: Target, deadline: float) -> list[EntityDelivery]:
        """Return the deliveries to send now, with passwords in clear."""
        due = await self._due_entities(target)
        topic_ids = await topic_ids_of(self._parts.cluster, map(Entity.from_id, due), deadline)
        outlived = {name: topic for name in topic_ids if (topic := due[name].outlived(topic_ids[name])) is not None}
        await self._parts.states.drop(self._parts.store.name, outlived)
        due |= {entity_id: due[entity_id]._replace(state=NO_STATE) for entity_id in outlived}
        deliveries = [
            delivery
            for entity_id, pending in due.items()
            if (delivery := await self._delivery(entity_id, pending, topic_ids)) is not None
        ]
        settled = {
            each.entity.id: keys
            for each in deliveries
            if (keys := due[each.entity.id].settled_keys(each.delivery.values))
        }
        named = await self._parts.states.keys_in_open_changes(self._parts.store.name, settled)
        deliveries = [
            each.excluding([key for key in settled[each.entity.id] if (each.entity.id, key) not in named])
            if each.entity.id in settled
            else each
            for each in deliveries
        ]
        removed = {
            each.entity.id: (due[each.entity.id].state, gone)
            for each in deliveries
            if (gone := [key for key, value in each.delivery.values.items() if value is None])
        }
        absent = await find_absent_keys(self._parts.states, self._parts.store.name, removed)
        return [each._replace(absent=frozenset(absent.get(each.entity.id, ()))) for each in deliveries]

    async def _delivery(
        self, entity_id: str, pending: PendingEntity, topic_ids: Mapping[str, str | None]
    ) -> EntityDelivery | None:
        """Return the delivery of an entity; None if it has nothing to deliver, or must wait."""
        entity, node = Entity.from_id(entity_id), pending.node
        if node is None or not pending.is_due:
            self._complete(entity_id)
            self._add_newer(entity_id, 0 if node is None else node.mzxid)
            return None
        topic_id = topic_ids.get(entity_id)
        if entity_id in topic_ids and (topic_id is None or pending.metadata.topic_id not in {None, topic_id}):
            self._parts.delivered[entity_id] = entity
            self._hold(entity_id, _NO_TOPIC if topic_id is None else _RECREATED)
            return None
        keys, config = sorted(pending.keys), node.config
        try:
            secrets = await self._parts.secrets.of(entity, config, keys)
        except ConfplaneError as error:
            self._hold(entity_id, error.detail)
            return None
        config |= {key: each.fingerprint for key, each in secrets.items()}
        delivery = Delivery(entity_id, node.mzxid, {key: config.get(key) for key in keys}, topic_id)
        return EntityDelivery(entity, delivery, secrets, pending.refused_keys)

    # -- outcomes

    def _record(self, delivery: EntityDelivery, outcome: AlterOutcome) -> None:
        entity_id, outcomes, refusals = delivery.entity.id, self._parts.outcomes, self._parts.refusals
        match outcome:
            case AlterUnknown(reason, None):
                outcomes["unknown"] += 1
                self._defer(entity_id, unknown=reason)
            case AlterUnknown(reason):
                outcomes["unknown"] += 1
                # The cluster answers, and may give the same answer forever.
                self._hold(entity_id, reason, _SLOWEST_S)
            case AlterRetriable(reason):
                self._hold(entity_id, reason)
            case AlterRefused(code):
                outcomes["refused"] += 1
                refusals[code] += 1
                self._complete(entity_id, _describe(outcome))
            case AlterApplied(refused):
                outcomes["partly-refused" if refused else "applied"] += 1
                refusals.update(each.code for each in refused.values())
                self._complete(entity_id, describe_refusals({**delivery.refused, **refused}))

    def _hold(self, entity_id: str, reason: str, seconds: float = _HELD_S) -> None:
        """Retry an entity later without delaying other entities."""
        due = time.monotonic() + seconds * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        self._defer(entity_id, due, held=reason)

    def _wait_for_mirror(self, entity_id: str) -> None:
        """Wait for the mirror to catch up with what another leader sent.

        The mirror never catches up if the ensemble was restored to an earlier time.
        """
        queued = self.pending[entity_id]
        if time.monotonic() - queued.since >= self.mirror_lag_s:
            self._hold(entity_id, _RESTORED)
        else:
            self._defer(entity_id, time.monotonic() + _MIRROR_POLL_S, queued.unknown, queued.held)

    def _defer(self, entity_id: str, due: float = 0.0, unknown: str = "", held: str = "") -> None:
        """Move an entity to the end of the queue. A held one is in the report, and doesn't hold back the watermark."""
        queued = self.pending.pop(entity_id)
        self._parts.completed += bool(held) and queued.first is not None
        self.pending[entity_id] = replace(
            queued, due=due, unknown=unknown, held=held, first=None if held else queued.first
        )

    def _complete(self, entity_id: str, refused: str = "") -> None:
        """Remove an entity from the queue: it has nothing more to send. Its next change arrives by the journal.

        Args:
            entity_id: The entity.
            refused: Kafka's message if the cluster refused its values, or some of its keys.
        """
        queued = self.pending.pop(entity_id, None)
        self._parts.completed += queued is not None and queued.first is not None
        self.refused.pop(entity_id, None)
        if refused:
            self.refused[entity_id] = refused


def _describe(refusal: AlterRefused | None) -> str:
    """Return the refusal of all values of an entity as text; empty if there is none."""
    return "" if refusal is None else f"{refusal.text} (code {refusal.code})"


def _drift_of_refused(
    delivery: Delivery, refused: Mapping[str, AlterRefused], befores: Mapping[tuple[str, str], str | None]
) -> dict[str, DriftRecord]:
    """Return the drift of keys that the cluster refused while it accepted others.

    Args:
        delivery: The delivery.
        refused: The keys.
        befores: Entity id and key -> the value before the change, without keys that are unknown from the trail.
    """
    now_ms, found = time.time_ns() // 1_000_000, {}
    for key, each in refused.items():
        name = delivery.entity_id, key
        absent = name in befores and befores[name] is None
        value = RefusedValue(delivery.values[key], each.code, each.text, absent)
        found[key] = DriftRecord(DriftCause.REFUSED, befores.get(name), now_ms, value)
    return found
