"""Reads that are as new as the cluster (``consistency=strong``), in any process."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from app.domain.errors import UnavailableError
from app.services.target.apply import Follower
from app.services.target.follow import Decisions
from app.services.target.looks import Looks, area_of
from app.services.target.report import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.domain.entities import Entity
    from app.domain.observed import Rules
    from app.services.changes.runner import ChangeRunner
    from app.services.ports.kafka import KafkaCluster
    from app.services.ports.store import ClusterStore
    from app.services.redaction import Redact

_AGAIN_S: Final = 0.02


class Freshener:
    """Brings entities to the state of an observed cluster, at the moment of a call.

    Args:
        cluster: The Kafka cluster.
        store: The cluster's store, started.
        runner: Runs the changes.
        rules: The rules of the cluster's configs.
        redact: The redaction of znodes for the trail.
    """

    def __init__(
        self, cluster: KafkaCluster, store: ClusterStore, runner: ChangeRunner, rules: Rules, redact: Redact
    ) -> None:
        self._cluster = cluster
        self._store = store
        decisions = Decisions(store, rules, redact)
        self._follower = Follower(runner, store, decisions)
        self._looks = Looks(cluster, store, rules, decisions)

    async def look_at(self, entities: Sequence[Entity], deadline: float) -> int | None:
        """Look at entities behind all changes that the cluster acknowledged before the call, and follow them.

        Args:
            entities: Entities whose configs the cluster has; topics and brokers that exist or not.
            deadline: Until when.

        Returns:
            The time of the look, milliseconds since the epoch; None where nothing is observed now.

        Raises:
            UnavailableError: The cluster or a store is away, the observation was paused meanwhile, or the cluster does
                not show the entities.
        """
        target = self._store.target()
        if target is None or target.paused or not target.imported:
            return None
        offset = await self._cluster.barrier(deadline)
        report = parse(self._store.observation())
        left, times = list(entities), [int(time.time() * 1000)]
        while left:
            known = () if report is None else [report.areas.get(area_of(each)) for each in left]
            offsets = [each.offset for each in known if each is not None and each.offset is not None]
            behind = False
            for looked in await self._looks.of(left, min(offsets, default=None), deadline):
                followed = await self._follower.follow(looked.seen)
                behind = behind or looked.after < offset or bool(followed.stale)
                times.append(looked.at_ms)
            if not behind:
                break
            if time.monotonic() >= deadline:
                raise UnavailableError(
                    f"Cluster {self._store.name}: the Kafka brokers asked are behind the metadata offset {offset}",
                    retry_after_s=1,
                )
            await asyncio.sleep(_AGAIN_S)
        return min(times)
