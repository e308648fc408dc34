"""The changes that touched keys of entities after a revision, in Postgres.

The index by entity has the ids of changes, which are close to their times. So the ids from some time before the
revision's time onwards are read, newest first. The few changes whose ids are far from their times are read by an index
of their own. The cost is that of the entity's later changes, and bounded.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import orjson
from sqlalchemy import text

from confplane.audit.store_positions import CURRENT_INCARNATION
from confplane.audit.tables import FAR_OUTCOME, FAR_S
from confplane.audit.trail_queries import first_id_at
from confplane.domain.errors import ConflictingChange
from confplane.services.ports.history import SubsequentChange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Row
    from sqlalchemy.ext.asyncio import AsyncConnection

    from confplane.audit.database import Database
    from confplane.services.ports.history import TouchedKeys

EXAMINED: Final = 20_000
"""Maximum number of changes of one entity that a search reads."""
_AT_ONCE: Final = 100
"""Maximum number of entities in one statement."""
NEAR: Final = timedelta(seconds=10 * FAR_S)
"""The greatest distance between a change's id and the time of a neighbouring revision; ZooKeeper's clocks differ."""

ANCHOR: Final = text(f"""
SELECT time FROM outcomes
WHERE cluster = :cluster AND committed AND revision <= :revision
  AND incarnation = coalesce(CAST(:incarnation AS integer), {CURRENT_INCARNATION})
ORDER BY revision DESC LIMIT 1
""")  # noqa: S608 - a constant
"""The time of a revision: that of the last change up to it."""

# Ops that change no value are left out: moves between layouts, new encodings of the same passwords, and reloads. So are
# keys that a change of other keys only sets again. The values of secrets are not known, and count as other ones.
_LATER: Final = text(f"""
WITH given AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:given AS jsonb)) AS row(
    number integer, entity_id text, incarnation integer, revision bigint, floor uuid, keys text[])
), far AS MATERIALIZED (
  SELECT change_id FROM outcomes WHERE cluster = :cluster AND committed AND {FAR_OUTCOME.text} AND time >= :low
)
SELECT given.number, near.size, found.* FROM given
CROSS JOIN LATERAL (
  SELECT count(*) AS size FROM (
    SELECT FROM intent_entities
    WHERE cluster = :cluster AND entity_id = given.entity_id AND change_id >= given.floor LIMIT :examined
  ) AS examined
) AS near
LEFT JOIN LATERAL (
  SELECT entity.change_id, entity.path, ARRAY(
      SELECT key FROM unnest(entity.keys) AS key WHERE NOT coalesce(before ->> key = after ->> key, false)
    ) AS keys, outcome.incarnation, outcome.revision, outcome.time,
    intent.kind, intent.principal, intent.reverts
  FROM (
    (SELECT change_id, attempt, path, keys, ops, before, after FROM intent_entities
     WHERE cluster = :cluster AND entity_id = given.entity_id AND change_id >= given.floor
     ORDER BY change_id DESC LIMIT :examined)
    UNION ALL
    SELECT change_id, attempt, path, keys, ops, before, after FROM intent_entities
    WHERE cluster = :cluster AND entity_id = given.entity_id AND change_id < given.floor
      AND change_id = ANY(ARRAY(SELECT change_id FROM far))
  ) AS entity
  CROSS JOIN LATERAL (
    SELECT incarnation, revision, time FROM outcomes
    WHERE change_id = entity.change_id AND attempt = entity.attempt AND committed OFFSET 0
  ) AS outcome
  CROSS JOIN LATERAL (
    SELECT kind, principal, reverts FROM intents
    WHERE change_id = entity.change_id AND attempt = entity.attempt OFFSET 0
  ) AS intent
  WHERE (outcome.incarnation, outcome.revision)
      > (coalesce(given.incarnation, {CURRENT_INCARNATION}), given.revision)
    AND (given.keys IS NULL OR entity.keys && given.keys) AND intent.kind <> 'reload'
    AND NOT EXISTS (
      SELECT FROM jsonb_array_elements(entity.ops) AS op WHERE op ->> 'op' IN ('MOVE', 'DISCARD', 'REENCODE')
    )
) AS found ON true
ORDER BY given.number, found.incarnation DESC, found.revision DESC, found.change_id DESC
""")  # noqa: S608 - a constant


async def find(database: Database, cluster: str, touched: Sequence[TouchedKeys]) -> list[list[SubsequentChange] | None]:
    """Return the later changes: see :meth:`confplane.services.ports.history.TrailHistory.later`."""
    found: list[list[SubsequentChange] | None] = []
    for start in range(0, len(touched), _AT_ONCE):
        found += await _some(database, cluster, touched[start : start + _AT_ONCE])
    return found


async def _some(
    database: Database, cluster: str, touched: Sequence[TouchedKeys]
) -> list[list[SubsequentChange] | None]:
    async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
        lows = [await _low(connection, cluster, each) for each in touched]
        rows = [
            {
                "number": number,
                "entity_id": each.entity_id,
                "incarnation": each.incarnation,
                "revision": each.revision,
                "floor": str(first_id_at(low)),
                "keys": each.keys,
            }
            for number, (each, low) in enumerate(zip(touched, lows, strict=True))
        ]
        given = orjson.dumps(rows).decode()
        parameters = {"cluster": cluster, "given": given, "low": min(lows), "examined": EXAMINED}
        return (await connection.execute(_LATER, parameters)).all()

    found: list[list[SubsequentChange] | None] = [[] for _ in touched]
    for row in await database.read(work):
        changes = found[row.number]
        if row.size >= EXAMINED:
            found[row.number] = None
        elif changes is not None and row.change_id is not None:
            changes.append(_later(row))
    return found


async def _low(connection: AsyncConnection, cluster: str, touched: TouchedKeys) -> datetime:
    """Return a lower bound for the times in the ids of an entity's later changes."""
    if touched.time_ms is not None:
        return datetime.fromtimestamp(touched.time_ms / 1000, UTC) - NEAR
    time: datetime | None = await connection.scalar(
        ANCHOR, {"cluster": cluster, "revision": touched.revision, "incarnation": touched.incarnation}
    )
    return datetime.fromtimestamp(0, UTC) if time is None else time - NEAR


def _later(row: Row[Any]) -> SubsequentChange:
    time_ms = int(row.time.timestamp() * 1000)
    change = ConflictingChange(row.change_id, row.kind, row.principal, row.revision, time_ms, tuple(row.keys))
    return SubsequentChange(change, row.path, tuple(row.reverts or ()), row.incarnation)
