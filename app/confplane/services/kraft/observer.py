"""The observer: the leader polls a Kafka cluster, so that the stored configs equal those of the cluster.

Each process has one observer for each cluster with a target. Only the leader's observer works, after the import is
complete. The observer of a new leader continues from the last report.

The recorder records external writes to the znodes. The observer puts them back: it polls the entities again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import ObservedError, UnavailableError
from confplane.domain.texts import rfc3339
from confplane.services.background import BackgroundTask
from confplane.services.kraft import warnings
from confplane.services.kraft.reconcile.poll_loop import POLL_TIMEOUT_S, PollLoop
from confplane.services.kraft.report import ListedNames, ObservationReport, parse
from confplane.services.metrics import Sample, of_cluster
from confplane.services.ports.applying import DriftCause
from confplane.services.ports.kafka import OtherClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confplane.services.kraft.apply.applier import Applier
    from confplane.services.kraft.ports import ObservedStore
    from confplane.services.kraft.reconcile.follow_parts import FollowParts
    from confplane.services.kraft.report import ApplyReport
    from confplane.services.operator_warnings import OperatorWarning
    from confplane.services.ports.cluster_states import Target
    from confplane.services.ports.kafka import ClusterIdentity

logger = logging.getLogger(__name__)

IDLE_S = 1.0
PUBLISH_S: Final = 5.0
IDENTITY_S: Final = 10.0
PERMISSIONS_S: Final = 60.0
_SLOWEST_S: Final = 30.0


class Observer:
    """Observes one cluster.

    Args:
        parts: The parts that poll and write.
        store: The cluster's store, started.
        applier: Applies client changes, if the target's mode accepts any.
        refresh_parts: The parts of refreshes, whose changes are counted with the observer's.
        log: Follow the metadata log: the settings name controllers.
    """

    def __init__(
        self,
        parts: FollowParts,
        store: ObservedStore,
        applier: Applier,
        *,
        refresh_parts: FollowParts,
        log: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self._cluster = parts.cluster
        self._store = store
        self._writer = parts.writer
        self._counted = (self._writer, refresh_parts.writer)
        self.poll_loop = PollLoop(parts, store, applier.redeliver, log=log)
        applier.request_poll = self.poll_loop.request_poll
        applier.publish_report = self._publish_now
        self._applier = applier
        self._background = BackgroundTask(self._run, name=f"observer-{store.name}")
        self._leading = False
        self._failures = 0
        self._published_at = float("-inf")
        self._reset_term()

    def _reset_term(self) -> None:
        self.poll_loop.reset()
        self._identity: ClusterIdentity | None = None
        self._release = ""
        self._identity_due = self._permissions_due = 0.0
        self._problem, self._problem_since = "", 0

    def start(self) -> None:
        """Start in the background."""
        self._background.start()

    async def stop(self) -> None:
        """Stop, and close the connections."""
        await self._background.stop()
        await self._step_down()
        await self._cluster.close()

    @property
    def report(self) -> ObservationReport | None:
        """The leader's latest report, in any process. None if there is none."""
        return parse(self._store.observation())

    async def _run(self) -> None:
        while True:
            wait = IDLE_S
            try:
                if await self.round():
                    wait = min(IDLE_S, max(0.01, self.poll_loop.due - time.monotonic()))
                self._failures = 0
            except ObservedError:
                logger.info("Cluster %s: its observation was paused", self._store.name)
            except UnavailableError as error:
                wait = self._record_problem(error.detail)
            except Exception:
                logger.exception("Cluster %s: the observation failed", self._store.name)
                wait = self._record_problem("The observation failed; the leader's log has the error")
            if self._leading:
                await self._publish()
            await asyncio.sleep(wait)

    def _record_problem(self, problem: str) -> float:
        """Record a failure; return the seconds before the next attempt."""
        if problem != self._problem:
            logger.warning("Cluster %s: its observation has to wait: %s", self._store.name, problem)
            self._problem, self._problem_since = problem, self._problem_since or _now_ms()
        self._failures += 1
        self._identity_due = 0.0
        longest = min(_SLOWEST_S, 2.0 ** min(self._failures, 10) / 2)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    # -- rounds

    async def round(self) -> bool:
        """Run the polls that are due, if this process leads; return whether it observes.

        Raises:
            UnavailableError: The cluster or a store is unavailable, or it is another cluster. Nothing wrong was
                written, and the next round continues.
            ObservedError: The observation was paused during the round.
        """
        target = self._store.target()
        if not self._store.leadership.held or target is None or not target.imported:
            await self._step_down()
            return False
        if not self._leading:
            self._reset_term()
            self._leading = True
            self._restore_report(target)
        if target.paused:
            if self.poll_loop.log is not None:
                await self.poll_loop.log.stop()
            # The operator who resumes has checked the cluster: an older release is accepted from then on.
            self._identity, self._release, self._problem = None, "", ""
            return False
        await self._identify(target)
        await self._check_permissions()
        if self.poll_loop.log is not None:
            self.poll_loop.log.start()
        await self.poll_loop.poll()
        self._problem, self._problem_since = "", 0
        return True

    async def _step_down(self) -> None:
        if self.poll_loop.log is not None:
            await self.poll_loop.log.stop()
        self._leading = False

    def _restore_report(self, target: Target) -> None:
        """Continue from the last leader's report, if there is one for this cluster."""
        last = self.report
        if last is None or last.cluster_id != target.cluster_id:
            return
        self._release, self.poll_loop.moved = last.release, last.moved
        for entity_type, state in self.poll_loop.entity_types.items():
            known = last.areas.get(entity_type)
            if known is not None:
                state.since, state.report = known.offset, known
        if self.poll_loop.log is not None:
            self.poll_loop.log.offset = last.log_offset

    async def _identify(self, target: Target) -> None:
        now = self.clock()
        if self._identity is not None and now < self._identity_due:
            return
        identity = await self._cluster.identity(now + POLL_TIMEOUT_S)
        if identity.cluster_id != target.cluster_id:
            raise OtherClusterError(
                f"The brokers belong to the cluster {identity.cluster_id}, and {target.cluster_id} is observed: nothing"
                " is followed. Set the addresses in clusters.<name>.kafka to those of the observed cluster"
            )
        if _number(identity.release) < _number(self._release):
            raise UnavailableError(
                f"The cluster has brokers of release {identity.release}, and had {self._release} before: nothing is"
                " followed, because an older release may not show all configs. It goes on once all brokers are of"
                f" {self._release} again; `confplane target pause` and then `resume` accept the older release"
            )
        self._identity, self._release = identity, identity.release
        self._identity_due = now + IDENTITY_S

    async def _check_permissions(self) -> None:
        now = self.clock()
        if now < self._permissions_due:
            return
        for entity_type, (permission, reason) in (await self._cluster.permissions(now + POLL_TIMEOUT_S)).items():
            self.poll_loop.entity_types[entity_type].permit(permission, reason)
        self._permissions_due = now + PERMISSIONS_S

    # -- reports

    async def _publish(self) -> None:
        now = self.clock()
        if now - self._published_at < PUBLISH_S:
            return
        with contextlib.suppress(UnavailableError):
            await self.publish()

    async def _publish_now(self) -> None:
        """Publish the report at once, if this process leads.

        Raises:
            UnavailableError: ZooKeeper is unavailable.
        """
        if self._leading:
            await self.publish()

    async def publish(self) -> None:
        """Publish the report for all processes.

        Raises:
            UnavailableError: ZooKeeper is unavailable.
        """
        target = self._store.target()
        if target is None:
            return
        identity = self._identity
        report = ObservationReport(
            at=_now_ms(),
            process=self._store.writer(),
            cluster_id=target.cluster_id,
            release=self._release,
            metadata_version="" if identity is None else identity.metadata_version,
            brokers=() if identity is None else identity.brokers,
            problem=self._problem,
            problem_since=self._problem_since or None,
            paused=target.paused,
            moved=self.poll_loop.moved,
            log_offset=None if self.poll_loop.log is None else self.poll_loop.log.offset,
            log_at=None if self.poll_loop.log is None else self.poll_loop.log.at_ms,
            log_problem="" if self.poll_loop.log is None else self.poll_loop.log.problem,
            areas={entity_type: state.report for entity_type, state in self.poll_loop.entity_types.items()},
            applying=self._applying() if target.applies else None,
        )
        await self._store.publish_observation(report.encode(), time.monotonic() + POLL_TIMEOUT_S)
        self._published_at = self.clock()

    def _applying(self) -> ApplyReport:
        """Return the applier's report, with the external changes that are left alone."""
        left: dict[DriftCause, dict[str, str]] = {cause: {} for cause in DriftCause}
        for entity_id, keys in self.poll_loop.drift.items():
            for key, drift in keys.items():
                since = rfc3339(datetime.fromtimestamp(drift.since_ms / 1000, UTC))
                left[drift.cause][f"{entity_id} {key}"] = f"since {since}"
        return replace(
            self._applier.report(),
            contested=ListedNames.of(left[DriftCause.CONTESTED]),
            extra=ListedNames.of(left[DriftCause.EXTRA]),
        )

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics. Only the leader has those of polls."""
        return of_cluster(self._store.name, self._metrics())

    def _metrics(self) -> Iterator[Sample]:
        yield Sample("observed_changes", sum(each.written for each in self._counted))
        yield Sample("put_back_changes", sum(each.enforcer.put_back for each in self._counted))
        yield Sample("overwritten_changes", sum(each.lost_updates.rows for each in self._counted))
        for (entity_type, result), count in self.poll_loop.counts.items():
            if count:
                yield Sample("observation_looks", count, (entity_type.value, result))
        if not self._leading:
            return
        yield Sample("observation_problem", bool(self._problem))
        applying = self._applying()
        yield Sample("apply_contested", applying.contested.count)
        yield Sample("apply_extra", applying.extra.count)
        yield Sample("apply_drift", len(self._applier.differing | self.poll_loop.drift.keys()))
        for entity_type, state in self.poll_loop.entity_types.items():
            report = state.report
            if state.permitted and report.observed_at is not None:
                yield Sample("observation_age_seconds", time.time() - report.observed_at / 1000, (entity_type.value,))
                yield Sample("observation_unmanaged", report.unmanaged.count, (entity_type.value,))

    def warnings(self) -> list[OperatorWarning]:
        """Return warnings for operators, the same in every process: see :mod:`confplane.services.kraft.warnings`."""
        return warnings.list_warnings(self._store.name, self._store.target(), self.report)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _number(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall("[0-9]+", release)))
