"""The import of a Kafka cluster's configs: from the first contact to the observation.

The target is written first, and says that the import is not complete. Then each area is looked at, and what differs
from the znodes is written, in changes of the kind ``import``. At the end the target says that the import is complete,
and the report names the metadata offset of each look: the observer follows all changes behind it. A run that was cut
short is run again, and writes what is missing.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from confplane.domain.facets import Tree
from confplane.services.kraft.report import AreaReport, Names, Report
from confplane.services.ports.cluster_states import Target
from confplane.services.ports.kafka import Area, Permission

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from confplane.services.changes.callers import Caller
    from confplane.services.kraft.following import Following
    from confplane.services.kraft.looks import Looked
    from confplane.services.kraft.state import TargetService
    from confplane.services.ports.kafka import ClusterIdentity
    from confplane.services.ports.store import ClusterStore

ORDER: Final = (Area.BROKERS, Area.CLIENT_METRICS, Area.GROUPS, Area.QUOTAS, Area.TOPICS)
_LOOK_S: Final = 120.0
_STEP: Final = 20_000
"""Entities between two reports of progress, each of which waits for all changes before."""


@dataclass(frozen=True, slots=True)
class AreaSurvey:
    """One area of a cluster, before an import."""

    permission: Permission
    reason: str = ""
    """The missing right, in a sentence."""
    entities: int = 0
    """Entities with declared configs."""
    differing: int = 0
    """Entities whose znodes would be written."""
    unmanaged: Mapping[str, str] = field(default_factory=dict)
    hidden: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Survey:
    """A cluster before an import."""

    identity: ClusterIdentity
    target: Target | None
    """The target as it is now."""
    areas: Mapping[Area, AreaSurvey]
    blockers: tuple[str, ...]
    """The reasons against an import, each with what to do; empty where it may begin."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of an import."""

    area: Area
    done: int
    """Entities of the area that were written in this look, or topics that were looked at."""
    total: int
    written: int
    """Entities of all areas that were written so far."""


@dataclass(slots=True)
class _Shown:
    """The findings of the looks at one area, together."""

    first: Looked | None = None
    entities: int = 0
    differing: int = 0
    unmanaged: dict[str, str] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)

    def add(self, looked: Looked) -> None:
        """Add a look at the whole area, or at its next piece."""
        self.first = self.first or looked
        self.entities += looked.entities
        self.differing += len(looked.seen)
        self.unmanaged |= looked.unmanaged
        self.hidden |= looked.hidden

    def report(self, report: AreaReport, refused: Mapping[str, str]) -> AreaReport:
        """Return a report on the area with these looks; ``refused`` has entities that ZooKeeper can't hold."""
        if self.first is None:
            return report
        return replace(
            report,
            observed_at=self.first.at_ms,
            offset=self.first.after,
            entities=self.entities,
            unmanaged=Names.of({**self.unmanaged, **refused}),
            hidden=Names.of(self.hidden),
        )


