"""The committed changes of one entity, sorted by incarnation, revision and change id, the last one first.

The index by entity has change ids, and revisions are in ``outcomes``. A change gets its id before it waits for its turn
at the znode, so a higher id may have a lower revision. Yet the id of a change is close to the time of its commit, and
times rise with revisions except for differences between the clocks of ZooKeeper's servers. A page therefore reads a
window of ids, and ends before the first change that an unread id may precede. The few changes whose ids are far from
their times are read by an index of their own.

A window usually exceeds the page by a few ids. It grows only for an entity with many changes in a few minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy import text

from confplane.audit.later_changes import NEAR
from confplane.audit.tables import FAR_OUTCOME
from confplane.audit.trail_queries import MAX_EXAMINED, created_at, fitting, read_until
from confplane.domain.texts import storable
from confplane.services.ports.pages import PAGE_BYTES
from confplane.services.ports.trail import END_OF_HISTORY, LAST_ID, AuditQuery, HistoryPlace, HistoryPosition

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Row
    from sqlalchemy.ext.asyncio import AsyncConnection

    from confplane.services.ports.trail import AuditRecord

CONCURRENT: Final = 50
"""Ids that the first window reads in addition to the page."""
MOST_OVERTAKING: Final = 1_000
"""Maximum number of changes of one entity with higher ids and lower revisions than a change: it waited for its turn for
less time than these take."""

# OFFSET 0 keeps each subquery an index lookup for each row.
_WINDOW: Final = text(f"""
WITH near AS MATERIALIZED (
  SELECT DISTINCT change_id FROM intent_entities
  WHERE cluster = :cluster AND entity_id = :entity_id AND change_id <= :ceiling
  ORDER BY change_id DESC LIMIT :size
)
SELECT near.change_id, outcome.* FROM near LEFT JOIN LATERAL (
  SELECT incarnation, revision, time FROM outcomes
  WHERE change_id = near.change_id AND committed AND ({FAR_OUTCOME.text}) IS NOT TRUE OFFSET 0
) AS outcome ON true
ORDER BY near.change_id DESC
""")  # noqa: S608 - a constant

_FAR: Final = text(f"""
SELECT far.* FROM (
  SELECT change_id, incarnation, revision, time FROM outcomes
  WHERE cluster = :cluster AND committed AND {FAR_OUTCOME.text}
    AND time >= coalesce(CAST(:low AS timestamptz), '-infinity')
    AND time <= coalesce((SELECT time FROM outcomes WHERE change_id = :after), 'infinity') + :near
  OFFSET 0
) AS far
WHERE EXISTS (
  SELECT FROM intent_entities WHERE cluster = :cluster AND entity_id = :entity_id AND change_id = far.change_id OFFSET 0
)
""")  # noqa: S608 - a constant


async def page(
    connection: AsyncConnection, cluster: str, entity_id: str, *, page_size: int, after: HistoryPosition | None
) -> tuple[list[AuditRecord], HistoryPosition | None]:
    """Return a page: see :meth:`confplane.services.ports.trail.AuditLog.history`."""
    if not (storable(cluster) and storable(entity_id)):
        return [], None
    position = after or HistoryPosition(END_OF_HISTORY, LAST_ID)
    query = AuditQuery(cluster, entity_id=entity_id, outcome="committed")
    found: list[AuditRecord] = []
    window, examined, room = page_size + 1 + CONCURRENT, 0, PAGE_BYTES
    while True:
        near = await _window(connection, query, position, window)
        examined += len(near)
        complete = len(near) < window
        bound = None if complete else created_at(near[-1].change_id) + NEAR
        far = await _far(connection, query, position, None if bound is None else bound - 2 * NEAR)
        times = {_place(row): row.time for row in (*near, *far) if row.revision is not None}
        safe = {_place(row) for row in near[:-MOST_OVERTAKING]}
        places = sorted((place for place in times if place < position.place), reverse=True)
        while places and bound is not None and times[places[-1]] <= bound and places[-1] not in safe:
            places.pop()
        sizes = dict(await fitting(connection, query, [place.change_id for place in places], limit=len(places)))
        chosen = [place for place in places if place.change_id in sizes]
        asked = [(place.change_id, sizes[place.change_id]) for place in chosen[: page_size - len(found)]]
        more = await read_until(connection, query, asked, room, first=not found)
        found += [record for record, _ in more]
        room -= sum(size for _, size in more)
        full = len(more) < len(chosen)
        if complete and not full:
            return found, None
        reached = _reached(position, places[: places.index(chosen[len(more)])] if full else places, near)
        if full or examined >= MAX_EXAMINED:
            return found, reached
        if reached.ceiling == position.ceiling:
            window = min(window * 4, page_size + 1 + MOST_OVERTAKING)
        position = reached


async def _window(
    connection: AsyncConnection, query: AuditQuery, position: HistoryPosition, size: int
) -> Sequence[Row[Any]]:
    parameters = {"cluster": query.cluster, "entity_id": query.entity_id, "ceiling": position.ceiling, "size": size}
    return (await connection.execute(_WINDOW, parameters)).all()


async def _far(
    connection: AsyncConnection, query: AuditQuery, position: HistoryPosition, low: datetime | None
) -> Sequence[Row[Any]]:
    named = {"cluster": query.cluster, "entity_id": query.entity_id}
    parameters = {**named, "low": low, "near": NEAR, "after": position.place.change_id}
    return (await connection.execute(_FAR, parameters)).all()


def _reached(position: HistoryPosition, done: Sequence[HistoryPlace], near: Sequence[Row[Any]]) -> HistoryPosition:
    """Return the position after some changes of a window."""
    place = done[-1] if done else position.place
    unread = [row.change_id for row in near if row.revision is not None and _place(row) < place]
    below = UUID(int=near[-1].change_id.int - 1) if near else position.ceiling
    return HistoryPosition(place, max(unread, default=below))


def _place(row: Row[Any]) -> HistoryPlace:
    return HistoryPlace(row.incarnation, row.revision, row.change_id)
