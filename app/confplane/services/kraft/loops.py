"""The two loops of a process over the rounds of a cluster: when a round begins, and what follows if it fails."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import ObservedError, UnavailableError
from confplane.services.background import BackgroundService, BackgroundTask, backoff_s
from confplane.services.kraft.apply.queues import ApplyQueues
from confplane.services.kraft.observe.session import ClusterSession
from confplane.services.kraft.observe.topic_table import TopicTable
from confplane.services.kraft.reconcile.log_follower import LogFollower
from confplane.services.kraft.reconcile.polls import Polls
from confplane.services.kraft.reporter import LeaderReporter
from confplane.services.kraft.round import Round
from confplane.services.kraft.warnings import KraftWarnings

if TYPE_CHECKING:
    from confplane.services.kraft.apply.deliveries import SecretOpener
    from confplane.services.kraft.observe.entity_types import PollSettings
    from confplane.services.kraft.reconcile.follow_writer import FollowParts
    from confplane.services.ports.applying import WritableKafkaCluster
    from confplane.services.ports.observed_topics import ObservedTopics
    from confplane.services.ports.store import ClusterStore

logger = logging.getLogger(__name__)

IDLE_S: Final = 1.0
JOURNAL_POLL_S: Final = 0.05
"""Seconds between two rounds that apply changes, each of which reads the journal."""


class Observer(BackgroundService):
    """Repeats the rounds that follow a cluster. The recorder records external writes to znodes; these put them back."""

    def __init__(
        self, name: str, kafka: WritableKafkaCluster, rounds: Round, polls: Polls, reporter: LeaderReporter
    ) -> None:
        self._name = name
        self._kafka = kafka
        self._rounds = rounds
        self._polls = polls
        self._reporter = reporter
        self._failures = 0
        self._background = BackgroundTask(self._run, name=f"observer-{name}")

    async def stop(self) -> None:
        """Stop, and close the connections."""
        await super().stop()
        await self._rounds.step_down()
        await self._kafka.close()

    async def _run(self) -> None:
        while True:
            wait = IDLE_S
            try:
                if await self._rounds.observe():
                    wait = min(IDLE_S, max(0.01, self._polls.due - time.monotonic()))
                self._failures = 0
            except ObservedError:
                logger.info("Cluster %s: its observation was paused", self._name)
            except UnavailableError as error:
                wait = self._record_failure(error.detail)
            except Exception:
                logger.exception("Cluster %s: the observation failed", self._name)
                wait = self._record_failure("The observation failed; the leader's log has the error")
            await self._reporter.publish_if_due()
            await asyncio.sleep(wait)

    def _record_failure(self, problem: str) -> float:
        """Record a failure; return the seconds before the next attempt."""
        self._reporter.record_problem(problem)
        self._failures += 1
        return backoff_s(self._failures)


class Applier(BackgroundService):
    """Repeats the rounds that apply client changes to a cluster."""

    def __init__(self, name: str, rounds: Round, queues: ApplyQueues) -> None:
        self._name = name
        self._rounds = rounds
        self._queues = queues
        self._background = BackgroundTask(self._run, name=f"applier-{name}")

    async def stop(self) -> None:
        """Stop. The next leader sends unanswered values again."""
        await super().stop()
        await self._queues.stop()

    async def _run(self) -> None:
        while True:
            wait = IDLE_S
            try:
                if await self._rounds.apply():
                    wait = JOURNAL_POLL_S
                self._queues.problem = ""
            except UnavailableError as error:
                self._record_failure(error.detail)
            except Exception:
                logger.exception("Cluster %s: applying failed", self._name)
                self._record_failure("Applying failed; the leader's log has the error")
            await asyncio.sleep(wait)

    def _record_failure(self, problem: str) -> None:
        if problem != self._queues.problem:
            logger.warning("Cluster %s: its changes wait to be applied: %s", self._name, problem)
        self._queues.problem = problem


class ReconcileLoops:
    """The parts that reconcile one cluster, neither started."""

    def __init__(
        self,
        store: ClusterStore,
        parts: FollowParts,
        topics: ObservedTopics,
        *,
        secrets: SecretOpener,
        settings: PollSettings,
    ) -> None:
        kafka = parts.cluster
        follower = LogFollower(kafka, store.name, parts.writer) if settings.follows_log else None
        self.queues = ApplyQueues(kafka, store, parts.states, secrets)
        self.polls = Polls(parts, store, follower, settings.max_ages)
        self.session = ClusterSession(kafka)
        table = TopicTable(store.name, topics)
        self.reporter = LeaderReporter(store, self.session, self.polls, self.queues, table, parts.writer)
        self.warnings = KraftWarnings(store, settings.max_ages)
        self.round = Round(store, self.session, parts.writer, self.polls, self.queues, self.reporter)
        self.observer = Observer(store.name, kafka, self.round, self.polls, self.reporter)
        self.applier = Applier(store.name, self.round, self.queues)
