"""Looks at an observed Kafka cluster before a read with strong consistency: the entities and areas of the read.

Client configs are this service's own, so their reads look at nothing.
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
    """Look at all entities of a facet; errors are those of :func:`_refresh`."""
    await _refresh(call, entity_types=_ENTITY_TYPES[name])


async def refresh_entity(call: Call, name: FacetName, entity: Entity) -> None:
    """Look at one entity; errors are those of :func:`_refresh`."""
    if _ENTITY_TYPES[name]:
        await _refresh(call, entity)


async def refresh_levels(call: Call, name: FacetName, entities: Iterable[Entity]) -> None:
    """Look at entities of a facet with the levels behind them; errors are those of :func:`_refresh`.

    Behind quotas are other quotas, behind topics and brokers are all brokers.
    """
    if name is FacetName.CLIENT_QUOTAS:
        await _refresh(call, entity_types=(KraftEntityType.QUOTAS,))
    elif name is FacetName.CONFIGS:
        named = list(entities)
        kinds = {each.types[0] for each in named}
        brokers = (KraftEntityType.BROKERS,) if kinds & {EntityType.TOPIC, EntityType.BROKER} else ()
        await _refresh(call, *(each for each in named if each.types[0] is not EntityType.BROKER), entity_types=brokers)


async def _refresh(call: Call, *entities: Entity, entity_types: Sequence[KraftEntityType] = ()) -> None:
    """Look at the cluster, where the request asks for strong consistency and the cluster is observed.

    Args:
        call: The request; its ``observed_at`` is set.
        entities: The entities that are read.
        areas: Areas that are read as a whole.

    Raises:
        ForbiddenError: The caller may not describe an entity.
        LimitExceededError: Too many requests of the caller are waiting.
        UnauthenticatedError: The caller's token was revoked meanwhile.
        UnavailableError: The cluster is away, or does not show the entities.
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
    refresher = call.services.refreshers.get(call.cluster.name)
    if refresher is None:
        raise no_brokers(call.cluster.name)
    times = []
    if entities:
        times.append(await refresher.refresh_entities(entities, deadline))
    if entity_types:
        times.append(await refresher.refresh_types(entity_types, deadline))
    call.observed_at = min((each for each in times if each is not None), default=None)
    # Another process may have written what was seen.
    await call.cluster.store.catch_up(deadline)
