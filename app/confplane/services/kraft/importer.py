"""The import of a Kafka cluster's configs: from the first contact to the observation.

The target is written first, marked as not completely imported. Then each entity type is polled, and the differences
are written to the znodes in changes of the kind ``import``. At the end the target is updated to show that the import is
complete, and the report has the metadata offset of each poll: the observer follows all later changes. A run that was
interrupted is started again, and writes the missing differences.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confplane.domain.facets import Tree
from confplane.services.kraft.observe.poller import PollResult
from confplane.services.ports.cluster_states import Target
from confplane.services.ports.kafka import EntityTypePermission, GrantedPermission, KraftEntityType
from confplane.services.ports.observation_report import EntityTypeReport, ObservationReport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from confplane.services.changes.callers import Caller
    from confplane.services.kraft.reconcile.follow_writer import FollowParts
    from confplane.services.kraft.target_service import TargetService
    from confplane.services.ports.kafka import ClusterIdentity
    from confplane.services.ports.store import ClusterStore

ORDER: Final = (
    KraftEntityType.BROKERS,
    KraftEntityType.CLIENT_METRICS,
    KraftEntityType.GROUPS,
    KraftEntityType.QUOTAS,
    KraftEntityType.TOPICS,
)
_POLL_S: Final = 120.0
_UNTRIED: Final = GrantedPermission(EntityTypePermission.NONE, "It was not tried")
_STEP: Final = 20_000
"""Entities between two reports of progress, each of which waits for all changes before."""


@dataclass(frozen=True, slots=True)
class EntityTypeSurvey:
    """One entity type of a cluster, before an import."""

    permission: EntityTypePermission
    reason: str
    """The missing right, in a sentence."""
    differing: int
    """Entities whose znodes would be written."""
    totals: PollResult
    """The totals of all polls."""


@dataclass(frozen=True, slots=True)
class ImportSurvey:
    """A cluster before an import."""

    identity: ClusterIdentity
    target: Target | None
    """The target as it is now."""
    entity_types: Mapping[KraftEntityType, EntityTypeSurvey]
    blockers: tuple[str, ...]
    """The reasons against an import, each with a next step; empty if it may begin."""


@dataclass(frozen=True, slots=True)
class ImportProgress:
    """The progress of an import."""

    entity_type: KraftEntityType
    done: int
    """Entities of the type that were written in this poll, or topics that were polled."""
    total: int
    written: int
    """Entities of all types that were written so far."""


class Importer:
    """Imports the configs of one cluster."""

    def __init__(self, parts: FollowParts, store: ClusterStore, targets: TargetService) -> None:
        self._cluster = parts.cluster
        self._store = store
        self._writer = parts.writer
        self._poller = parts.poller
        self._targets = targets
        self._surveyed: dict[KraftEntityType, list[tuple[PollResult, tuple[int, int]]]] = {}
        self._reports: dict[KraftEntityType, EntityTypeReport] = {}
        self.refused: dict[str, str] = {}
        """Entities that ZooKeeper can't hold, each with the reason."""

    @property
    def written(self) -> int:
        """The number of entities written so far."""
        return self._writer.written

    async def survey(self, deadline: float) -> ImportSurvey:
        """Poll everything that the cluster shows, and write nothing. The next :meth:`run` begins with these polls.

        All entity types are polled concurrently, because a poll waits up to half a second for its broker.

        Raises:
            UnavailableError: The cluster or ZooKeeper is unavailable, or the cluster refuses the login.
        """
        await self._store.catch_up(deadline)
        identity = await self._cluster.identity(deadline)
        state = await self._store.read_state(Target, deadline)
        permissions = await self._cluster.permissions(deadline)
        polls = (self._survey(entity_type, permissions.get(entity_type, _UNTRIED)) for entity_type in ORDER)
        entity_types = dict(zip(ORDER, await asyncio.gather(*polls), strict=True))
        blockers = await self._blockers(entity_types, deadline)
        if state.value is not None and state.value.applies:
            mode = (
                "Callers write quotas and configs here (mode adopt or enforce), and an import would make them those of"
                f" the Kafka cluster. `confplane target observe --cluster {self._store.name}` ends the mode"
            )
            blockers += (mode,)
        return ImportSurvey(identity, state.value, entity_types, blockers)

    async def _survey(self, entity_type: KraftEntityType, granted: GrantedPermission) -> EntityTypeSurvey:
        polls: list[tuple[PollResult, tuple[int, int]]] = []
        if granted.permission is not EntityTypePermission.NONE:
            polls = [each async for each in self._poller.poll_all(entity_type, None, _poll_deadline)]
            self._surveyed[entity_type] = polls
        differing, totals = 0, PollResult(-1, -1, 0)
        for result, _ in polls:
            differing += len(result.differing)
            totals.add_totals(result)
        return EntityTypeSurvey(granted.permission, granted.reason, differing, totals)

    async def begin(self, identity: ClusterIdentity, caller: Caller) -> Target:
        """Write the target: see :meth:`TargetService.begin`. The caller has made sure that nothing blocks it."""
        return await self._targets.begin(identity.cluster_id, caller)

    async def run(self) -> AsyncIterator[ImportProgress]:
        """Write the differences, one entity type after the other, from the polls of the survey or from new ones.

        An entity type is polled again if a concurrent change overtook a poll. The observer follows later changes.

        Raises:
            UnavailableError: The cluster or a store is unavailable. Written changes remain, and another run continues.
            ObservedError: The target was paused, or is gone.
        """
        permissions = await self._cluster.permissions(time.monotonic() + _POLL_S)
        for entity_type in ORDER:
            granted = permissions.get(entity_type, _UNTRIED)
            report = EntityTypeReport(granted.permission, granted.reason)
            overtaken = granted.permission is not EntityTypePermission.NONE
            while overtaken:
                overtaken, totals = False, None
                async for result, (done, total) in self._pieces(entity_type):
                    totals = totals or PollResult(result.after, result.until, result.at_ms)
                    totals.add_totals(result)
                    seen = [each for each in result.differing if each.entity.id not in self.refused]
                    for start in range(0, len(seen), _STEP):
                        outcome = await self._writer.follow(seen[start : start + _STEP])
                        self.refused |= outcome.refused
                        overtaken = overtaken or bool(outcome.stale)
                        if entity_type is not KraftEntityType.TOPICS:
                            yield ImportProgress(entity_type, min(start + _STEP, len(seen)), len(seen), self.written)
                    if entity_type is KraftEntityType.TOPICS:
                        yield ImportProgress(entity_type, done, total, self.written)
                if totals is not None:
                    totals.unmanaged |= self.refused
                    report = totals.report(report, totals.after)
            self._reports[entity_type] = report

    async def _pieces(self, entity_type: KraftEntityType) -> AsyncIterator[tuple[PollResult, tuple[int, int]]]:
        """Iterate over the polls of the survey if they are still unused; otherwise over new ones."""
        surveyed = self._surveyed.pop(entity_type, None)
        if surveyed is None:
            async for each in self._poller.poll_all(entity_type, None, _poll_deadline):
                yield each
        else:
            for each in surveyed:
                yield each

    async def end(self, identity: ClusterIdentity, caller: Caller) -> Target:
        """Record that the import is complete, after a whole :meth:`run`; the leader then observes the cluster."""
        report = ObservationReport(
            at=int(time.time() * 1000),
            process=self._store.writer(),
            cluster_id=identity.cluster_id,
            release=identity.release,
            metadata_version=identity.metadata_version,
            brokers=identity.brokers,
            areas=self._reports,
        )
        # The observation begins with it: changes since these polls are then between known offsets.
        await self._store.publish_observation(report.encode(), caller.deadline)
        return await self._targets.complete(caller)

    async def _blockers(
        self, entity_types: Mapping[KraftEntityType, EntityTypeSurvey], deadline: float
    ) -> tuple[str, ...]:
        name, found = self._store.name, []
        controller = await self._store.read_raw("/controller", deadline)
        if self._store.status().brokers_registered or (controller is not None and not _is_kraft_controller(controller)):
            found.append(
                "This ensemble belongs to brokers: there is a controller, or brokers are registered in /brokers/ids."
                " Give this cluster a ZooKeeper path of its own in the settings, or wait until the migration of these"
                " brokers to KRaft is complete"
            )
        place = self._store.place()
        if place.moving or place.tree is Tree.CONFIG:
            found.append(
                "The client configs share the znodes of users, which will be those of the Kafka cluster. Move them"
                f" first: `confplane layout move --cluster {name} --to separate --apply`"
            )
        if all(each.permission is EntityTypePermission.NONE for each in entity_types.values()):
            reasons = "; ".join(sorted({each.reason for each in entity_types.values() if each.reason}))
            found.append(f"The cluster shows none of its configs to this service: {reasons}")
        return tuple(found)


def _poll_deadline() -> float:
    """Return the deadline of the next poll."""
    return time.monotonic() + _POLL_S


def _is_kraft_controller(controller: bytes) -> bool:
    """Return whether ``/controller`` is what a KRaft controller left (KIP-866)."""
    try:
        epoch = json.loads(controller).get("kraftControllerEpoch", -1)
    except (ValueError, AttributeError):
        return False
    return isinstance(epoch, int) and epoch > 0
