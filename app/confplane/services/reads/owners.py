"""Owners in reads: those of the entities of a page, and the filters of lists by owner and label.

They are as the trail explains them, which may be a second or two behind the configs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity
from confplane.services.ports.history import Znode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from confplane.domain.changes import Node
    from confplane.domain.ownership import Ownership, OwnershipFilter
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.ownerships import Ownerships

_WINDOW: Final = 1_000


class OwnerViews:
    """Reads owners for responses. One instance serves all clusters of a process.

    Args:
        ownerships: The owners as the trail explains them.
    """

    def __init__(self, ownerships: Ownerships) -> None:
        self._ownerships = ownerships

    async def of_nodes(self, cluster_facet: ClusterFacet, nodes: Sequence[Node]) -> dict[str, Ownership]:
        """Return the owners of the facet's keys of nodes, by entity id; entities without an owner are absent.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        znodes = [Znode(cluster_facet.tree, node.id) for node in nodes]
        states = await self._ownerships.known(cluster_facet.store.name, znodes) if znodes else {}
        return {
            node.id: state.ownership.keeping(_own_keys(cluster_facet, node))
            for node, znode in zip(nodes, znodes, strict=True)
            if (state := states.get(znode)) is not None and state.ownership.owners
        }

    def selection(self, cluster_facet: ClusterFacet, wanted: OwnershipFilter) -> Callable[[Entity], Awaitable[bool]]:
        """Return the predicate of a list. It is called for entities in the order of their ids."""
        return _Selection(self._ownerships, cluster_facet, wanted).selects


@dataclass(slots=True)
class _Selection:
    """A filter, with a window of the entities that have an owner."""

    ownerships: Ownerships
    cluster_facet: ClusterFacet
    wanted: OwnershipFilter
    found: dict[str, Ownership] = field(default_factory=dict)
    first: str | None = None
    """The window has all entities with an owner from this id on, up to its last one, or all if it is not full."""
    last: str = ""

    async def selects(self, entity: Entity) -> bool:
        entity_id = entity.id
        is_full = len(self.found) == _WINDOW
        if self.first is None or entity_id < self.first or (is_full and entity_id > self.last):
            tree = self.cluster_facet.tree.value
            page = await self.ownerships.owned(self.cluster_facet.store.name, tree, entity_id, _WINDOW)
            self.first, self.last, self.found = entity_id, page[-1][0] if page else "", dict(page)
        ownership = self.found.get(entity_id)
        if ownership is None:
            return False
        owns = self.cluster_facet.facet.owns
        return self.wanted.selects(ownership, {key for key in ownership.owners if owns(entity, key)})


def _own_keys(cluster_facet: ClusterFacet, node: Node) -> Mapping[str, str]:
    return cluster_facet.own(Entity.from_id(node.id), node.config)