class Importer:
    """Imports the configs of one cluster.

    Args:
        following: The parts that look and write.
        store: The cluster's store, started.
        targets: Changes the target.
    """

    def __init__(self, following: Following, store: ClusterStore, targets: TargetService) -> None:
        self._cluster = following.cluster
        self._store = store
        self._follower = following.follower
        self._looks = following.looks
        self._targets = targets
        self._surveyed: dict[Area, list[tuple[Looked, tuple[int, int]]]] = {}
        self._reports: dict[Area, AreaReport] = {}
        self.refused: dict[str, str] = {}
        """Entities that ZooKeeper can't hold, each with the reason."""

    @property
    def written(self) -> int:
        """The number of entities written so far."""
        return self._follower.written

    async def survey(self, deadline: float) -> Survey:
        """Look at everything that the cluster shows, and write nothing; the next :meth:`run` begins with these looks.

        All areas are looked at together, because a look waits up to half a second for its broker.

        Raises:
            UnavailableError: The cluster or ZooKeeper is away, or the cluster refuses the login.
        """
        await self._store.catch_up(deadline)
        identity = await self._cluster.identity(deadline)
        state = await self._store.read_state(Target, deadline)
        permissions = await self._cluster.permissions(deadline)
        looks = (self._survey(area, *permissions.get(area, (Permission.NONE, "It was not tried"))) for area in ORDER)
        areas = dict(zip(ORDER, await asyncio.gather(*looks), strict=True))
        blockers = await self._blockers(areas, deadline)
        if state.value is not None and state.value.applies:
            mode = (
                "Callers write quotas and configs here (mode adopt or enforce), and an import would make them those of"
                f" the Kafka cluster. `confplane target observe --cluster {self._store.name}` ends the mode"
            )
            blockers += (mode,)
        return Survey(identity, state.value, areas, blockers)

    async def _survey(self, area: Area, permission: Permission, reason: str) -> AreaSurvey:
        shown = _Shown()
        if permission is not Permission.NONE:
            self._surveyed[area] = [each async for each in self._looks.whole(area, None, _until)]
            for looked, _ in self._surveyed[area]:
                shown.add(looked)
        return AreaSurvey(permission, reason, shown.entities, shown.differing, shown.unmanaged, shown.hidden)

    async def begin(self, identity: ClusterIdentity, caller: Caller) -> Target:
        """Write the target: see :meth:`TargetService.begin`. The caller has made sure that nothing blocks it."""
        return await self._targets.begin(identity.cluster_id, caller)

    async def run(self) -> AsyncIterator[Progress]:
        """Write what differs, area by area: all that a look at the area has shown, the survey's or a new one.

        An area is looked at again where others overtook a look. Later changes are the observer's to follow.

        Raises:
            UnavailableError: The cluster or a store is away. What was written stands, and another run goes on.
            ObservedError: The target was paused, or is gone.
        """
        permissions = await self._cluster.permissions(time.monotonic() + _LOOK_S)
        for area in ORDER:
            permission, reason = permissions.get(area, (Permission.NONE, ""))
            report = AreaReport(permission, reason)
            overtaken = permission is not Permission.NONE
            while overtaken:
                overtaken, shown = False, _Shown()
                async for looked, (done, total) in self._pieces(area):
                    shown.add(looked)
                    seen = [each for each in looked.seen if each.entity.id not in self.refused]
                    for start in range(0, len(seen), _STEP):
                        followed = await self._follower.follow(seen[start : start + _STEP])
                        self.refused |= followed.refused
                        overtaken = overtaken or bool(followed.stale)
                        if area is not Area.TOPICS:
                            yield Progress(area, min(start + _STEP, len(seen)), len(seen), self.written)
                    if area is Area.TOPICS:
                        yield Progress(area, done, total, self.written)
                report = shown.report(report, self.refused)
            self._reports[area] = report

    async def _pieces(self, area: Area) -> AsyncIterator[tuple[Looked, tuple[int, int]]]:
        """Iterate over the looks of the survey, as long as they were not used; then over new ones."""
        surveyed = self._surveyed.pop(area, None)
        if surveyed is None:
            async for each in self._looks.whole(area, None, _until):
                yield each
        else:
            for each in surveyed:
                yield each

    async def end(self, identity: ClusterIdentity, caller: Caller) -> Target:
        """Say that the import is complete, after a whole :meth:`run`; the leader observes the cluster from then on."""
        report = Report(
            at=int(time.time() * 1000),
            process=self._store.writer(),
            cluster_id=identity.cluster_id,
            release=identity.release,
            metadata_version=identity.metadata_version,
            brokers=identity.brokers,
            areas=self._reports,
        )
        # The observation begins with it: what changed since these looks is then placed between known offsets.
        await self._store.publish_observation(report.encode(), caller.deadline)
        return await self._targets.complete(caller)

    async def _blockers(self, areas: Mapping[Area, AreaSurvey], deadline: float) -> tuple[str, ...]:
        name, found = self._store.name, []
        controller = await self._store.read_raw("/controller", deadline)
        if self._store.status().brokers_registered or (controller is not None and not _kraft(controller)):
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
        if all(each.permission is Permission.NONE for each in areas.values()):
            reasons = "; ".join(sorted({each.reason for each in areas.values() if each.reason}))
            found.append(f"The cluster shows none of its configs to this service: {reasons}")
        return tuple(found)


def _until() -> float:
    """Return the deadline of the next look."""
    return time.monotonic() + _LOOK_S


def _kraft(controller: bytes) -> bool:
    """Say whether ``/controller`` is what a KRaft controller left (KIP-866)."""
    try:
        epoch = json.loads(controller).get("kraftControllerEpoch", -1)
    except (ValueError, AttributeError):
        return False
    return isinstance(epoch, int) and epoch > 0
