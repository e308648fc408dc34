"""The observer: the leader's looks at a Kafka cluster, so that the configs here are those of the cluster.

Each process has one observer for each cluster with a target, and the leader's works once everything is imported. The
observer of a process that begins to lead continues from the last report.

Writes of others into the znodes are recorded by the recorder, and put back here: the entities are looked at again.
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
from confplane.services.background import Background
from confplane.services.kraft import notices
from confplane.services.kraft.looking import CALL_S, Looking
from confplane.services.kraft.report import Names, Report, parse
from confplane.services.metrics import Sample, of_cluster
from confplane.services.ports.applying import Cause
from confplane.services.ports.kafka import OtherClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confplane.services.kraft.applier import Applier
    from confplane.services.kraft.following import Following
    from confplane.services.kraft.ports import ObservedStore
    from confplane.services.kraft.report import Applying
    from confplane.services.notices import Notice
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
        following: The parts that look and write.
        store: The cluster's store, started.
        applier: Applies callers' changes, where the target takes any.
        beside: The parts of strong reads and conditional writes, whose changes are counted with the observer's.
        log: Follow the metadata log: the settings name controllers.
    """

    def __init__(
        self, following: Following, store: ObservedStore, applier: Applier, *, beside: Following, log: bool = False
    ) -> None:
        self._cluster = following.cluster
        self._store = store
        self._follower = following.follower
        self._counted = (self._follower, beside.follower)
        self.looking = Looking(following, store, applier.again, log=log)
        applier.look = self.looking.look_at
        applier.tell = self._tell
        self._applier = applier
        self._background = Background(self._run, name=f"observer-{store.name}")
        self._leading = False
        self._failures = 0
        self._published_at = float("-inf")
        self._begin_term()

    def _begin_term(self) -> None:
        self.looking.begin()
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
    def report(self) -> Report | None:
        """The leader's latest report, in any process; None where there is none."""
        return parse(self._store.observation())

    async def _run(self) -> None:
        while True:
            wait = IDLE_S
            try:
                if await self.round():
                    wait = min(IDLE_S, max(0.01, self.looking.due - time.monotonic()))
                self._failures = 0
            except ObservedError:
                logger.info("Cluster %s: its observation was paused", self._store.name)
            except UnavailableError as error:
                wait = self._trouble(error.detail)
            except Exception:
                logger.exception("Cluster %s: the observation failed", self._store.name)
                wait = self._trouble("The observation failed; the leader's log has the error")
            if self._leading:
                await self._publish()
            await asyncio.sleep(wait)

    def _trouble(self, problem: str) -> float:
        """Take note of a failure; return the seconds before the next try."""
        if problem != self._problem:
            logger.warning("Cluster %s: its observation has to wait: %s", self._store.name, problem)
            self._problem, self._problem_since = problem, self._problem_since or _now_ms()
        self._failures += 1
        self._identity_due = 0.0
        longest = min(_SLOWEST_S, 2.0 ** min(self._failures, 10) / 2)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    # -- rounds

    async def round(self) -> bool:
        """Make the looks that are due, if this process leads; return whether it observes.

        Raises:
            UnavailableError: The cluster or a store is away, or the cluster is not the one to observe; nothing was
                written wrongly, and the next round goes on.
            ObservedError: The observation was paused amid the round.
        """
        target = self._store.target()
        if not self._store.leadership.held or target is None or not target.imported:
            await self._step_down()
            return False
        if not self._leading:
            self._begin_term()
            self._leading = True
            self._take_over(target)
        if target.paused:
            if self.looking.log is not None:
                await self.looking.log.stop()
            # Whoever resumes has looked at the cluster: an older release counts from then on.
            self._identity, self._release, self._problem = None, "", ""
            return False
        await self._identify(target)
        await self._permit()
        if self.looking.log is not None:
            self.looking.log.start()
        await self.looking.look()
        self._problem, self._problem_since = "", 0
        return True

    async def _step_down(self) -> None:
        if self.looking.log is not None:
            await self.looking.log.stop()
        self._leading = False

    def _take_over(self, target: Target) -> None:
        """Continue from the last leader's report, as far as there is one of this cluster."""
        last = self.report
        if last is None or last.cluster_id != target.cluster_id:
            return
        self._release, self.looking.moved = last.release, last.moved
        for area, state in self.looking.areas.items():
            known = last.areas.get(area)
            if known is not None:
                state.since, state.report = known.offset, known
        if self.looking.log is not None:
            self.looking.log.offset = last.log_offset

    async def _identify(self, target: Target) -> None:
        now = time.monotonic()
        if self._identity is not None and now < self._identity_due:
            return
        identity = await self._cluster.identity(now + CALL_S)
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

    async def _permit(self) -> None:
        now = time.monotonic()
        if now < self._permissions_due:
            return
        for area, (permission, reason) in (await self._cluster.permissions(now + CALL_S)).items():
            self.looking.areas[area].permit(permission, reason)
        self._permissions_due = now + PERMISSIONS_S

    # -- what is told

    async def _publish(self) -> None:
        now = time.monotonic()
        if now - self._published_at < PUBLISH_S:
            return
        with contextlib.suppress(UnavailableError):
            await self.publish()

    async def _tell(self) -> None:
        """Write the report at once, if this process leads.

        Raises:
            UnavailableError: ZooKeeper is away.
        """
        if self._leading:
            await self.publish()

    async def publish(self) -> None:
        """Write the report for all processes.

        Raises:
            UnavailableError: ZooKeeper is away.
        """
        target = self._store.target()
        if target is None:
            return
        identity = self._identity
        report = Report(
            at=_now_ms(),
            process=self._store.writer(),
            cluster_id=target.cluster_id,
            release=self._release,
            metadata_version="" if identity is None else identity.metadata_version,
            brokers=() if identity is None else identity.brokers,
            problem=self._problem,
            problem_since=self._problem_since or None,
            paused=target.paused,
            moved=self.looking.moved,
            log_offset=None if self.looking.log is None else self.looking.log.offset,
            log_at=None if self.looking.log is None else self.looking.log.at_ms,
            log_problem="" if self.looking.log is None else self.looking.log.problem,
            areas={area: state.report for area, state in self.looking.areas.items()},
            applying=self._applying() if target.applies else None,
        )
        await self._store.publish_observation(report.encode(), time.monotonic() + CALL_S)
        self._published_at = time.monotonic()

    def _applying(self) -> Applying:
        """Return the applier's report, with the keys that are left alone."""
        left: dict[Cause, dict[str, str]] = {cause: {} for cause in Cause}
        for entity_id, keys in self.looking.drift.items():
            for key, drift in keys.items():
                since = rfc3339(datetime.fromtimestamp(drift.since_ms / 1000, UTC))
                left[drift.cause][f"{entity_id} {key}"] = f"since {since}"
        return replace(
            self._applier.report(), contested=Names.of(left[Cause.CONTESTED]), extra=Names.of(left[Cause.EXTRA])
        )

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics; only the leader has any of the looks."""
        return of_cluster(self._store.name, self._metrics())

    def _metrics(self) -> Iterator[Sample]:
        yield Sample("observed_changes", sum(each.written for each in self._counted))
        yield Sample("put_back_changes", sum(each.enforcer.put_back for each in self._counted))
        yield Sample("overwritten_changes", sum(each.overwritten.rows for each in self._counted))
        for (area, result), count in self.looking.counts.items():
            if count:
                yield Sample("observation_looks", count, (area.value, result))
        if not self._leading:
            return
        yield Sample("observation_problem", bool(self._problem))
        applying = self._applying()
        yield Sample("apply_contested", applying.contested.count)
        yield Sample("apply_extra", applying.extra.count)
        yield Sample("apply_drift", len(self._applier.differing | self.looking.drift.keys()))
        for area, state in self.looking.areas.items():
            report = state.report
            if state.permitted and report.observed_at is not None:
                yield Sample("observation_age_seconds", time.time() - report.observed_at / 1000, (area.value,))
                yield Sample("observation_unmanaged", report.unmanaged.count, (area.value,))

    def warnings(self) -> list[Notice]:
        """Return notices for operators, the same in every process: see :mod:`confplane.services.kraft.notices`."""
        return notices.of(self._store.name, self._store.target(), self.report)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _number(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall("[0-9]+", release)))
