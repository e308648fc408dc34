"""The keys that are set on an entity, by facet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from confplane.cli.remote.entities import MEMBERS, facets_of
from confplane.client import NothingSetError

if TYPE_CHECKING:
    from confplane.client import Answer, AsyncConfplane
    from confplane.domain.entities import Entity
    from confplane.domain.facets import FacetName


async def read_entity_values(
    client: AsyncConfplane, entity: Entity, moment: str | None = None
) -> dict[FacetName, Answer[Any]]:
    """Return the answer for each facet in which keys of an entity are set, now or at a time in the past."""
    facets = facets_of(entity)
    answers = await asyncio.gather(*(_of(client, each, entity, moment) for each in facets))
    return {facet: answer for facet, answer in zip(facets, answers, strict=True) if answer is not None}


async def _of(client: AsyncConfplane, facet: FacetName, entity: Entity, moment: str | None) -> Answer[Any] | None:
    try:
        return await client.resources(facet).get(entity, at=moment)
    except NothingSetError:
        return None


def keys_of(facet: FacetName, answer: Answer[Any]) -> dict[str, Any]:
    """Return the keys and values of an answer."""
    values: dict[str, Any] = answer.body[MEMBERS[facet]]
    return values
