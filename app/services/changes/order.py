"""The order of one request's edits: levels of the same configs one after another, all other edits at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from app.domain.entities import Entity
    from app.domain.facets import Facet


class Stage(NamedTuple):
    """Edits that run at once, of entities of one rank."""

    rank: str
    positions: list[int]


def chains(facet: Facet, entities: Iterable[tuple[int, Entity]]) -> list[list[Stage]]:
    """Return chains that run at once, each of stages that run one after another.

    The check of an edit then sees every edit before it whose entity it reads, and none behind it.

    Args:
        facet: The facet, which ranks the entities that are checked against each other.
        entities: The entities with their positions in the request, in the order of the request.
    """
    alone: list[list[Stage]] = []
    scopes: dict[str, list[Stage]] = {}
    for position, entity in entities:
        rank = facet.rank(entity)
        if rank is None:
            alone.append([Stage("", [position])])
            continue
        chain = scopes.setdefault(rank.scope, [])
        if not chain or chain[-1].rank != rank.name:
            chain.append(Stage(rank.name, []))
        chain[-1].positions.append(position)
    return [*alone, *scopes.values()]
