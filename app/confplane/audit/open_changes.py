"""The reconciler's queries of the trail: changes without an outcome, and the changes of markers.

Only few of very many changes are open. New ones are found by the time at which Postgres wrote their intents, so that
the clocks of the processes that made the ids don't matter. Old ones are found by a backward scan over all ids, in
batches. Both find the outcome of each change with an index lookup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from sqlalchemy import Uuid, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from typing_extensions import override

from confplane.audit.batcher import Batcher
from confplane.audit.database import SERVER
from confplane.audit.statements import WRITES
from confplane.services.ports.open_changes import MarkedChange, OpenChange, OpenChanges, ServerTimestamp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from sqlalchemy.ext.asyncio import AsyncConnection

    from confplane.audit.database import Database

_IDS: Final = ARRAY(Uuid)

# OFFSET 0 keeps each subquery an index lookup; as a join it may read a whole table.
_OPEN: Final = "NOT EXISTS (SELECT FROM outcomes WHERE outcomes.change_id = given.change_id OFFSET 0)"

_NEW: Final = text(f"""
SELECT now() AS now, {SERVER} AS server, ARRAY(
  SELECT change_id FROM (
    SELECT change_id FROM intents
    WHERE cluster = wanted.cluster
      AND recorded_at >= coalesce(wanted.since, now()) - make_interval(secs => :overlap)
    UNION SELECT unnest(wanted.known)
  ) AS given WHERE {_OPEN}
) AS ids
FROM jsonb_to_recordset(CAST(:wanted AS jsonb)) AS wanted(
  number integer, cluster text, since timestamptz, known uuid[])
ORDER BY number
""")  # noqa: S608 - constants of this module

_OLD: Final = text(f"""
WITH given AS MATERIALIZED (
  SELECT DISTINCT change_id FROM intents
  WHERE cluster = :cluster AND change_id < :before ORDER BY change_id DESC LIMIT :piece
)
SELECT
  ARRAY(SELECT change_id FROM given WHERE {_OPEN}),
  (SELECT count(*) FROM given),
  (SELECT change_id FROM given ORDER BY change_id LIMIT 1)
""")  # noqa: S608 - constants of this module

_DETAILS: Final = text("""
SELECT
  change_id, max(attempt) AS attempt, array_agg(DISTINCT writer) AS writers,
  CAST(extract(epoch FROM now() - min(recorded_at)) AS float8) AS age
FROM intents WHERE change_id = ANY(:ids) GROUP BY change_id ORDER BY change_id
""").bindparams(bindparam("ids", type_=_IDS))

# A row can be visible before it is durable. Neither reading it, nor its age, nor a position in the WAL proves that it
# is durable. A transaction that writes does: Postgres waits for its commit, which comes after the commits of all rows
# that it sees. So once the reply arrives, the WAL is durable up to that commit, on synchronous standbys too.
MARKED: Final = text(f"""
SELECT given.change_id, outcome.committed, outcome.age, ARRAY(
    SELECT DISTINCT writer FROM intents WHERE intents.change_id = given.change_id OFFSET 0
  ) AS writers
FROM unnest(:ids) AS given(change_id) LEFT JOIN LATERAL (
  SELECT committed, CAST(extract(epoch FROM now() - recorded_at) AS float8) AS age
  FROM outcomes WHERE outcomes.change_id = given.change_id OFFSET 0
) AS outcome ON true
WHERE {WRITES}""").bindparams(bindparam("ids", type_=_IDS))  # noqa: S608 - constants of this module

_NO_ID_IS_ABOVE: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class PostgresOpenChanges(OpenChanges):
    """The open changes, in Postgres.

    Args:
        database: The database.
        overlap_s: Maximum number of seconds from a row's recorded time until it is visible: a statement may take four
            seconds.
        piece: Number of ids read in one step of the backward scan.
    """

    def __init__(self, database: Database, *, overlap_s: int = 10, piece: int = 20_000) -> None:
        self._database = database
        self._news = Batcher(self._new)
        self._overlap_s = overlap_s
        self._piece = piece

    @override
    async def new(
        self, cluster: str, since: ServerTimestamp | None, known: Sequence[UUID]
    ) -> tuple[list[OpenChange], ServerTimestamp]:
        return await self._news.request({"cluster": cluster, "since": since and since.at, "known": known})

    async def _new(self, wanted: Sequence[Mapping[str, Any]]) -> list[tuple[list[OpenChange], ServerTimestamp]]:
        given = orjson.dumps([{"number": number, **each} for number, each in enumerate(wanted)]).decode()

        async def work(connection: AsyncConnection) -> list[tuple[list[OpenChange], ServerTimestamp]]:
            rows = (await connection.execute(_NEW, {"wanted": given, "overlap": self._overlap_s})).all()
            details = {
                each.change_id: each for each in await _details(connection, [key for row in rows for key in row.ids])
            }
            return [
                ([details[key] for key in sorted(row.ids) if key in details], ServerTimestamp(row.now, row.server))
                for row in rows
            ]

        return await self._database.read(work)

    @override
    async def old(self, cluster: str, before: UUID | None) -> tuple[list[OpenChange], UUID | None]:
        async def work(connection: AsyncConnection) -> tuple[list[OpenChange], UUID | None]:
            parameters = {"cluster": cluster, "before": before or _NO_ID_IS_ABOVE, "piece": self._piece}
            ids, walked, lowest = (await connection.execute(_OLD, parameters)).one()
            return await _details(connection, ids), lowest if walked == self._piece else None

        return await self._database.read(work)

    @override
    async def marked(self, change_ids: Sequence[UUID]) -> list[MarkedChange]:
        rows = await self._database.rows(MARKED, ids=list(change_ids))
        return [MarkedChange(row.change_id, row.committed, row.age, frozenset(row.writers)) for row in rows]


async def _details(connection: AsyncConnection, ids: Sequence[UUID]) -> list[OpenChange]:
    if not ids:
        return []
    rows = await connection.execute(_DETAILS, {"ids": list(ids)})
    return [OpenChange(row.change_id, row.attempt, frozenset(row.writers), row.age) for row in rows]
