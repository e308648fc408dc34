"""The leader's report on a cluster, published for all processes, and the metrics of polls and deliveries."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import UnavailableError
from confplane.domain.texts import rfc3339
from confplane.services.metrics import Sample, of_cluster
from confplane.services.ports.applying import DriftCause
from confplane.services.ports.observation_report import ListedNames, ObservationReport, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confplane.services.kraft.apply.queues import ApplyQueues
    from confplane.services.kraft.observe.session import ClusterSession
    from confplane.services.kraft.observe.topic_table import TopicTable
    from confplane.services.kraft.reconcile.follow_writer import FollowWriter
    from confplane.services.kraft.reconcile.polls import Polls
    from confplane.services.ports.cluster_states import Target
    from confplane.services.ports.observation_report import ApplyReport
    from confplane.services.ports.store import ClusterStore

logger = logging.getLogger(__name__)

PUBLISH_S: Final = 5.0
_TIMEOUT_S: Final = 30.0


class LeaderReporter:
    """Reports on one cluster.

    Attributes:
        leading: True from the first round of a term as the leader to its end.
        problem: The reason why the cluster is not observed; empty if it is.
    """

    def __init__(
        self,
        store: ClusterStore,
        session: ClusterSession,
        polls: Polls,
        queues: ApplyQueues,
        topics: TopicTable,
        writer: FollowWriter,
    ) -> None:
        self._store = store
        self._session = session
        self._polls = polls
        self._queues = queues
        self._topics = topics
        self._writer = writer
        self.leading = False
        self._published_at = float("-inf")
        self._term_began = 0
        self.clear_problem()

    @property
    def report(self) -> ObservationReport | None:
        """The leader's latest report, in any process. None if there is none."""
        return parse(self._store.observation())

    def begin_term(self, target: Target) -> None:
        """Begin a term as the leader, from the last leader's report if there is one for this cluster."""
        self._polls.reset()
        self._session.begin_term()
        self.clear_problem()
        self.leading, self._term_began = True, _now_ms()
        last = self.report
        if last is None or last.cluster_id != target.cluster_id:
            return
        self._session.release, self._polls.moved = last.release, last.moved
        for entity_type, state in self._polls.entity_types.items():
            known = last.areas.get(entity_type)
            if known is not None:
                state.report = known
        if self._polls.log is not None:
            self._polls.log.offset = last.log_offset

    def clear_problem(self) -> None:
        """Record that the cluster is observed."""
        self.problem, self._problem_since = "", 0

    def record_problem(self, problem: str) -> None:
        """Record the reason why the cluster is not observed."""
        if problem != self.problem:
            logger.warning("Cluster %s: its observation has to wait: %s", self._store.name, problem)
            self.problem, self._problem_since = problem, self._problem_since or _now_ms()
        self._session.expire()

    async def publish_if_due(self) -> None:
        """Publish the report and the table of topics if this process leads, every few seconds."""
        if self.leading and time.monotonic() - self._published_at >= PUBLISH_S:
            with contextlib.suppress(UnavailableError):
                await self.publish()
                if self._polls.topics is not None:
                    await self._topics.write(self._polls.topics)

    async def publish(self) -> None:
        """Publish the report for all processes at once, if this process leads."""
        target, identity, log = self._store.target(), self._session.identity, self._polls.log
        if target is None or not self.leading:
            return
        report = ObservationReport(
            at=_now_ms(),
            process=self._store.writer(),
            cluster_id=target.cluster_id,
            release=self._session.release,
            metadata_version="" if identity is None else identity.metadata_version,
            brokers=() if identity is None else identity.brokers,
            eligible_replicas=self._session.keeps_eligible_replicas,
            problem=self.problem,
            problem_since=self._problem_since or None,
            paused=target.paused,
            moved=self._polls.moved,
            log_offset=None if log is None else log.offset,
            log_at=None if log is None else log.at_ms,
            log_problem="" if log is None else log.problem,
            areas={entity_type: state.report for entity_type, state in self._polls.entity_types.items()},
            applying=self.apply_report() if target.applies else None,
        )
        await self._store.publish_observation(report.encode(), time.monotonic() + _TIMEOUT_S)
        self._published_at = time.monotonic()

    def apply_report(self) -> ApplyReport:
        """Return the report on client changes, with the external changes that are left alone.

        The queues list the refused keys.
        """
        left: dict[DriftCause, dict[str, str]] = {cause: {} for cause in DriftCause}
        for entity_id, keys in self._polls.drift.items():
            for key, drift in keys.items():
                since = rfc3339(datetime.fromtimestamp(drift.since_ms / 1000, UTC))
                left[drift.cause][f"{entity_id} {key}"] = f"since {since}"
        return replace(
            self._queues.report(),
            contested=ListedNames.of(left[DriftCause.CONTESTED]),
            extra=ListedNames.of(left[DriftCause.EXTRA]),
        )

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics. Only the leader has those of polls and of queued changes."""
        return of_cluster(self._store.name, self._metrics())

    def _metrics(self) -> Iterator[Sample]:
        yield Sample("observed_changes", self._writer.written)
        yield Sample("put_back_changes", self._writer.enforcer.put_back)
        yield Sample("applied_late", self._writer.enforcer.stale_writes)
        yield Sample("overwritten_changes", self._writer.enforcer.lost_updates)
        for entity_type, state in self._polls.entity_types.items():
            for result, count in state.counts.items():
                yield Sample("observation_looks", count, (entity_type.value, result))
        for outcome, count in self._queues.outcomes.items():
            yield Sample("applied_changes", count, (outcome,))
        for code, count in self._queues.refusals.items():
            yield Sample("applied_refusals", count, (str(code),))
        applying = self.apply_report()
        if self._store.leadership.held and self._queues.applies:
            yield Sample("apply_pending", applying.pending)
            yield Sample("apply_lag_seconds", applying.waiting_ms / 1000)
            yield Sample("apply_unknown", applying.unknown.count)
            yield Sample("apply_refused", applying.refused.count)
        if not self.leading:
            return
        yield Sample("observation_problem", bool(self.problem))
        yield Sample("apply_contested", applying.contested.count)
        yield Sample("apply_extra", applying.extra.count)
        yield Sample("apply_drift", len(self._queues.differing | self._polls.drift.keys()))
        for entity_type, state in self._polls.entity_types.items():
            report = state.report
            yield Sample("observation_max_age_seconds", state.max_age_s, (entity_type.value,))
            if state.permitted and (report.observed_at is not None or report.problem):
                observed_at = self._term_began if report.observed_at is None else report.observed_at
                yield Sample("observation_age_seconds", time.time() - observed_at / 1000, (entity_type.value,))
                yield Sample("observation_unmanaged", report.unmanaged.count, (entity_type.value,))
                yield Sample("observation_ineffective", report.ineffective.count, (entity_type.value,))


def _now_ms() -> int:
    return int(time.time() * 1000)
