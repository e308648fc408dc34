"""Looks at an observed Kafka cluster before a read with strong consistency: the entities and areas of the read.

Client configs are this service's own, so their reads look at nothing.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from confplane.api.context import while_valid
from confplane.api.incoming import INCOMING
from confplane.domain.access.operations import Operation
from confplane.domain.entities import EntityType
from confplane.domain.facets import FacetName
from confplane.services.kraft.fresh import no_brokers
from confplane.services.ports.kafka import Area

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from confplane.api.context import Call
    from confplane.api.incoming import Incoming
    from confplane.domain.entities import Entity

_AREAS: Final[Mapping[FacetName, tuple[Area, ...]]] = {
    FacetName.CLIENT_QUOTAS: (Area.QUOTAS,),
    FacetName.CLIENT_CONFIGS: (),
    FacetName.CONFIGS: (Area.BROKERS, Area.GROUPS, Area.CLIENT_METRICS, Area.TOPICS),
}


async def everything(call: Call, name: FacetName) -> None:
    """Look at all entities of a facet; errors are those of :func:`_look`."""
    await _look(call, areas=_AREAS[name])


async def declared(call: Call, name: FacetName, entity: Entity) -> None:
    """Look at one entity; errors are those of :func:`_look`."""
    if _AREAS[name]:
        await _look(call, entity)


async def effective(call: Call, name: FacetName, entities: Iterable[Entity]) -> None:
    """Look at entities of a facet with the levels behind them; errors are those of :func:`_look`.

    Behind quotas are other quotas, behind topics and brokers are all brokers.
    """
    if name is FacetName.CLIENT_QUOTAS:
        await _look(call, areas=(Area.QUOTAS,))
    elif name is FacetName.CONFIGS:
        named = list(entities)
        kinds = {each.types[0] for each in named}
        brokers = (Area.BROKERS,) if kinds & {EntityType.TOPIC, EntityType.BROKER} else ()
        await _look(call, *(each for each in named if each.types[0] is not EntityType.BROKER), areas=brokers)


async def _look(call: Call, *entities: Entity, areas: Sequence[Area] = ()) -> None:
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
    if not call.strong or call.cluster.store.target() is None or not (entities or areas):
        return
    for entity in entities:
        call.access.require(call.cluster.name, Operation.DESCRIBE_CONFIGS, entity.id)
    incoming: Incoming = call.request.scope[INCOMING]
    with nullcontext() if incoming.allowance is None else incoming.allowance.wait():
        await while_valid(call.access, _looked(call, entities, areas, incoming.deadline))


async def _looked(call: Call, entities: Sequence[Entity], areas: Sequence[Area], deadline: float) -> None:
    freshener = call.services.fresheners.get(call.cluster.name)
    if freshener is None:
        raise no_brokers(call.cluster.name)
    times = []
    if entities:
        times.append(await freshener.look_at(entities, deadline))
    if areas:
        times.append(await freshener.look_over(areas, deadline))
    call.observed_at = min((each for each in times if each is not None), default=None)
    # Another process may have written what was seen.
    await call.cluster.store.catch_up(deadline)
