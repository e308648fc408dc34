"""Applied status: reports of clients on the client configs that they have applied, and their counts.

The clients report their own state, which is not verified.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.domain.access.operations import Operation
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import InvalidRequestError
from confplane.domain.resolution import client_config_levels
from confplane.domain.texts import storable
from confplane.services.cooperative_yielding import TimeSlice

if TYPE_CHECKING:
    from confplane.services.access import Access
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.applied import AppliedReport, AppliedReports

MOST: Final = 1_000
"""Most groups in either list of a status."""
_MAX_REVISION: Final = 2**63 - 1


class AppliedGroup(NamedTuple):
    """Clients of one software that run with the configs of one revision."""

    software_name: str
    software_version: str
    revision: int
    """Of clients that have the latest configs, the revision of these."""


class RefusedGroup(NamedTuple):
    """Clients of one software that do not apply a config, for one reason."""

    key: str
    reason: str
    software_name: str
    software_version: str


@dataclass(frozen=True, slots=True)
class AppliedStatusCounts:
    """Counts of the reports of one entity's clients; for a user, including those with its client-ids."""

    revision: int
    """The revision of the last change of a node that decides the entity's configs; 0 without such a node."""
    instances: int
    applied: int
    """Instances whose configs are the latest ones of this mirror, but for those that they refuse."""
    groups: list[tuple[AppliedGroup, int]]
    """Numbers of instances, the greatest first."""
    refusals: list[tuple[RefusedGroup, int]]
    omitted: int
    """Groups beyond :data:`MOST` in the two lists, the smallest."""


def report(
    reports: AppliedReports,
    cluster_facet: ClusterFacet,
    entity: Entity,
    instance_id: str,
    given: AppliedReport,
    *,
    validate_only: bool,
) -> bool:
    """Take a client's report on its own client configs. Return True if it becomes a row in Postgres.

    Raises:
        InvalidRequestError: The entity names no single client, or the report can't be kept.
        ForbiddenError: The caller may not report for the client.
        UnavailableError: There is no room for a further instance.
    """
    _check_client(cluster_facet, entity)
    if cluster_facet.access is not None:
        cluster_facet.access.require(cluster_facet.store.name, Operation.REPORT, entity.id)
    entity.check_new(pointer="id")
    if given.applied_revision > _MAX_REVISION:
        raise InvalidRequestError(f"A revision is {_MAX_REVISION} at most", pointer="/appliedRevision")
    _check_text(given.software_name, "/softwareName")
    _check_text(given.software_version, "/softwareVersion")
    for index, refusal in enumerate(given.refused):
        _check_text(refusal.key, f"/refused/{index}/key")
        _check_text(refusal.reason, f"/refused/{index}/reason")
    return not validate_only and reports.report(
        cluster_facet.store.name, entity.id, instance_id, _settled(cluster_facet, entity, given)
    )


async def status(
    reports: AppliedReports, access: Access, cluster_facet: ClusterFacet, entity: Entity
) -> AppliedStatusCounts:
    """Count the reports of an entity's clients; for a user, including those with its client-ids.

    Raises:
        InvalidRequestError: The entity is a default one, whose configs no client has.
        ForbiddenError: The caller may not describe the entity.
        UnavailableError: The mirror was never loaded.
    """
    _check_client(cluster_facet, entity)
    cluster = cluster_facet.store.name
    access.require(cluster, Operation.DESCRIBE_CONFIGS, entity.id)
    found: Counter[AppliedGroup] = Counter()
    refusals: Counter[RefusedGroup] = Counter()
    applied = 0
    time_slice = TimeSlice()
    for entity_id in reports.reported(cluster, entity.id):
        latest, present = latest_revision(cluster_facet, Entity.from_id(entity_id)), _present_revision(cluster_facet)
        for each in reports.of_entity(cluster, entity_id):
            is_latest = latest <= each.applied_revision <= present
            applied += is_latest
            revision = latest if is_latest else each.applied_revision
            found[AppliedGroup(each.software_name, each.software_version, revision)] += 1
            refusals.update(
                RefusedGroup(refusal.key, refusal.reason, each.software_name, each.software_version)
                for refusal in each.refused
            )
        if time_slice.due:
            await time_slice.pause()
    return AppliedStatusCounts(
        latest_revision(cluster_facet, entity),
        found.total(),
        applied,
        found.most_common(MOST),
        refusals.most_common(MOST),
        max(0, len(found) - MOST) + max(0, len(refusals) - MOST),
    )


async def applied(reports: AppliedReports, cluster_facet: ClusterFacet, entity: Entity) -> bool | None:
    """Say whether all clients of an entity run with their latest configs and refuse none; None without a client.

    The caller may describe the entity; the clients are those of :func:`status`.
    """
    found: bool | None = None
    time_slice = TimeSlice()
    cluster = cluster_facet.store.name
    for entity_id in reports.reported(cluster, entity.id):
        latest, present = latest_revision(cluster_facet, Entity.from_id(entity_id)), _present_revision(cluster_facet)
        for each in reports.of_entity(cluster, entity_id):
            if not latest <= each.applied_revision <= present or each.refused:
                return False
            found = True
        if time_slice.due:
            await time_slice.pause()
    return found


def latest_revision(cluster_facet: ClusterFacet, entity: Entity) -> int:
    """Return the revision of the last change of a node that decides a client's configs; 0 without such a node.

    In the shared layout quotas are in these nodes as well: a change of a quota counts, until the client's next poll.
    """
    nodes = (cluster_facet.whole.get(level.entity_id) for level in client_config_levels(entity))
    return max((node.mzxid for node in nodes if node is not None), default=0)


def _present_revision(cluster_facet: ClusterFacet) -> int:
    """Return the revision that this mirror has reached; 0 before it is loaded.

    A report above it is on changes that are still to arrive here, or on those that a ZooKeeper lost by a restore.
    """
    freshness = cluster_facet.store.freshness()
    return 0 if freshness is None else freshness[0]


def _settled(cluster_facet: ClusterFacet, entity: Entity, given: AppliedReport) -> AppliedReport:
    """Return a report of the latest configs with the revision of these, so that the next report is the same.

    The revision of a client's answers grows with every change of the cluster, and a report that is new is written.
    A revision that this mirror has not reached stays: a change that it has not seen may lie between the two.
    """
    if given.applied_revision > _present_revision(cluster_facet):
        return given
    latest = latest_revision(cluster_facet.whole, entity)
    return given._replace(applied_revision=latest) if given.applied_revision > latest else given


def _check_client(cluster_facet: ClusterFacet, entity: Entity) -> None:
    cluster_facet.facet.check_entity(entity)
    if entity.get(EntityType.USER) is None or None in dict(entity.components).values():
        raise InvalidRequestError(
            "Name a client: a user, or a user with a client-id. No client has the configs of a default entity",
            pointer="id",
        )


def _check_text(text: str, pointer: str) -> None:
    if not storable(text):
        raise InvalidRequestError("A text has no NUL and no lone surrogate", pointer=pointer)
