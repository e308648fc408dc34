"""The history of znodes in Postgres: the changes around a revision.

Revisions are in ``outcomes``, znodes in ``intent_entities``, and no index has both. But the ids of changes are close to
their times. So the later changes of a znode are found among the ids from some time before the revision's time onwards,
and its earlier changes among the ids up to some time after it. Ids that are far from their times have an index of
their own (audit/tables.py). A list reads the revisions of the cluster's later changes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy import Text, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from typing_extensions import override

from confplane.audit import later_changes, visible
from confplane.audit.database import from_row
from confplane.audit.later_changes import ANCHOR, NEAR
from confplane.audit.store_positions import CURRENT_INCARNATION
from confplane.audit.tables import FAR_OUTCOME, FAR_S
from confplane.audit.trail_queries import MAX_EXAMINED, created_at, first_id_at, fitting, read_until
from confplane.domain.entities import Entity
from confplane.domain.facets import full_path
from confplane.domain.texts import storable
from confplane.services.ports.history import RecordedState, SurroundingChanges, TrailCoverage, TrailHistory, ZnodeChange
from confplane.services.ports.pages import PAGE_BYTES
from confplane.services.ports.trail import END_OF_HISTORY, LAST_ID, AuditQuery, HistoryPlace, HistoryPosition

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Row
    from sqlalchemy.ext.asyncio import AsyncConnection

    from confplane.audit.database import Database
    from confplane.domain.access.ranges import NameRanges
    from confplane.domain.facets import Tree
    from confplane.services.ports.history import SubsequentChange, TouchedKeys, Znode
    from confplane.services.ports.trail import AuditRecord


_TEXTS: Final = ARRAY(Text)
_CONCURRENT: Final = 50
"""Maximum number of concurrent changes of one znode: their ids and revisions may be in different orders."""
_FIRST: Final = UUID(int=0)

_KNOWLEDGE: Final = text(
    "SELECT since, since_at, revision FROM watermarks WHERE cluster = :cluster AND since IS NOT NULL"
)

# The first change after the time by change id, and then the changes that may have an earlier revision nevertheless.
_FIRST_AFTER: Final = text(f"""
WITH first AS MATERIALIZED (
  SELECT intents.change_id, outcomes.time FROM intents JOIN outcomes USING (change_id, attempt)
  WHERE intents.cluster = :cluster AND intents.change_id >= :floor AND committed AND outcomes.time > :moment
    AND incarnation = {CURRENT_INCARNATION}
  ORDER BY intents.change_id LIMIT 1
), near AS (
  SELECT revision FROM intents JOIN outcomes USING (change_id, attempt)
  WHERE intents.cluster = :cluster AND intents.change_id >= :floor
    AND intents.change_id <= CAST(
      lpad(to_hex(CAST(extract(epoch FROM (SELECT time FROM first)) * 1000 AS bigint) + {3 * FAR_S * 1000}), 12, '0')
      || repeat('f', 20) AS uuid)
    AND committed AND outcomes.time > :moment AND incarnation = {CURRENT_INCARNATION}
), far AS (
  SELECT revision FROM outcomes
  WHERE cluster = :cluster AND committed AND time > :moment AND {FAR_OUTCOME.text}
    AND incarnation = {CURRENT_INCARNATION}
)
SELECT min(revision) FROM (SELECT revision FROM near UNION ALL SELECT revision FROM far) AS found
""")  # noqa: S608 - constants of this module

_WRITTEN: Final = """
  entity.change_id, outcomes.revision, entity.version_read, entity.czxid_read, entity.before, entity.after,
  CAST(outcomes.versions -> entity.path AS integer) AS version, CAST(outcomes.remade -> entity.path AS bigint) AS remade
"""
_OF_ZNODE: Final = f"""
  FROM intent_entities AS entity JOIN outcomes USING (change_id, attempt)
  WHERE entity.cluster = :cluster AND entity.entity_id = given.entity_id AND entity.path = given.path AND committed
    AND incarnation = {CURRENT_INCARNATION}
