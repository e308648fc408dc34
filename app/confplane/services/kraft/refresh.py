"""Refreshes: polls of any process for reads with ``consistency=strong`` and for conditional writes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from confplane.domain.errors import UnavailableError
from confplane.services.kraft.observe.poller import PollRound
from confplane.services.ports.kafka import EntityTypePermission, NotPermittedError, kraft_type_of
from confplane.services.ports.observation_report import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from confplane.domain.entities import Entity
    from confplane.services.kraft.observe.poller import PollResult
    from confplane.services.kraft.reconcile.follow_writer import FollowParts
    from confplane.services.ports.kafka import KraftEntityType
    from confplane.services.ports.observation_report import ObservationReport
    from confplane.services.ports.store import ClusterStore


class EntityRefresh(NamedTuple):
    """The result of a refresh."""

    observed_at: int
    """The time of the first poll, milliseconds since the epoch."""
    hidden: frozenset[str]
    """The entities' ids with the keys that the cluster has and that are not followed: ``topic=orders acme.key``."""


class Refresher:
    """Brings entities up to date with an observed cluster, as of the call."""

    def __init__(self, parts: FollowParts, store: ClusterStore) -> None:
        self._cluster = parts.cluster
        self._store = store
        self._decisions = parts.decisions
        self._writer = parts.writer
        self._poller = parts.poller

    async def refresh(
        self, entities: Sequence[Entity], entity_types: Iterable[KraftEntityType], deadline: float
    ) -> EntityRefresh | None:
        """Poll after all changes that the cluster acknowledged before the call; bring the mirror up to date.

        Args:
            entities: Entities whose configs the cluster has. Topics and brokers need not exist.
            entity_types: Entity types that are refreshed completely. Those that the cluster does not show are left out.
            deadline: On ``time.monotonic()``'s clock.

        Returns:
            The result; None if the cluster is not observed now.

        Raises:
            UnavailableError: The cluster or a store is unavailable, the observation was paused, or the cluster does not
                show the entities.
        """
        observed = self._decisions.target.imported and not self._decisions.target.paused
        refreshed = await self._refresh(entities, entity_types, deadline) if observed else None
        # Another process may have written the observed changes.
        await self._store.catch_up(deadline)
        return refreshed

    async def _refresh(
        self, entities: Sequence[Entity], entity_types: Iterable[KraftEntityType], deadline: float
    ) -> EntityRefresh:
        offset = await self._cluster.barrier(deadline)
        report, began, hidden = parse(self._store.observation()), int(time.time() * 1000), frozenset[str]()
        since, current = _recorded_offset(report, map(kraft_type_of, entities)), not entities
        while not current:
            results = await self._poller.poll_entities(entities, since, deadline)
            if denied := [reason for each in results for reason in each.denied.values()]:
                raise NotPermittedError(denied[0])
            hidden = frozenset(key for each in results for key in each.hidden)
            current = all([await self._follow(each, offset) for each in results])
            if not current:
                await self._poller.wait_for_broker(offset, deadline)
        for entity_type in entity_types:
            known = None if report is None else report.areas.get(entity_type)
            current = known is not None and known.permission is EntityTypePermission.NONE
            since = _recorded_offset(report, [entity_type])
            while not current:
                polls = self._poller.poll_all(PollRound(entity_type), since, deadline)
                current = all([await self._follow(each, offset) async for each in polls])
                if not current:
                    await self._poller.wait_for_broker(offset, deadline)
        return EntityRefresh(began, hidden)

    async def _follow(self, result: PollResult, offset: int) -> bool:
        """Follow a poll. Returns whether it was at the offset or later."""
        outcome = await self._writer.follow(result.differing)
        return result.after >= offset and not outcome.stale


def no_brokers(cluster: str) -> UnavailableError:
    """Return the error of a process whose settings name no brokers of a cluster."""
    return UnavailableError(
        f"The settings of this process have no brokers of {cluster}, so its Kafka cluster can't be read"
    )


async def refresh_first(
    store: ClusterStore, refresher: Refresher | None, entities: Sequence[Entity], deadline: float
) -> frozenset[str]:
    """Refresh those of some entities that may have external changes, before a write that depends on these.

    Returns:
        As of :attr:`EntityRefresh.hidden`.

    Raises:
        UnavailableError: As of :meth:`Refresher.refresh`.
    """
    target = store.target()
    shared = [each for each in entities if target is not None and target.applies_to(kraft_type_of(each))]
    if not shared:
        return frozenset()
    if refresher is None:
        raise no_brokers(store.name)
    refreshed = await refresher.refresh(shared, (), deadline)
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
