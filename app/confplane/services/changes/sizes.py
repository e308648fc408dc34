"""Sizes of requests: the entities that an author alters at once and within an hour, for rules that depend on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.domain.entities import Entity
from confplane.domain.errors import ConfplaneError
from confplane.services.cooperative_yielding import TimeSlice
from confplane.services.reads.config_levels import NOTHING_PLANNED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.services.changes.callers import Caller
    from confplane.services.changes.entities_change import PreparedEdit
    from confplane.services.ports.trail import AuditLog


class ChangeSizes:
    """Finds the sizes of requests. One instance serves all clusters of a process.

    Args:
        audit: Has the changes of the last hour.
    """

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    async def altered(self, items: Sequence[PreparedEdit], caller: Caller) -> frozenset[tuple[str, Entity]]:
        """Return the facets and entities that edits alter, and those that their author altered in the last hour.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        time_slice = TimeSlice()
        found = set(caller.altered)
        for item in items:
            if time_slice.due:
                await time_slice.pause()
            if await _alters(item):
                found.add((item.cluster_facet.name.value, item.edit.entity))
        with caller.preparing():
            recent = await self._audit.altered(items[0].cluster_facet.store.name, caller.author)
        return frozenset(found | {(facet, Entity.from_id(entity_id)) for facet, entity_id in recent})


async def _alters(item: PreparedEdit) -> bool:
    """Return False if an edit leaves the entity as the mirror has it. An edit that can't be decided counts."""
    try:
        placed = item.cluster_facet.placed()
        draft = await item.decide(placed, placed.get(item.edit.entity.id), NOTHING_PLANNED)
    except ConfplaneError:
        return True
    return bool(draft.diff)
