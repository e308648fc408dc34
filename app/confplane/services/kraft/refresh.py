"""Looks of any process at the moment of a call: reads with ``consistency=strong``, and conditional writes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confplane.domain.errors import UnavailableError
from confplane.services.kraft.report import parse
from confplane.services.ports.kafka import Permission, area_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from confplane.domain.entities import Entity
    from confplane.services.kraft.following import Following
    from confplane.services.kraft.report import Report
    from confplane.services.ports.kafka import Area
    from confplane.services.ports.store import ClusterStore


class Freshener:
    """Brings entities to the state of an observed cluster, at the moment of a call.

    Args:
        following: The parts that look and write.
        store: The cluster's store, started.
    """

    def __init__(self, following: Following, store: ClusterStore) -> None:
        self._cluster = following.cluster
        self._store = store
        self._follower = following.follower
        self._looks = following.looks

    async def look_over(self, areas: Iterable[Area], deadline: float) -> int | None:
        """Look at all of some areas, as :meth:`look_at` does; areas that the cluster does not show are left out.

        Args:
            areas: The areas.
            deadline: Until when.

        Returns:
            The time of the first look, milliseconds since the epoch; None where nothing is observed now.

        Raises:
            UnavailableError: As :meth:`look_at`.
        """
        if not self._observed:
            return None
        offset = await self._cluster.barrier(deadline)
        report = parse(self._store.observation())
        began = int(time.time() * 1000)
        for area in areas:
            known = None if report is None else report.areas.get(area)
            if known is not None and known.permission is Permission.NONE:
                continue
            while not await self._followed(area, _recorded(report, [area]), offset, deadline):
                await self._looks.again(offset, deadline)
        return began

    async def _followed(self, area: Area, since: int | None, offset: int, deadline: float) -> bool:
        """Look at all of an area and follow; return whether every look was at the offset or later."""
        counts = True
        async for looked, _ in self._looks.whole(area, since, lambda: deadline):
            followed = await self._follower.follow(looked.seen)
            counts = counts and looked.after >= offset and not followed.stale
        return counts

    @property
    def _observed(self) -> bool:
        target = self._store.target()
        return target is not None and target.imported and not target.paused

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
        if not self._observed:
            return None
        offset = await self._cluster.barrier(deadline)
        report = parse(self._store.observation())
        left, times = list(entities), [int(time.time() * 1000)]
        while left:
            behind = False
            for looked in await self._looks.of(left, _recorded(report, map(area_of, left)), deadline):
                followed = await self._follower.follow(looked.seen)
                behind = behind or looked.after < offset or bool(followed.stale)
                times.append(looked.at_ms)
            if not behind:
                break
            await self._looks.again(offset, deadline)
        return min(times)


def no_brokers(cluster: str) -> UnavailableError:
    """Return the error of a process whose settings name no brokers of a cluster."""
    return UnavailableError(f"This process can't look at the Kafka cluster of {cluster}: its settings name no brokers")


async def look_first(
    store: ClusterStore, freshener: Freshener | None, entities: Sequence[Entity], deadline: float
) -> None:
    """Look at those of some entities that callers and others write, ahead of a conditional write.

    Args:
        store: The cluster's store, started.
        freshener: The looks at the cluster; None where the settings name no brokers.
        entities: The entities.
        deadline: Until when.

    Raises:
        UnavailableError: As of :meth:`Freshener.look_at`.
    """
    target = store.target()
    shared = [each for each in entities if target is not None and target.applies_to(area_of(each))]
    if not shared:
        return
    if freshener is None:
        raise no_brokers(store.name)
    await freshener.look_at(shared, deadline)
    # Another process may have written what was seen.
    await store.catch_up(deadline)


def _recorded(report: Report | None, areas: Iterable[Area]) -> int | None:
    """Return an offset up to which every write in some areas is in a row, by the leader's report; None: unknown."""
    if report is None:
        return None
    known = [report.areas[area].offset for area in areas if area in report.areas]
    return min((each for each in (*known, report.log_offset) if each is not None), default=None)


def observed_at(store: ClusterStore, entity: Entity) -> int | None:
    """Return the time of the last look that covered an entity, milliseconds since the epoch, by the leader's report.

    None where the cluster has no target, or where no look has counted yet.
    """
    report = None if store.target() is None else parse(store.observation())
    area = None if report is None else report.areas.get(area_of(entity))
    return None if area is None else area.observed_at
