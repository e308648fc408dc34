"""The trees that had a facet's keys at a revision: client configs may have been moved between two trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confplane.domain.facets import Tree
from confplane.services.ports.cluster_states import ENTITY, LAYOUT_KEY
from confplane.services.ports.trail import AuditQuery

if TYPE_CHECKING:
    from uuid import UUID

    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.trail import AuditLog

_BY_NAME: Final = {tree.layout: tree for tree in Tree}


class Layouts:
    """The layouts of one facet over time.

    Args:
        now: The trees of today, the one that is read first before the other.
        changes: The changes of the layout: their incarnations and revisions, and the trees before each, in this order.
        incarnation: The current incarnation of the store.
    """

    def __init__(
        self, now: tuple[Tree, ...], changes: list[tuple[tuple[int, int], tuple[Tree, ...]]], incarnation: int
    ) -> None:
        self._now = now
        self._changes = changes
        self._incarnation = incarnation

    def at(self, revision: int, incarnation: int | None = None) -> tuple[Tree, ...]:
        """Return the trees at a revision of an incarnation (None: the current one), in the order of reads."""
        place = (self._incarnation if incarnation is None else incarnation), revision
        return next((before for changed, before in self._changes if changed > place), self._now)


async def layouts_of(audit: AuditLog, cluster_facet: ClusterFacet) -> Layouts:
    """Return the layouts of a facet.

    Raises:
        UnavailableError: Postgres is unavailable.
    """
    if not cluster_facet.laid_out:
        return Layouts((cluster_facet.root,), [], cluster_facet.store.incarnation)
    place = cluster_facet.store.place()
    now = (place.tree,) if place.source is None else (place.tree, place.source)
    changes: list[tuple[tuple[int, int], tuple[Tree, ...]]] = []
    cursor: UUID | None = None
    while True:
        query = AuditQuery(
            cluster_facet.store.name, entity_id=ENTITY, key=LAYOUT_KEY, outcome="committed", before=cursor
        )
        records, cursor = await audit.search(query)
        for record in records:
            if record.outcome is None or record.outcome.revision is None:
                continue
            for entity in record.intent.entities:
                if LAYOUT_KEY in entity.keys:
                    before = _trees(entity.before.get(LAYOUT_KEY), entity.after.get(LAYOUT_KEY))
                    changes.append(((record.outcome.incarnation, record.outcome.revision), before))
        if cursor is None:
            return Layouts(now, sorted(changes), cluster_facet.store.incarnation)


def _trees(before: str | None, after: str | None) -> tuple[Tree, ...]:
    """Return the trees by a layout's text in the trail."""
    if before is None:
        # Nothing was stored: the settings named the tree that the first move began with.
        return _parsed(after or "")[-1:]
    return _parsed(before)


def _parsed(layout: str) -> tuple[Tree, ...]:
    return tuple(_BY_NAME[word] for word in layout.replace(",", " ").split() if word in _BY_NAME)
