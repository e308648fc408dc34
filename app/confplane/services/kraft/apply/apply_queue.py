"""The queues of an applier: the entities that wait for one kind of request to the cluster, one request at a time.

There is one queue for client quotas, one for all shared configs, and one per broker for that broker's own configs. So a
broker that is unavailable or slow delays only its own configs.
"""

from __future__ import annotations

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
    from collections.abc import Collection, Mapping, Sequence

    from confplane.services.kraft.apply.deliveries import SecretOpener
    from confplane.services.ports.applying import AlterOutcome, TargetStates, WritableKafkaCluster
    from confplane.services.ports.cluster_states import Target
    from confplane.services.ports.store import ClusterStore

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

    def __init__(self, parts: ApplyQueueParts) -> None:
        self._parts = parts
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

        Raises:
            UnavailableError: The cluster or a store is unavailable. Values that were sent are sent again.
        """
        try:
            with span("apply", cluster=self._parts.store.name, entities=len(self.pending)):
                await self._send(deadline)
        except UnavailableError as error:
            self._record_failure(error.detail)
            raise
        except Exception:
            self._record_failure("Applying failed; the leader's log has the error")
            raise
        self.problem = ""
        self._failures = self._failures + 1 if any(each.unknown for each in self.pending.values()) else 0
        if self._failures:
            self.due = time.monotonic() + backoff_s(self._failures, _FIRST_BACKOFF_S)

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

    def _record_failure(self, problem: str) -> None:
        self.problem = problem
        self._failures += 1
        self.due = time.monotonic() + backoff_s(self._failures, _FIRST_BACKOFF_S)

    async def _send(self, deadline: float) -> None:
        parts, target = self._parts, self._parts.store.target()
        with span("decide"):
            deliveries = [] if target is None else await self._next_deliveries(target, deadline)
        if not deliveries:
            return
        with span("intent", entities=len(deliveries)):
            allowed = await parts.states.begin(parts.store.name, [each.delivery for each in deliveries])
            # Read after all writes of ZooKeeper: another mode, a pause or a freeze is effective once it was answered.
            now, frozen = await parts.store.read_target_and_freeze(deadline)
        deliveries = [each for each in deliveries if each.delivery.entity_id in allowed]
        if now.value != target or frozen.value is not None:
            # The entities stay queued, and are sent if the mode allows it again.
            await self._withdraw(deliveries)
            return
        requested = [each for each in deliveries if each.delivery.values]
        try:
            with span("alter", entities=len(requested)):
                answered = await alter_isolated(parts.cluster, requested, deadline) if requested else []
        except UnavailableError:
            await self._withdraw(deliveries)
            raise
        outcomes: dict[str, AlterOutcome] = {each.delivery.entity_id: AlterApplied() for each in deliveries}
        outcomes |= {
            each.delivery.entity_id: each.to_outcome(answer) for each, answer in zip(requested, answered, strict=True)
        }
        # Before the barrier, because a controller that hangs blocks the barrier too.
        for entity_id, outcome in outcomes.items():
            if isinstance(outcome, AlterUnknown | AlterRetriable):
                self._record(entity_id, outcome)
        with span("verify"):
            offset = await parts.cluster.barrier(deadline)
        refused = await self._refused_keys(deliveries, outcomes)
        delivery_outcomes = [
            DeliveryOutcome(
                each.delivery,
                outcome,
                None if isinstance(outcome, AlterRetriable) else offset,
                refused.get(each.delivery.entity_id, {}),
            )
            for each in deliveries
            if not isinstance(outcome := outcomes[each.delivery.entity_id], AlterUnknown)
        ]
        with span("outcome", entities=len(delivery_outcomes)):
            await parts.states.end(parts.store.name, delivery_outcomes)
        for each in deliveries:
            if isinstance(outcome := outcomes[each.delivery.entity_id], AlterApplied | AlterRefused):
                self._record(each.delivery.entity_id, outcome)
                if isinstance(outcome, AlterRefused):
                    self._list_refused(each.delivery.entity_id, outcome, {})
                else:
                    self._list_refused(each.delivery.entity_id, None, {**each.refused, **outcome.refused})
                self._add_newer(each.delivery.entity_id, each.delivery.mzxid)
        self._request_poll(deliveries, outcomes)

    def _add_newer(self, entity_id: str, mzxid: int) -> None:
        """Queue an entity again that was changed after a revision; the journal may have shown that already."""
        node = self._parts.store.get(Tree.CONFIG, entity_id)
        if node is not None and node.mzxid > mzxid:
            self.add(entity_id, mzxid + 1)

    async def _withdraw(self, deliveries: Sequence[EntityDelivery]) -> None:
        """Record that nothing of some deliveries was sent."""
        nothing = AlterRetriable("Nothing was sent")
        await self._parts.states.end(
            self._parts.store.name, [DeliveryOutcome(each.delivery, nothing) for each in deliveries]
        )

    async def _refused_keys(
        self, deliveries: Sequence[EntityDelivery], outcomes: Mapping[str, AlterOutcome]
    ) -> dict[str, dict[str, DriftRecord]]:
        """Return the drift of keys that the cluster refused while it accepted others, by entity id."""
        refused = {
            each.delivery.entity_id: (each.delivery, outcome.refused)
            for each in deliveries
            if isinstance(outcome := outcomes[each.delivery.entity_id], AlterApplied) and outcome.refused
        }
        keys = {entity_id: list(found) for entity_id, (_, found) in refused.items()}
        befores = await self._parts.states.values_before(self._parts.store.name, keys)
        now_ms = time.time_ns() // 1_000_000
        return {
            entity_id: {
                key: DriftRecord(
                    DriftCause.REFUSED,
                    befores.get((entity_id, key)),
                    now_ms,
                    RefusedValue(delivery.values[key], each.code, each.text, befores.get((entity_id, key), "") is None),
                )
                for key, each in found.items()
            }
            for entity_id, (delivery, found) in refused.items()
        }

    def _request_poll(self, deliveries: Sequence[EntityDelivery], outcomes: Mapping[str, AlterOutcome]) -> None:
        """Request a poll of applied entities, and of externally changed znodes with nothing to send."""
        self._parts.delivered |= {
            each.entity.id: each.entity
            for each in deliveries
            if not each.delivery.values or isinstance(outcomes[each.delivery.entity_id], AlterApplied)
        }

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
                self._complete(entity_id)
                self._list_refused(entity_id, state.refused, pending.refused_keys)
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
        left = {name: {key for key in keys if (name, key) not in named} for name, keys in settled.items()}
        deliveries = [each.excluding(left.get(each.entity.id, ())) for each in deliveries]
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

    def _record(self, entity_id: str, outcome: AlterOutcome) -> None:
        match outcome:
            case AlterUnknown():
                self._parts.outcomes["unknown"] += 1
                if outcome.code is not None:
                    # The cluster answers, and may give the same answer forever.
                    self._hold(entity_id, outcome.reason, _SLOWEST_S)
                    return
                self._defer(entity_id, unknown=outcome.reason)
            case AlterRetriable():
                self._hold(entity_id, outcome.reason)
            case AlterRefused():
                self._parts.outcomes["refused"] += 1
                self._parts.refusals[outcome.code] += 1
                self._complete(entity_id)
            case AlterApplied():
                self._parts.outcomes["partly-refused" if outcome.refused else "applied"] += 1
                self._parts.refusals.update(each.code for each in outcome.refused.values())
                self._complete(entity_id)

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

    def _complete(self, entity_id: str) -> None:
        """Remove an entity from the queue: it has nothing more to send. Its next change arrives by the journal."""
        self.refused.pop(entity_id, None)
        queued = self.pending.pop(entity_id, None)
        self._parts.completed += queued is not None and queued.first is not None

    def _list_refused(
        self, entity_id: str, whole: AlterRefused | None, keys: Mapping[str, AlterRefused | RefusedValue]
    ) -> None:
        """List what the cluster refused of an entity: all its values, or some keys."""
        if whole is not None:
            self.refused[entity_id] = f"{whole.text} (code {whole.code})"
        elif keys:
            self.refused[entity_id] = describe_refusals(keys)
