"""The import of a Kafka cluster's configs: from the first contact to the observation (docs/kafka4-design.md).

A run that was interrupted is started again, and writes the missing differences.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confplane.domain.facets import Tree
from confplane.services.kraft.observe.poller import PollResult, PollRound
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

ORDER: Final = sorted(KraftEntityType)
_PERMISSIONS_S: Final = 120.0
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
        self._surveyed: dict[KraftEntityType, tuple[PollRound, list[PollResult]]] = {}
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
        polls, results = PollRound(entity_type), list[PollResult]()
        if granted.permission is not EntityTypePermission.NONE:
            results = [each async for each in self._poller.poll_all(polls, None)]
            self._surveyed[entity_type] = polls, results
        differing = sum(len(each.differing) for each in results)
        return EntityTypeSurvey(granted.permission, granted.reason, differing, polls.total or PollResult(-1, -1, 0))

    async def run(self) -> AsyncIterator[ImportProgress]:
        """Write the differences, one entity type after the other, from the polls of the survey or from new ones.

        An entity type is polled again if a concurrent change overtook a poll. The observer follows later changes.

        Raises:
            UnavailableError: The cluster or a store is unavailable. Written changes remain, and another run continues.
            ObservedError: The target was paused, or is gone.
        """
        permissions = await self._cluster.permissions(time.monotonic() + _PERMISSIONS_S)
        for entity_type in ORDER:
            granted = permissions.get(entity_type, _UNTRIED)
            self._reports[entity_type] = EntityTypeReport(granted.permission, granted.reason)
            overtaken = granted.permission is not EntityTypePermission.NONE
            while overtaken:
                overtaken, polls = False, PollRound(entity_type)
                async for result in self._polls(polls):
                    seen = [each for each in result.differing if each.entity.id not in self.refused]
                    for start in range(0, len(seen), _STEP):
                        outcome = await self._writer.follow(seen[start : start + _STEP])
                        self.refused |= outcome.refused
                        overtaken = overtaken or bool(outcome.stale)
                        if not polls.names:
                            yield ImportProgress(entity_type, min(start + _STEP, len(seen)), len(seen), self.written)
                    if polls.names:
                        done = min(polls.at, len(polls.names))
                        yield ImportProgress(entity_type, done, len(polls.names), self.written)
                if polls.total is not None:
                    polls.total.unmanaged |= self.refused
                    self._reports[entity_type] = polls.total.report(self._reports[entity_type], polls.total.after)

    async def _polls(self, polls: PollRound) -> AsyncIterator[PollResult]:
        """Iterate over the polls of the survey if they are still unused; otherwise over new ones."""
        surveyed = self._surveyed.pop(polls.entity_type, None)
        if surveyed is None:
            async for each in self._poller.poll_all(polls, None):
                yield each
            return
        polls.listed = surveyed[0].listed
        for each in surveyed[1]:
            polls.add(each)
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


def _is_kraft_controller(controller: bytes) -> bool:
    """Return whether ``/controller`` is what a KRaft controller left (KIP-866)."""
    try:
        epoch = json.loads(controller).get("kraftControllerEpoch", -1)
    except (ValueError, AttributeError):
        return False
    return isinstance(epoch, int) and epoch > 0
