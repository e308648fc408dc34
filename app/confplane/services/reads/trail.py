"""The trail as a caller may read it.

The grant DESCRIBE on ``audit`` shows the whole trail of a cluster. Without it a caller sees the changes of entities
that it may describe now. Other entities are left out of a change, which is then partial. A change of only hidden
entities is left out. Refused attempts follow the same rule; those without an entity are left out, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.access.ranges import spell
from confplane.domain.errors import NotFoundError
from confplane.services.ports.refusals import RefusedQuery
from confplane.services.ports.trail import AuditQuery

if TYPE_CHECKING:
    from uuid import UUID

    from confplane.domain.access.ranges import NameRanges
    from confplane.services.access import Access
    from confplane.services.ports.refusals import RefusedAttempts, StoredAttempt
    from confplane.services.ports.trail import AuditLog, AuditRecord

Q = TypeVar("Q", AuditQuery, RefusedQuery)


async def search(audit: AuditLog, access: Access, query: AuditQuery) -> tuple[list[AuditRecord], UUID | None]:
    """Return one page of the trail, and the cursor of the next or None.

    Raises:
        ForbiddenError: The query names an entity that the caller may not describe.
        UnavailableError: Postgres is unavailable.
    """
    return await audit.search(_narrowed(access, query))


async def search_refused(
    refusals: RefusedAttempts, access: Access, query: RefusedQuery
) -> tuple[list[StoredAttempt], UUID | None]:
    """Return one page of the refused attempts, and the cursor of the next or None.

    Raises:
        ForbiddenError: The query names an entity that the caller may not describe.
        UnavailableError: Postgres is unavailable.
    """
    return await refusals.search(_narrowed(access, query))


async def count(audit: AuditLog, access: Access, query: AuditQuery, most: int) -> int:
    """Return the number of changes that :func:`search` finds, or any number above ``most``.

    Raises:
        UnavailableError: Postgres is unavailable.
    """
    return await audit.count(replace(query, within=visible(access, query.cluster)), most)


async def find(audit: AuditLog, access: Access, cluster: str, change_id: UUID) -> AuditRecord:
    """Return one change.

    Raises:
        NotFoundError: The cluster's trail has no such change, or all its entities are hidden.
        UnavailableError: Postgres is unavailable.
    """
    record = await audit.get(cluster, change_id, within=visible(access, cluster))
    if record is None:
        raise NotFoundError(f"The trail of cluster {cluster!r} has no change {change_id}")
    return record


def _narrowed(access: Access, query: Q) -> Q:
    """Return a query of what the caller may see."""
    within = visible(access, query.cluster)
    if within is None:
        return query
    if query.entity_id is not None:
        access.require(query.cluster, Operation.DESCRIBE_CONFIGS, query.entity_id, pointer="entity")
    return replace(query, within=within)


def visible(access: Access, cluster: str) -> NameRanges | None:
    """Return the entities whose changes a caller may see; None: all."""
    if access.unlimited or access.allows(cluster, Operation.DESCRIBE, spell(ResourceType.AUDIT)):
        return None
    return access.allowed(cluster, Operation.DESCRIBE_CONFIGS)
