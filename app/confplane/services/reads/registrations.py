"""Registrations of client software as a caller may list and clear them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.access.ranges import spell
from confplane.domain.texts import clipped
from confplane.services.metrics import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from confplane.domain.entities import Entity
    from confplane.services.access import Access
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.registrations import ClientRegistration, RegistrationLog

logger: Final = logging.getLogger(__name__)

MOST_KEYS: Final = 200
LONGEST_KEY: Final = 100
_MOST_WARNED: Final = 1_000
"""Software versions that a process names in its log at most."""


class SupportedKeys:
    """The supported configs that a registration keeps: those of a catalog, within bounds. It counts the others."""

    def __init__(self) -> None:
        self._dropped = 0
        self._warned: set[tuple[str, str]] = set()

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield Sample("registration_keys_dropped", self._dropped)

    def known(
        self, cluster_facet: ClusterFacet, entity: Entity, software: tuple[str, str], configs: Iterable[str]
    ) -> tuple[str, ...]:
        """Return the supported configs of a registration that are kept, sorted, each once.

        Args:
            cluster_facet: The facet of client configs.
            entity: The client.
            software: The name and the version of the client's software.
            configs: The supported configs that the client sent.
        """
        given = set(configs)
        catalog, owns = cluster_facet.catalog, cluster_facet.facet.owns
        found = [key for key in given if len(key) <= LONGEST_KEY and (owns(entity, key) or catalog.find(key))]
        kept = tuple(sorted(found)[:MOST_KEYS])
        if len(kept) < len(given):
            self._dropped += len(given) - len(kept)
            self._warn(*map(clipped, software))
        return kept

    def _warn(self, name: str, version: str) -> None:
        if (name, version) not in self._warned and len(self._warned) < _MOST_WARNED:
            self._warned.add((name, version))
            logger.warning(
                "Registrations of %r %r have supported configs that no catalog has, or more than %d: they are left out",
                *(name, version, MOST_KEYS),
            )


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
