"""The order of one request's edits: levels of the same configs one after another, all other edits at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confplane.domain.facets import Rank


class Stage(NamedTuple):
    """Edits that run at once, of entities of one rank."""

    rank: str
    positions: list[int]


def chains(ranks: Iterable[Rank | None]) -> list[list[Stage]]:
    """Return chains that run at once, each of stages that run one after another.

    The check of an edit then sees every edit before it whose entity it reads, and no edit after it.

    Args:
        ranks: The ranks of the edits' entities in the order of the request; None for an entity that is checked apart.
    """
    alone: list[list[Stage]] = []
    scopes: dict[str, list[Stage]] = {}
    for position, rank in enumerate(ranks):
        if rank is None:
            alone.append([Stage("", [position])])
            continue
        chain = scopes.setdefault(rank.scope, [])
        if not chain or chain[-1].rank != rank.name:
            chain.append(Stage(rank.name, []))
        chain[-1].positions.append(position)
    return [*alone, *scopes.values()]
