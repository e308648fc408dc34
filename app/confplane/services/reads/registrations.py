"""Registrations of client software as a caller may list and clear them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.access.ranges import spell

if TYPE_CHECKING:
    from datetime import datetime

    from confplane.services.access import Access
    from confplane.services.ports.registrations import ClientRegistration, RegistrationLog


async def search(
    log: RegistrationLog, access: Access, cluster: str, *, entity_id: str | None, page_size: int, after: str | None
) -> tuple[list[tuple[ClientRegistration, datetime, datetime]], str | None]:
    """Return a page of the registrations of entities that the caller may describe, and the next cursor.

    Raises:
        ForbiddenError: ``entity_id`` names an entity that the caller may not describe.
        UnavailableError: Postgres is unavailable.
    """
    within = None
    if not access.unlimited:
        within = access.allowed(cluster, Operation.DESCRIBE_CONFIGS)
        if entity_id is not None:
            access.require(cluster, Operation.DESCRIBE_CONFIGS, entity_id, pointer="id")
    return await log.search(cluster, entity_id=entity_id, page_size=page_size, after=after, within=within)


async def clear(
    log: RegistrationLog, access: Access, cluster: str, *, entity_id: str | None, validate_only: bool
) -> int:
    """Hide the registrations of an entity (None: of the whole cluster); return the number hidden.

    Raises:
        ForbiddenError: The caller may not alter the entity, or the cluster.
        UnavailableError: Postgres is unavailable.
    """
    pointer, spelling = ("all", spell(ResourceType.CLUSTER)) if entity_id is None else ("id", entity_id)
    access.require(cluster, Operation.ALTER_CONFIGS, spelling, pointer=pointer)
    if validate_only:
        return 0
    return await log.clear(
        cluster, entity_id=entity_id, principal=access.identity.principal, request_id=access.request_id
    )
