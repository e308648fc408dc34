"""Read-through for strong consistency: refreshes what a read needs from an observed Kafka cluster.

Client configs exist only in this service, so their reads refresh nothing.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from confplane.api.dependencies import while_valid
from confplane.api.request_context import REQUEST_CONTEXT
from confplane.domain.access.operations import Operation
from confplane.domain.entities import EntityType
from confplane.domain.facets import FacetName
from confplane.services.kraft.refresh import no_brokers
from confplane.services.ports.kafka import KraftEntityType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from confplane.api.dependencies import Call
    from confplane.api.request_context import RequestContext
    from confplane.domain.entities import Entity

_ENTITY_TYPES: Final[Mapping[FacetName, tuple[KraftEntityType, ...]]] = {
    FacetName.CLIENT_QUOTAS: (KraftEntityType.QUOTAS,),
    FacetName.CLIENT_CONFIGS: (),
    FacetName.CONFIGS: (
        KraftEntityType.BROKERS,
        KraftEntityType.GROUPS,
        KraftEntityType.CLIENT_METRICS,
        KraftEntityType.TOPICS,
    ),
}


async def refresh_facet(call: Call, name: FacetName) -> None:
    """Refresh all entities of a facet. Errors are those of :func:`_refresh`."""
    await _refresh(call, entity_types=_ENTITY_TYPES[name])


async def refresh_entity(call: Call, name: FacetName, entity: Entity) -> None:
    """Refresh one entity. Errors are those of :func:`_refresh`."""
    if _ENTITY_TYPES[name]:
        await _refresh(call, entity)


async def refresh_levels(call: Call, name: FacetName, entities: Iterable[Entity]) -> None:
    """Refresh entities of a facet and the levels that they inherit from. Errors are those of :func:`_refresh`.

    Quotas inherit from other quotas. Topics and brokers inherit from all brokers.
    """
    if name is FacetName.CLIENT_QUOTAS:
        await _refresh(call, entity_types=(KraftEntityType.QUOTAS,))
    elif name is FacetName.CONFIGS:
        named = list(entities)
        kinds = {each.types[0] for each in named}
        brokers = (KraftEntityType.BROKERS,) if kinds & {EntityType.TOPIC, EntityType.BROKER} else ()
        await _refresh(call, *(each for each in named if each.types[0] is not EntityType.BROKER), entity_types=brokers)


async def _refresh(call: Call, *entities: Entity, entity_types: Sequence[KraftEntityType] = ()) -> None:
    """Refresh from the cluster if the request asks for strong consistency and the cluster is observed.

    Args:
        call: The request; its ``observed_at`` is set.
        entities: The entities that are read.
        entity_types: Entity types that are read completely.

    Raises:
        ForbiddenError: The caller may not describe an entity.
        LimitExceededError: Too many requests of the caller are waiting.
        UnauthenticatedError: The caller's token was revoked during the refresh.
        UnavailableError: The cluster is unavailable or does not return the entities.
    """
    if not call.strong or call.cluster.store.target() is None or not (entities or entity_types):
        return
    for entity in entities:
        call.access.require(call.cluster.name, Operation.DESCRIBE_CONFIGS, entity.id)
    context: RequestContext = call.request.scope[REQUEST_CONTEXT]
    with nullcontext() if context.allowance is None else context.allowance.wait():
        await while_valid(call.access, _refresh_observed(call, entities, entity_types, context.deadline))


async def _refresh_observed(
    call: Call, entities: Sequence[Entity], entity_types: Sequence[KraftEntityType], deadline: float
) -> None:
    refresher = call.cluster.refresher
    if refresher is None:
        raise no_brokers(call.cluster.name)
    refreshed = await refresher.refresh(entities, entity_types, deadline)
    call.observed_at = None if refreshed is None else refreshed.observed_at