"""

_AROUND: Final = text(f"""
WITH given AS MATERIALIZED (
  SELECT * FROM unnest(:trees, :ids, :paths) WITH ORDINALITY AS given(tree, entity_id, path, number)
), far AS MATERIALIZED (
  SELECT change_id FROM outcomes
  WHERE cluster = :cluster AND committed AND {FAR_OUTCOME.text}
    AND (time >= CAST(:low AS timestamptz) AND change_id < :floor
      OR time <= CAST(:high AS timestamptz) AND change_id > :ceiling)
), found AS (
  SELECT given.number, 'later' AS side, written.* FROM given CROSS JOIN LATERAL (
    SELECT {_WRITTEN} {_OF_ZNODE}
      AND (entity.change_id >= :floor OR entity.change_id = ANY(ARRAY(SELECT change_id FROM far)))
      AND outcomes.revision > :revision
    ORDER BY outcomes.revision LIMIT 2
  ) AS written
  UNION ALL
  SELECT given.number, 'earlier', written.* FROM given CROSS JOIN LATERAL (
    SELECT * FROM (
      (SELECT {_WRITTEN} {_OF_ZNODE} AND entity.change_id <= :ceiling AND outcomes.revision <= :revision
       ORDER BY entity.change_id DESC LIMIT :concurrent)
      UNION ALL
      (SELECT {_WRITTEN} {_OF_ZNODE} AND entity.change_id = ANY(ARRAY(SELECT change_id FROM far))
         AND outcomes.revision <= :revision
       ORDER BY outcomes.revision DESC LIMIT 1)
    ) AS either ORDER BY revision DESC LIMIT 1
  ) AS written
)
SELECT found.*, intents.kind, intents.writes, CASE WHEN intents.kind = 'external' THEN intents.reason END AS defect
FROM found JOIN LATERAL (
  SELECT kind, writes, reason FROM intents WHERE intents.change_id = found.change_id ORDER BY attempt LIMIT 1
) AS intents ON true
ORDER BY found.number, found.revision
""").bindparams(*(bindparam(name, type_=_TEXTS) for name in ("trees", "ids", "paths")))  # noqa: S608 - constants

# OFFSET 0 keeps each subquery a lookup by primary key.
_RECORDED: Final = text("""
SELECT given.number, state.* FROM unnest(:trees, :ids) WITH ORDINALITY AS given(tree, entity_id, number)
CROSS JOIN LATERAL (
  SELECT present, czxid, version, mzxid, content, first_version, first_czxid FROM entity_states AS state
  WHERE state.cluster = :cluster AND state.tree = given.tree AND state.entity_id = given.entity_id OFFSET 0
) AS state
""").bindparams(bindparam("trees", type_=_TEXTS), bindparam("ids", type_=_TEXTS))

# A walk over the distinct ids of the index by entity. An id in no range leads to the begin of the next range. In the
# collation C no id is between an id and the same id with "!" appended.
_WALKED: Final = text(f"""
WITH RECURSIVE walk AS (
  SELECT CAST(NULL AS text) COLLATE "C" AS entity_id, CAST(:low AS text) COLLATE "C" AS low, 0 AS number
  UNION ALL
  SELECT found.entity_id, found.low, walk.number + 1
  FROM walk CROSS JOIN LATERAL (
    SELECT entity_id, CASE
      WHEN {visible.condition("entity_id")} THEN entity_id || '!'
      ELSE (CAST(:visible_starts AS text[]))[width_bucket(entity_id, CAST(:visible_starts AS text[])) + 1]
    END AS low
    FROM intent_entities WHERE cluster = :cluster AND entity_id >= walk.low ORDER BY entity_id LIMIT 1
  ) AS found
  WHERE walk.number < :size
), far AS MATERIALIZED (
  SELECT entity_id FROM intent_entities
  WHERE cluster = :cluster AND starts_with(path, :tree) AND change_id = ANY(ARRAY(
    SELECT change_id FROM outcomes
    WHERE cluster = :cluster AND committed AND {FAR_OUTCOME.text} AND time >= CAST(:since AS timestamptz)))
)
SELECT walk.entity_id, {visible.condition("walk.entity_id")} IS TRUE AND (EXISTS (
  SELECT FROM intent_entities AS entity
  WHERE entity.cluster = :cluster AND entity.entity_id = walk.entity_id AND entity.change_id >= :floor
    AND starts_with(entity.path, :tree)
) OR walk.entity_id IN (SELECT entity_id FROM far)) AS changed
FROM walk WHERE walk.number > 0 ORDER BY walk.number
""").bindparams(*(bindparam(name, type_=_TEXTS) for name in ("visible_starts", "visible_ends")))  # noqa: S608 - constants


class PostgresTrailHistory(TrailHistory):
    """The trail as a history, in Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def coverage(self, cluster: str) -> TrailCoverage | None:
        row = await self._database.row(_KNOWLEDGE, cluster=cluster)
        return None if row is None else TrailCoverage(row.since, row.since_at, row.revision)

    @override
    async def first_after(self, cluster: str, moment: datetime) -> int | None:
        floor = first_id_at(_shifted(moment, -timedelta(seconds=FAR_S)))
        [revision] = await self._database.scalars(_FIRST_AFTER, cluster=cluster, moment=moment, floor=floor)
        return None if revision is None else int(revision)

    @override
    async def around(self, cluster: str, znodes: Sequence[Znode], revision: int) -> list[SurroundingChanges]:
        given = {
            "cluster": cluster,
            "trees": [znode.tree.value for znode in znodes],
            "ids": [znode.entity_id for znode in znodes],
        }

        async def work(connection: AsyncConnection) -> tuple[Sequence[Row[Any]], Sequence[Row[Any]]]:
            # States are read first: a change that is recorded in between is then read as a change.
            states = (await connection.execute(_RECORDED, given)).all()
            time = await connection.scalar(ANCHOR, {"cluster": cluster, "revision": revision, "incarnation": None})
            parameters = {
                **given,
                "paths": [full_path(znode.tree, Entity.from_id(znode.entity_id)) for znode in znodes],
                "revision": revision,
                "concurrent": _CONCURRENT,
                **_bounds(time),
            }
            return states, (await connection.execute(_AROUND, parameters)).all()

        states, rows = await self._database.read(work)
        recorded = {row.number: from_row(RecordedState, row) for row in states}
        earlier = {row.number: _written(row) for row in rows if row.side == "earlier"}
        later: dict[int, list[ZnodeChange]] = {}
        for row in rows:
            if row.side == "later":
                later.setdefault(row.number, []).append(_written(row))
        return [
            _around(earlier.get(number), later.get(number, []), recorded.get(number))
            for number in range(1, len(znodes) + 1)
        ]

    @override
    async def walked(
        self, cluster: str, tree: Tree, revision: int, *, after: str | None, size: int, within: NameRanges
    ) -> dict[str, bool]:
        async def work(connection: AsyncConnection) -> dict[str, bool]:
            time = await connection.scalar(ANCHOR, {"cluster": cluster, "revision": revision, "incarnation": None})
            bounds = _bounds(time)
            parameters = {
                "cluster": cluster,
                "tree": f"{tree.value}/",
                "low": "" if after is None else f"{after}!",
                "size": size,
                "floor": bounds["floor"],
                "since": bounds["low"],
                **visible.parameters(within),
            }
            return {row.entity_id: row.changed for row in await connection.execute(_WALKED, parameters)}

        return await self._database.read(work)

    @override
    async def later(self, cluster: str, touched: Sequence[TouchedKeys]) -> list[list[SubsequentChange] | None]:
        return await later_changes.find(self._database, cluster, touched)


