"""Refreshes: polls of any process for reads with ``consistency=strong`` and for conditional writes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from confplane.domain.errors import UnavailableError
from confplane.services.kraft.report import parse
from confplane.services.ports.kafka import EntityTypePermission, NotPermittedError, kraft_type_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from confplane.domain.entities import Entity
    from confplane.services.kraft.reconcile.follow_parts import FollowParts
    from confplane.services.kraft.report import ObservationReport
    from confplane.services.ports.kafka import KraftEntityType
    from confplane.services.ports.store import ClusterStore


class EntityRefresh(NamedTuple):
    """The result of a refresh of entities."""

    observed_at: int
    """The time of the poll, milliseconds since the epoch."""
    hidden: frozenset[str]
    """The entities' ids with the keys that the cluster has and that are not followed: ``topic=orders acme.key``."""


class Refresher:
    """Brings entities up to date with an observed cluster, as of the call.

    Args:
        parts: The parts that poll and write.
        store: The cluster's store, started.
    """

    def __init__(self, parts: FollowParts, store: ClusterStore) -> None:
        self._cluster = parts.cluster
        self._store = store
        self._writer = parts.writer
        self._poller = parts.poller

    async def refresh(
        self, entities: Sequence[Entity], entity_types: Sequence[KraftEntityType], deadline: float
    ) -> int | None:
        """Refresh some entities, and all entities of some types; bring the mirror up to date with the result.

        Args:
            entities: Entities whose configs the cluster has.
            entity_types: Entity types that are refreshed completely.
            deadline: On ``time.monotonic()``'s clock.

        Returns:
            The time of the first poll, milliseconds since the epoch. None if the cluster is not observed now.

        Raises:
            UnavailableError: As :meth:`refresh_entities`.
        """
        refreshed = await self.refresh_entities(entities, deadline) if entities else None
        times = [
            None if refreshed is None else refreshed.observed_at,
            await self.refresh_types(entity_types, deadline) if entity_types else None,
        ]
        # Another process may have written the observed changes.
        await self._store.catch_up(deadline)
        return min((each for each in times if each is not None), default=None)

    async def refresh_types(self, entity_types: Iterable[KraftEntityType], deadline: float) -> int | None:
        """Refresh all entities of some types. Types that the cluster does not show are left out.

        Args:
            entity_types: The entity types.
            deadline: On ``time.monotonic()``'s clock.

        Returns:
            The time of the first poll, milliseconds since the epoch. None if the cluster is not observed now.

        Raises:
            UnavailableError: As :meth:`refresh_entities`.
        """
        if not self._observed:
            return None
        offset = await self._cluster.barrier(deadline)
        report = parse(self._store.observation())
        began = int(time.time() * 1000)
        for entity_type in entity_types:
            known = None if report is None else report.areas.get(entity_type)
            if known is not None and known.permission is EntityTypePermission.NONE:
                continue
            while not await self._refresh_type(entity_type, _recorded_offset(report, [entity_type]), offset, deadline):
                await self._poller.wait_for_broker(offset, deadline)
        return began

    async def _refresh_type(
        self, entity_type: KraftEntityType, since: int | None, offset: int, deadline: float
    ) -> bool:
        """Poll all entities of a type and follow; return whether every poll was at the offset or later."""
        counts = True
        async for result, _ in self._poller.poll_all(entity_type, since, lambda: deadline):
            outcome = await self._writer.follow(result.differing)
            counts = counts and result.after >= offset and not outcome.stale
        return counts

    @property
    def _observed(self) -> bool:
        target = self._store.target()
        return target is not None and target.imported and not target.paused

    async def refresh_entities(self, entities: Sequence[Entity], deadline: float) -> EntityRefresh | None:
        """Poll entities after all changes that the cluster acknowledged before the call, and follow them.

        Args:
            entities: Entities whose configs the cluster has. Topics and brokers need not exist.
            deadline: On ``time.monotonic()``'s clock.

        Returns:
            The result; None if the cluster is not observed now.

        Raises:
            UnavailableError: The cluster or a store is unavailable, the observation was paused, or the cluster does not
                show the entities.
        """
        if not self._observed:
            return None
        offset = await self._cluster.barrier(deadline)
        report = parse(self._store.observation())
        left, times, hidden = list(entities), [int(time.time() * 1000)], set[str]()
        while left:
            behind = False
            hidden.clear()
            for result in await self._poller.poll_entities(
                left, _recorded_offset(report, map(kraft_type_of, left)), deadline
            ):
                if result.denied:
                    raise NotPermittedError(next(iter(result.denied.values())))
                outcome = await self._writer.follow(result.differing)
                behind = behind or result.after < offset or bool(outcome.stale)
                times.append(result.at_ms)
                hidden |= result.hidden.keys()
            if not behind:
                break
            await self._poller.wait_for_broker(offset, deadline)
        return EntityRefresh(min(times), frozenset(hidden))


def no_brokers(cluster: str) -> UnavailableError:
    """Return the error of a process whose settings name no brokers of a cluster."""
    return UnavailableError(
        f"The settings of this process have no brokers of {cluster}, so its Kafka cluster can't be read"
    )


async def refresh_first(
    store: ClusterStore, refresher: Refresher | None, entities: Sequence[Entity], deadline: float
) -> frozenset[str]:
    """Refresh those of some entities that may have external changes, before a write that depends on these.

    Args:
        store: The cluster's store, started.
        refresher: Polls the cluster. None if the settings name no brokers.
        entities: The entities.
        deadline: On ``time.monotonic()``'s clock.

    Returns:
        As of :attr:`EntityRefresh.hidden`.

    Raises:
        UnavailableError: As of :meth:`Refresher.refresh_entities`.
    """
    target = store.target()
    shared = [each for each in entities if target is not None and target.applies_to(kraft_type_of(each))]
    if not shared:
        return frozenset()
    if refresher is None:
        raise no_brokers(store.name)
    refreshed = await refresher.refresh_entities(shared, deadline)
    # Another process may have written the observed changes.
    await store.catch_up(deadline)
    return frozenset() if refreshed is None else refreshed.hidden


def _recorded_offset(report: ObservationReport | None, entity_types: Iterable[KraftEntityType]) -> int | None:
    """Return an offset up to which every write of some types has a row, by the leader's report. None if unknown."""
    if report is None:
        return None
    known = [report.areas[entity_type].offset for entity_type in entity_types if entity_type in report.areas]
    return min((each for each in (*known, report.log_offset) if each is not None), default=None)


def observed_at(store: ClusterStore, entity: Entity) -> int | None:
    """Return the time of the last poll that covered an entity, milliseconds since the epoch, by the leader's report.

    Returns None if the cluster has no target, or if no poll has counted yet.
    """
    report = None if store.target() is None else parse(store.observation())
    entity_type = None if report is None else report.areas.get(kraft_type_of(entity))
    return None if entity_type is None else entity_type.observed_at
