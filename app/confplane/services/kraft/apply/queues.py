"""The queues of client changes that the leader applies to a Kafka cluster, in the modes ``adopt`` and ``enforce``.

Clients' writes list their keys in the member ``altered`` of the znode (:mod:`confplane.services.znode_metadata`). The
znodes whose newest revision the cluster has not accepted yet are queued (:mod:`.apply_queue`). A queue makes its next
deliveries durable, sends them together, and records their outcomes after a barrier. Deliveries with an unknown outcome
are sent again, which is safe because the values are absolute.

The applied watermark is the revision up to which no client change is queued. Each change up to it is in one of these
states:

- applied to the Kafka cluster, or refused by it;
- completed because it needs no delivery;
- held, and listed in the report: it is retried alone, for example because a broker is unavailable.

All processes follow the watermark in the znode ``/confplane/applied``, with one watch each. The leader writes the znode
whenever changes complete, even if the revision stays the same, because that wakes the waits for these changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree
from confplane.services.kraft.apply.apply_queue import ApplyQueue, ApplyQueueParts, queue_name
from confplane.services.ports.cluster_states import Freeze
from confplane.services.ports.journal import ExpiredCursor
from confplane.services.ports.kafka import KraftEntityType
from confplane.services.ports.observation_report import ApplyReport, ListedNames
from confplane.services.znode_metadata import read_metadata

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from confplane.services.kraft.apply.deliveries import SecretOpener
    from confplane.services.ports.applying import TargetStates, WritableKafkaCluster
    from confplane.services.ports.journal import Cursor
    from confplane.services.ports.store import ClusterStore

logger = logging.getLogger(__name__)

STATES_POLL_S: Final = 2.0
"""Seconds between two reads of the states, which show what other processes want to be sent."""
EXPIRY_S: Final = 600.0
"""Seconds between two removals of old deliveries."""
_CLAIM_S: Final = 10.0


class ApplyQueues:
    """The queues of one cluster.

    Attributes:
        problem: The reason why rounds fail; empty if they don't.
        outcomes: The number of outcomes of each kind.
        refusals: The number of refusals by Kafka's error code.
    """

    def __init__(
        self, cluster: WritableKafkaCluster, store: ClusterStore, states: TargetStates, secrets: SecretOpener
    ) -> None:
        self._store = store
        self._states = states
        self._parts = ApplyQueueParts(cluster, store, states, secrets)
        self.outcomes, self.refusals = self._parts.outcomes, self._parts.refusals
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        """Queue -> its delivery. One of an earlier term is waited for."""
        self._claim, self._publishing = asyncio.Lock(), asyncio.Lock()
        self.begin_term()

    def begin_term(self) -> None:
        """Forget what is queued: the tree and the durable states have it."""
        self._cursor: Cursor | None = None
        self._collected: int | None = None
        """The revision up to which all changes were queued."""
        self._watermark: int | None = None
        """The watermark that this leader published. The one that an earlier leader published stays valid."""
        self._completed_published = 0
        self._applied_types: frozenset[KraftEntityType] = frozenset()
        self._queues: dict[str, ApplyQueue] = {}
        self.problem = ""
        self.states_read_at = self._expired_at = float("-inf")
        self._claimed = False
        self._quiesced_version: int | None = None
        self._published_version: int | None = None

    async def stop(self) -> None:
        """Cancel the deliveries in flight. The next leader sends unanswered values again."""
        deliveries = list(self._in_flight.values())
        for each in deliveries:
            each.cancel()
        await asyncio.gather(*deliveries, return_exceptions=True)

    def redeliver(self, undelivered: Collection[str]) -> None:
        """Send what the states of some entities have to be sent, for example to put back external values."""
        for entity_id in undelivered:
            self._add(entity_id)

    def _add(self, entity_id: str, first: int | None = None) -> None:
        name = queue_name(Entity.from_id(entity_id))
        if name not in self._queues:
            self._queues[name] = ApplyQueue(self._parts, name)
        self._queues[name].add(entity_id, first)

    def take_delivered(self) -> list[Entity]:
        """Return the entities that must be polled since the last call: their deliveries ended, or can't begin."""
        delivered = list(self._parts.delivered.values())
        self._parts.delivered.clear()
        return delivered

    # -- deliveries

    @property
    def applies(self) -> bool:
        """True if client changes are applied to the cluster now."""
        target = self._store.target()
        return target is not None and target.applies and target.imported and not target.paused

    async def claim_states(self) -> bool:
        """Move the states of an earlier release, once in each term; return False while such a release may lead.

        The target is marked first, so that no process of such a release applies a change after the move.
        """
        async with self._claim:
            target = self._store.target()
            if target is None or not target.applies:
                return True
            if not target.states_by_key:
                self._claimed = False
                if not await self._store.claim_states(time.monotonic() + _CLAIM_S):
                    return False
            if not self._claimed:
                moved = await self._states.move_earlier(self._store.name)
                if moved:
                    logger.info("Cluster %s: the states of %d entities were moved", self._store.name, moved)
                self._claimed = True
            return True

    def due(self) -> dict[str, ApplyQueue]:
        """Return the queues that may deliver now, by name."""
        return {name: queue for name, queue in self._queues.items() if name not in self._in_flight and queue.is_ready}

    def begin_deliveries(self, due: Mapping[str, ApplyQueue], deadline: float) -> None:
        """Begin one delivery of each queue."""
        for name, queue in due.items():
            delivery = asyncio.create_task(self._deliver(queue, deadline), name=f"applier-{self._store.name}-{name}")
            self._in_flight[name] = delivery
            delivery.add_done_callback(partial(self._in_flight.pop, name))

    async def _deliver(self, queue: ApplyQueue, deadline: float) -> None:
        await queue.send(deadline)
        # Callers wait for this; otherwise the next round publishes it.
        if self._store.leadership.held:
            with contextlib.suppress(UnavailableError):
                await self.publish_watermark(deadline)

    async def publish_watermark(self, deadline: float) -> None:
        """Publish the applied watermark, if it rose or changes completed."""
        # Deliveries end concurrently, and the watermark must not fall.
        async with self._publishing:
            if self._collected is None:
                return
            # More may complete during the write.
            completed = self._parts.completed
            pending = [each for queue in self._queues.values() for each in queue.pending.values()]
            below = min([self._collected, *(each.first - 1 for each in pending if each.first is not None)])
            revision = max(self._published_before, below)
            if revision != self._watermark or completed != self._completed_published:
                await self._store.publish_applied(revision, deadline)
                self._watermark, self._completed_published = revision, completed

    @property
    def _published_before(self) -> int:
        """The greatest watermark that this leader or an earlier one published; 0 before the first."""
        return max(self._watermark or 0, self._store.applied_revision() or 0)

    @property
    def is_quiesced(self) -> bool:
        """True if the report says that a freeze is quiesced."""
        return self._published_version is not None

    async def quiesce(self, deadline: float) -> bool:
        """Bring the report up to date with a freeze; return whether it must be published."""
        state = await self._store.read_state(Freeze, deadline)
        quiesced = None if state.value is None or self._in_flight else state.version
        if quiesced == self._published_version:
            return False
        # With all that was committed before the freeze.
        await self._store.catch_up(deadline)
        await self.collect()
        if quiesced is not None:
            # An entity that was added during its last delivery is queued with nothing left to deliver.
            for queue in self._queues.values():
                await queue.prune()
        self._quiesced_version = quiesced
        return True

    def confirm_quiesced(self) -> None:
        """Record that the report was published."""
        self._published_version = self._quiesced_version

    async def collect(self) -> None:
        """Queue the entities that clients wrote since the last call.

        The first call, and a call after a gap in the journal or a change of the modes, queues every entity with pending
        keys. Every few seconds the entities that another process wants to be sent are queued too: reapplied keys, and
        external changes to put back.
        """
        self._follow_modes()
        if time.monotonic() - self.states_read_at >= STATES_POLL_S:
            for entity_id in await self._states.undelivered(self._store.name):
                self._add(entity_id)
            self.states_read_at = time.monotonic()
        if time.monotonic() - self._expired_at >= EXPIRY_S:
            await self._states.expire(self._store.name)
            self._expired_at = time.monotonic()
        read = self._store.journal.read(self._cursor)
        if read is None:
            return
        self._cursor = read.cursor
        if isinstance(read, ExpiredCursor):
            # The journal does not reach back to the revisions of these entities.
            for entity_id in self._store.entities_with_pending_keys():
                self._add(entity_id, self._published_before + 1)
        else:
            for entry in read.entries:
                if (
                    entry.tree is Tree.CONFIG
                    and entry.after is not None
                    and read_metadata(entry.after.extra).pending_keys
                ):
                    self._add(entry.entity_id, entry.revision)
        self._collected = read.cursor.revision

    def _follow_modes(self) -> None:
        """Queue all entities again if clients write other entity types than before: those were left out until now."""
        target = self._store.target()
        applied = frozenset(each for each in KraftEntityType if target is not None and target.applies_to(each))
        if applied != self._applied_types:
            self._applied_types, self._cursor = applied, None
            for queue in self._queues.values():
                queue.list_refused_of(applied)

    @property
    def refused(self) -> set[str]:
        """The ids of the entities that the cluster refused, at least in part."""
        return {each for queue in self._queues.values() for each in queue.refused}

    @property
    def differing(self) -> set[str]:
        """The ids of the entities with queued changes, or with changes that the cluster refused."""
        return self.refused.union(*(queue.pending for queue in self._queues.values()))

    # -- report

    def report(self) -> ApplyReport:
        """Return the leader's report."""
        queues = self._queues.values()
        pending = {entity_id: each for queue in queues for entity_id, each in queue.pending.items()}
        oldest = min((each.since for each in pending.values()), default=None)
        return ApplyReport(
            pending=len(pending),
            waiting_ms=0 if oldest is None else int((time.monotonic() - oldest) * 1000),
            unknown=ListedNames.of({name: each.unknown for name, each in pending.items() if each.unknown}),
            refused=ListedNames.of({name: text for queue in queues for name, text in queue.refused.items()}),
            held=ListedNames.of({name: each.held for name, each in pending.items() if each.held}),
            problem=next(filter(None, (self.problem, *(queue.problem for queue in queues))), ""),
            rested=self._quiesced_version,
        )
