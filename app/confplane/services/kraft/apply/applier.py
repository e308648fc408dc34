"""The applier: the leader's alters of a Kafka cluster's quotas and configs, in the modes ``adopt`` and ``enforce``.

Clients' writes list their keys in the member ``altered`` of the znode (:mod:`confplane.services.pending_keys`). The
applier finds the znodes whose newest revision the cluster has not accepted yet, and adds each to its queue
(:mod:`confplane.services.kraft.apply.apply_queue`). A queue makes its next deliveries durable, sends them together, and
records their outcomes after a barrier. Deliveries with an unknown outcome are sent again, which is safe because the
values are absolute.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree
from confplane.services.background import BackgroundTask
from confplane.services.kraft.apply.applied_watermark import AppliedWatermark
from confplane.services.kraft.apply.apply_queue import ApplyQueue, ApplyQueueCounts, ApplyQueueParts, queue_name
from confplane.services.kraft.report import ApplyReport, ListedNames
from confplane.services.metrics import Sample, of_cluster
from confplane.services.pending_keys import pending_keys
from confplane.services.ports.cluster_states import Freeze
from confplane.services.ports.journal import ExpiredCursor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping

    from confplane.services.kraft.apply.secrets import SecretOpener
    from confplane.services.kraft.ports import ObservedStore
    from confplane.services.ports.applying import TargetStates, WritableKafkaCluster
    from confplane.services.ports.journal import Cursor

logger = logging.getLogger(__name__)

JOURNAL_POLL_S: Final = 0.05
"""Seconds between two reads of the journal."""
IDLE_S: Final = 1.0
STATES_POLL_S: Final = 2.0
"""Seconds between two reads of the states, which show what other processes want to be sent."""
ROUND_S: Final = 60.0


async def _no_report() -> None:
    """Do nothing."""


class Applier:
    """Applies the quotas and configs of one cluster.

    Args:
        cluster: The Kafka cluster.
        store: The cluster's store, started before the first round.
        states: The durable states.
        secrets: Opens passwords.

    Attributes:
        request_poll: Called with entities to poll: applied configs, and znodes changed outside Confplane.
        publish_report: Called to publish the report at once, when deliveries have stopped for a freeze or may resume.
    """

    def __init__(
        self, cluster: WritableKafkaCluster, store: ObservedStore, states: TargetStates, secrets: SecretOpener
    ) -> None:
        self._store = store
        self._states = states
        self._background = BackgroundTask(self._run, name=f"applier-{store.name}")
        self.request_poll: Callable[[Collection[Entity]], None] = lambda _: None
        self.publish_report: Callable[[], Awaitable[None]] = _no_report
        self._counts = ApplyQueueCounts()
        self._watermark = AppliedWatermark(store)
        self._parts = ApplyQueueParts(
            cluster, store, states, secrets, self._counts, self._request_poll, self._watermark.record_completed
        )
        self._deliveries: set[asyncio.Task[None]] = set()
        self._begin_term()

    def _begin_term(self) -> None:
        self._watermark.begin_term()
        self._cursor: Cursor | None = None
        self._queues: defaultdict[str, ApplyQueue] = defaultdict(lambda: ApplyQueue(self._parts))
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        self._problem = ""
        self.states_read_at = float("-inf")
        self._quiesced_version: int | None = None
        self._published_version: int | None = None

    def _request_poll(self, entities: Collection[Entity]) -> None:
        self.request_poll(entities)

    def start(self) -> None:
        """Start in the background."""
        self._background.start()

    async def stop(self) -> None:
        """Stop. The next leader sends unanswered values again."""
        await self._background.stop()
        for each in self._deliveries:
            each.cancel()
        await asyncio.gather(*self._deliveries, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            wait = IDLE_S
            try:
                if await self._begin():
                    wait = JOURNAL_POLL_S
                self._problem = ""
            except UnavailableError as error:
                self._record_problem(error.detail)
            except Exception:
                logger.exception("Cluster %s: applying failed", self._store.name)
                self._record_problem("Applying failed; the leader's log has the error")
            await asyncio.sleep(wait)

    def _record_problem(self, problem: str) -> None:
        if problem != self._problem:
            logger.warning("Cluster %s: its changes wait to be applied: %s", self._store.name, problem)
        self._problem = problem

    def redeliver(self, late: Mapping[str, Collection[str]]) -> None:
        """Send the values of some entities again, according to their states.

        Args:
            late: Entity id -> keys with stale in-flight writes that are put back; no keys for an entity that has a
                delivery without an outcome.
        """
        for entity_id, keys in late.items():
            self._add(entity_id)
            self._counts.late += bool(keys)

    def _add(self, entity_id: str) -> None:
        self._queues[queue_name(Entity.from_id(entity_id))].add(entity_id)

    # -- rounds

    async def round(self) -> bool:
        """Try all queued entities, if this process leads, and wait for the outcomes; return whether it applies changes.

        Raises:
            UnavailableError: The cluster or a store is unavailable. Values that were sent are sent again.
        """
        for queue in self._queues.values():
            queue.retry_now()
        applies = await self._begin()
        await asyncio.gather(*self._in_flight.values())
        if applies:
            await self._watermark.publish(self._waiting, time.monotonic() + ROUND_S)
        return applies

    async def _begin(self) -> bool:
        """Begin the due deliveries, if this process leads; return whether it applies changes now.

        Raises:
            UnavailableError: ZooKeeper is unavailable.
        """
        if not self._store.leadership.held or not self._applies:
            self._begin_term()
            return False
        await self._collect()
        if self._store.status().frozen is not None or self._published_version is not None:
            await self._quiesce(time.monotonic() + ROUND_S)
        due = {name: queue for name, queue in self._queues.items() if name not in self._in_flight and queue.is_ready}
        deadline = time.monotonic() + ROUND_S
        if not due:
            await self._watermark.publish(self._waiting, deadline)
            return True
        if self._store.status().frozen is not None:
            return False
        await self._watermark.publish(self._waiting, deadline)
        for name, queue in due.items():
            delivery = asyncio.create_task(queue.send(deadline), name=f"applier-{self._store.name}-{name}")
            self._in_flight[name] = delivery
            self._deliveries.add(delivery)
            delivery.add_done_callback(partial(self._on_delivery_done, self._in_flight, name))
        return True

    async def _quiesce(self, deadline: float) -> None:
        """Report that a freeze is quiesced, once no delivery is in flight, or that the cluster is thawed.

        Raises:
            UnavailableError: ZooKeeper or Postgres is unavailable.
        """
        state = await self._store.read_state(Freeze, deadline)
        quiesced = None if state.value is None or self._deliveries else state.version
        if quiesced == self._published_version:
            return
        # With all that was committed before the freeze.
        await self._store.catch_up(deadline)
        await self._collect()
        if quiesced is not None:
            # An entity that was added during its last delivery is queued with nothing left to deliver.
            for queue in self._queues.values():
                await queue.prune()
        self._quiesced_version = quiesced
        await self.publish_report()
        self._published_version = quiesced

    def _on_delivery_done(
        self, in_flight: dict[str, asyncio.Task[None]], name: str, delivery: asyncio.Task[None]
    ) -> None:
        """Forget a finished delivery; if it failed, the queue has the reason."""
        del in_flight[name]
        self._deliveries.discard(delivery)
        error = None if delivery.cancelled() else delivery.exception()
        if isinstance(error, UnavailableError):
            logger.warning("Cluster %s: %s wait to be applied: %s", self._store.name, name, error.detail)
        elif error is not None:
            logger.error("Cluster %s: applying of %s failed", self._store.name, name, exc_info=error)

    @property
    def _applies(self) -> bool:
        target = self._store.target()
        return target is not None and target.applies and target.imported and not target.paused

    async def _collect(self) -> None:
        """Queue the entities that clients wrote since the last call.

        The first call, and a call after a gap in the journal, queues every entity with pending keys. Every few seconds
        the entities that another process wants to be sent are queued too: reapplied keys, and external changes to put
        back.
        """
        if time.monotonic() - self.states_read_at >= STATES_POLL_S:
            for entity_id in await self._states.undelivered(self._store.name):
                self._add(entity_id)
            self.states_read_at = time.monotonic()
        read = self._store.journal.read(self._cursor)
        if read is None:
            return
        self._cursor = read.cursor
        found: dict[str, int | None] = {}
        if isinstance(read, ExpiredCursor):
            found = dict.fromkeys(self._store.entities_with_pending_keys())
        else:
            for entry in read.entries:
                if entry.tree is Tree.CONFIG and entry.after is not None and pending_keys(entry.after.extra):
                    found.setdefault(entry.entity_id, entry.revision)
        for entity_id in found:
            self._add(entity_id)
        self._watermark.record_collected(found, read.cursor.revision)

    @property
    def _waiting(self) -> set[str]:
        """The ids of the entities that hold the applied watermark back. Held entities do not; the report lists them."""
        return {each for queue in self._queues.values() for each in queue.pending if each not in queue.held}

    @property
    def differing(self) -> set[str]:
        """The ids of the entities with queued changes, or with changes that the cluster refused."""
        return {each for queue in self._queues.values() for each in (*queue.pending, *queue.refused)}

    # -- report and metrics

    def report(self) -> ApplyReport:
        """Return the leader's report."""
        queues = self._queues.values()
        oldest = min((since for queue in queues for since in queue.pending.values()), default=None)
        return ApplyReport(
            pending=sum(len(queue.pending) for queue in queues),
            waiting_ms=0 if oldest is None else int((time.monotonic() - oldest) * 1000),
            unknown=_names(queue.unknown for queue in queues),
            refused=_names(queue.refused for queue in queues),
            held=_names(queue.held for queue in queues),
            problem=next(filter(None, (self._problem, *(queue.problem for queue in queues))), ""),
            rested=self._quiesced_version,
        )

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics; only the leader has those of queued changes."""
        return of_cluster(self._store.name, self._metrics())

    def _metrics(self) -> Iterator[Sample]:
        for outcome, count in self._counts.outcomes.items():
            yield Sample("applied_changes", count, (outcome,))
        for code, count in self._counts.refusals.items():
            yield Sample("applied_refusals", count, (str(code),))
        yield Sample("applied_late", self._counts.late)
        if self._store.leadership.held and self._applies:
            report = self.report()
            yield Sample("apply_pending", report.pending)
            yield Sample("apply_lag_seconds", report.waiting_ms / 1000)
            yield Sample("apply_unknown", report.unknown.count)
            yield Sample("apply_refused", report.refused.count)


def _names(some: Iterable[Mapping[str, str]]) -> ListedNames:
    return ListedNames.of({name: reason for each in some for name, reason in each.items()})