def _around(
    earlier: ZnodeChange | None, later: Sequence[ZnodeChange], recorded: RecordedState | None
) -> SurroundingChanges:
    first, second, *_ = *later, None, None
    return SurroundingChanges(earlier, first, second, recorded)


def _bounds(time: datetime | None) -> dict[str, Any]:
    """Return the ids near a revision's time, and the bounds of that time; all later ids if no revision is that low."""
    if time is None:
        # Without a change at the revision or before it, there is no earlier change to find.
        return {"floor": _FIRST, "ceiling": _FIRST, "low": None, "high": None}
    low, high = _shifted(time, -NEAR), _shifted(time, NEAR)
    return {"floor": first_id_at(low), "ceiling": first_id_at(high), "low": low, "high": high}


def _shifted(moment: datetime, by: timedelta) -> datetime:
    try:
        return moment + by
    except OverflowError:
        return moment


def _written(row: Row[Any]) -> ZnodeChange:
    defect = None if row.defect is None else row.defect.removeprefix("The znode ")
    return from_row(ZnodeChange, row, defect=defect)


# The committed changes of one entity, sorted by incarnation, revision and change id, the last one first.
#
# The index by entity has change ids, and revisions are in ``outcomes``. A change gets its id before it waits for its
# turn at the znode, so a higher id may have a lower revision. Yet the id of a change is close to the time of its
# commit, and times rise with revisions except for differences between the clocks of ZooKeeper's servers. A page
# therefore reads a window of ids, and ends before the first change that an unread id may precede. The few changes whose
# ids are far from their times are read by an index of their own.
#
# A window usually exceeds the page by a few ids. It grows only for an entity with many changes in a few minutes.

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
