"""One round of the reconcile loop of a Kafka cluster: the page on which it can be read.

========  ===================================================  ====================================================
step      :meth:`Round.observe`: from the cluster to the tree  :meth:`Round.apply`: from the tree to the cluster
========  ===================================================  ====================================================
snapshot  describe the entities that are due                   read the journal for znodes with client changes
decide    :func:`confplane.services.kraft.decisions.decide`    leave out what the cluster has, hold what must wait
write     change the tree, or mark keys to be sent again       make deliveries durable, and send them
verify    clear the drift of equal entities                    record outcomes after a barrier; poll the entities
report    ``/confplane/observation``                           ``/confplane/applied``
========  ===================================================  ====================================================

Only the leader has rounds. Both kinds run concurrently, because a describe may take seconds and changes must not wait.
The steps that send or write are spans of traces: those of ``observe``, and of each delivery's ``apply``.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import UnavailableError
from confplane.services.kraft.observe.entity_types import RETRY_S
from confplane.services.kraft.reconcile.follow_writer import FollowResult
from confplane.services.kraft.reconcile.polls import FailedPollError
from confplane.services.metrics import span
from confplane.services.ports.kafka import NotPermittedError

if TYPE_CHECKING:
    from confplane.services.kraft.apply.queues import ApplyQueues
    from confplane.services.kraft.observe.entity_types import EntityTypeState
    from confplane.services.kraft.observe.poller import PollResult
    from confplane.services.kraft.observe.session import ClusterSession
    from confplane.services.kraft.reconcile.follow_writer import FollowWriter
    from confplane.services.kraft.reconcile.polls import Polls
    from confplane.services.kraft.reporter import LeaderReporter
    from confplane.services.ports.store import ClusterStore

POLL_TIMEOUT_S: Final = 30.0
"""Seconds for one poll."""
ROUND_S: Final = 60.0
"""Seconds for the deliveries that one round begins."""


class Round:
    """The rounds of one cluster."""

    def __init__(
        self,
        store: ClusterStore,
        session: ClusterSession,
        writer: FollowWriter,
        polls: Polls,
        queues: ApplyQueues,
        reporter: LeaderReporter,
    ) -> None:
        self._store = store
        self._session = session
        self._writer = writer
        self._polls = polls
        self._queues = queues
        self._reporter = reporter
        self._log = polls.log
        self._lock = asyncio.Lock()

    # -- cluster to tree

    async def observe(self) -> bool:
        """Reconcile the entities that are due, if this process leads; return whether it observes.

        Raises:
            UnavailableError: The cluster or a store is unavailable, or it is another cluster. Nothing wrong was
                written, and the next round continues.
            ObservedError: The observation was paused during the round.
        """
        target = self._store.target()
        if not (self._store.leadership.held and target and target.imported and await self._queues.claim_states()):
            await self.step_down()
            return False
        if not self._reporter.leading:
            self._reporter.begin_term(target)
        if target.paused:
            await self._stop_log()
            # The operator who resumes has checked the cluster: an older release is accepted from then on.
            self._session.reset()
            self._reporter.clear_problem()
            return False
        await self._session.check(target)
        self._polls.permit(await self._session.permissions())
        if self._log is not None:
            self._log.start(self.reconcile_up_to)
        async with self._lock:
            self._polls.restart_changed_modes()
            await self._reconcile_requested()
            for state in self._polls.due_types():
                try:
                    await self._reconcile_type(state)
                except FailedPollError as error:
                    # If the cluster is available, the other entity types are polled as usual.
                    self._session.expire()
                    await self._session.check(target)
                    state.record_failed(error.detail)
        self._reporter.clear_problem()
        return True

    async def step_down(self) -> None:
        """End the term of this process as the leader."""
        await self._stop_log()
        self._reporter.leading = False

    async def _stop_log(self) -> None:
        if self._log is not None:
            await self._log.stop()

    async def reconcile_up_to(self, offset: int) -> None:
        """Reconcile everything that the cluster shows, as of an offset or later."""
        async with self._lock:
            for state in self._polls.entity_types.values():
                state.restart()
                while state.permitted:
                    counted = await self._reconcile_type(state)
                    if counted and state.polls.total is not None:
                        continue
                    if counted and state.reached >= offset:
                        break
                    await asyncio.sleep(RETRY_S)

    async def _reconcile_type(self, state: EntityTypeState) -> bool:
        """Reconcile an entity type, or the next piece of the topics; return whether its poll counts."""
        with span("observe", cluster=self._store.name, entity_type=state.entity_type.value) as current:
            self._polls.request(self._queues.take_delivered())
            try:
                snapshot = await self._polls.take_snapshot(state, time.monotonic() + POLL_TIMEOUT_S)
            except NotPermittedError as error:
                state.record_refused(error.detail)
                current.set(outcome="refused")
                return False
            result = await self._reconcile(snapshot)
            if result is None:
                state.record_behind(self._polls.moved)
                current.set(outcome="behind")
                return False
            if not snapshot.unchanged:
                with span("verify"):
                    equal = await self._polls.clear_drift_of_equal(state, snapshot, self._queues.refused)
                self._queues.redeliver(equal)
            self._polls.record(state, snapshot, result)
            current.set(outcome="reconciled")
            return True

    async def _reconcile_requested(self) -> None:
        """Reconcile entities after their deliveries, and those with external writes to their znodes."""
        self._polls.request(self._queues.take_delivered())
        try:
            for snapshot in await self._polls.take_requested_snapshots(time.monotonic() + POLL_TIMEOUT_S):
                if await self._reconcile(snapshot) is None:
                    self._polls.repeat_requested()
        except UnavailableError:
            self._polls.restart_all()
            raise

    async def _reconcile(self, snapshot: PollResult) -> FollowResult | None:
        """Decide on the entities that differ, and write or deliver. Returns None if the poll does not count."""
        await self._polls.leave_to_log(snapshot)
        if snapshot.after < self._polls.moved:
            return None
        if not snapshot.differing:
            return FollowResult()
        result = await self._writer.follow(snapshot.differing)
        self._polls.record_drift(snapshot, result)
        self._queues.redeliver(result.pending)
        return None if result.stale else result

    # -- tree to cluster

    async def apply(self) -> bool:
        """Begin the deliveries that are due, if this process leads; return whether it applies changes now.

        Raises:
            UnavailableError: ZooKeeper or Postgres is unavailable. Values that were sent are sent again.
        """
        if not (self._store.leadership.held and self._queues.applies and await self._queues.claim_states()):
            self._queues.begin_term()
            return False
        await self._queues.collect()
        frozen = self._store.status().frozen is not None or self._queues.is_quiesced
        if frozen and await self._queues.quiesce(time.monotonic() + ROUND_S):
            # No delivery is in flight during the freeze, or the cluster is thawed.
            await self._reporter.publish()
            self._queues.confirm_quiesced()
        due, deadline = self._queues.due(), time.monotonic() + ROUND_S
        if due and self._store.status().frozen is not None:
            return False
        await self._queues.publish_watermark(deadline)
        self._queues.begin_deliveries(due, deadline)
        return True
