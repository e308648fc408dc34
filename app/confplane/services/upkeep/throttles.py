"""The watch over throttles of reassignments: it reports those that are left, though no reassignment is in progress.

Each process runs one per cluster, and the leader's works. It reads the throttles from the mirror, and asks the cluster
for reassignments only if there are some. A tool sets throttles shortly before it begins the reassignment, so a throttle
is reported if two rounds in a row find it unused.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

from confplane.domain.entities import Entity, EntityType
from confplane.domain.facets import FacetName, Tree
from confplane.domain.observed import THROTTLES, throttles_of, unused_throttles
from confplane.domain.texts import first_of
from confplane.services.background import BackgroundService, BackgroundTask, poll_repeatedly
from confplane.services.cooperative_yielding import TimeSlice
from confplane.services.metrics import Sample, of_cluster
from confplane.services.operator_warnings import OperatorWarning

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from confplane.services.ports.store import ClusterStore

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 30.0
_TIMEOUT_S: Final = 5.0
_NAMED: Final = 3


class Reassignments(Protocol):
    """The reassignments of one cluster, which its Kafka brokers or its ZooKeeper list."""

    async def reassigned_topics(self, topics: Collection[str], deadline: float) -> frozenset[str] | None:
        """Return the topics with a reassignment in progress, at least those among the given topics.

        Returns None if the right to read the reassignments is missing.

        Raises:
            UnavailableError: The cluster did not answer in time.
        """


class ThrottleWatch(BackgroundService):
    """Watches the throttles of one cluster.

    Args:
        store: The cluster, started.
        zookeeper: The source of its reassignments while brokers read ZooKeeper.
        kafka: Their source once a target is set; None if the settings name no brokers.

    Attributes:
        left: The entities and keys of the throttles that are left.
        unknown: Those of which it is unknown whether a reassignment uses them, because a right is missing.
    """

    def __init__(self, store: ClusterStore, zookeeper: Reassignments, kafka: Reassignments | None) -> None:
        self._store = store
        self._zookeeper = zookeeper
        self._kafka = kafka
        self._background = BackgroundTask(self._run, name=f"throttles-{store.name}")
        self._clear()

    def _clear(self) -> None:
        self._unused: frozenset[tuple[Entity, str]] = frozenset()
        self.left: list[tuple[Entity, str]] = []
        self.unknown: list[tuple[Entity, str]] = []

    async def _run(self) -> None:
        await poll_repeatedly(self.round, INTERVAL_S, logger, f"Cluster {self._store.name}: reading throttles failed")

    async def round(self) -> None:
        """Look for throttles that are left, if this process leads.

        Raises:
            UnavailableError: The cluster did not answer in time; the last findings stay.
        """
        target = self._store.target()
        reassignments = self._zookeeper if target is None else self._kafka
        follows = target is None or (target.imported and not target.paused)
        if reassignments is None or not follows or not self._store.leadership.held:
            self._clear()
            return
        throttles = await self._throttles()
        if not throttles:
            self._clear()
            return
        topics = {name for entity in throttles if (name := entity.get(EntityType.TOPIC)) is not None}
        reassigned = await reassignments.reassigned_topics(topics, time.monotonic() + _TIMEOUT_S)
        if reassigned is None:
            self._clear()
            self.unknown = [(entity, key) for entity, keys in throttles.items() for key in keys]
            return
        unused = unused_throttles(throttles, reassigned)
        self.unknown, self.left = [], [each for each in unused if each in self._unused]
        self._unused = frozenset(unused)

    async def _throttles(self) -> dict[Entity, list[str]]:
        found: dict[Entity, list[str]] = {}
        time_slice = TimeSlice()
        for kind in (EntityType.BROKER, EntityType.TOPIC):
            for node in await self._store.moment(Tree.CONFIG, FacetName.CONFIGS.value, prefix=f"{kind}="):
                # Few entities have throttles, and ids of all topics would be parsed otherwise.
                if not THROTTLES[kind].isdisjoint(node.config):
                    entity = Entity.from_id(node.id)
                    if throttles := throttles_of(entity, node.config):
                        found[entity] = throttles
                if time_slice.due:
                    await time_slice.pause()
        return found

    def warnings(self) -> list[OperatorWarning]:
        """Return warnings for operators; only the leader has any."""
        found = []
        if self.left:
            text = (
                f"{len(self.left)} throttles of reassignments are left, and no reassignment is in progress;"
                " `kafka-reassign-partitions.sh --verify` removes them"
            )
            found.append(OperatorWarning(text, f"{text}: {_named(self.left)}"))
        if self.unknown:
            text = (
                f"{len(self.unknown)} throttles of reassignments are set, and it is unknown whether a reassignment is"
                " in progress: the right to read reassignments is missing"
            )
            found.append(OperatorWarning(text, f"{text}: {_named(self.unknown)}"))
        return [each.about(self._store.name) for each in found]

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics; only the leader has any."""
        return of_cluster(self._store.name, self._metrics())

    def _metrics(self) -> Iterator[Sample]:
        if self._store.leadership.held:
            yield Sample("reassignment_throttles_left", len(self.left))
            yield Sample("reassignment_throttles_unknown", len(self.unknown))


def _named(throttles: Collection[tuple[Entity, str]]) -> str:
    return first_of((f"{entity.id} {key}" for entity, key in throttles), _NAMED)
