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
        changes: The changes of the layout: their revisions, and the trees before each, ordered by revision.
    """

    def __init__(self, now: tuple[Tree, ...], changes: list[tuple[int, tuple[Tree, ...]]]) -> None:
        self._now = now
        self._changes = changes

    def at(self, revision: int) -> tuple[Tree, ...]:
        """Return the trees at a revision, the one that is read first before the other."""
        return next((before for changed, before in self._changes if changed > revision), self._now)


async def layouts_of(audit: AuditLog, cluster_facet: ClusterFacet) -> Layouts:
    """Return the layouts of a facet.

    Raises:
        UnavailableError: Postgres is unavailable.
    """
    if not cluster_facet.laid_out:
        return Layouts((cluster_facet.root,), [])
    place = cluster_facet.store.place()
    now = (place.tree,) if place.source is None else (place.tree, place.source)
    changes: list[tuple[int, tuple[Tree, ...]]] = []
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
                    changes.append((record.outcome.revision, before))
        if cursor is None:
            return Layouts(now, sorted(changes))


def _trees(before: str | None, after: str | None) -> tuple[Tree, ...]:
    """Return the trees by a layout's text in the trail."""
    if before is None:
        # Nothing was stored: the settings named the tree that the first move began with.
        return _parsed(after or "")[-1:]
    return _parsed(before)


def _parsed(layout: str) -> tuple[Tree, ...]:
    return tuple(_BY_NAME[word] for word in layout.replace(",", " ").split() if word in _BY_NAME)
