"""The states of entities in Kafka clusters, as far as this service changed them: the table ``target_states``.

Each statement that changes a row locks it, and leaves rows of a newer revision of the znode alone. So two leaders at
once, one of which lost the lead, can't take each other's newer values back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from sqlalchemy import Text, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY

from app.services.ports.applying import Author, Refused, TargetState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy import Row
    from sqlalchemy.ext.asyncio import AsyncConnection

    from app.audit.database import Database
    from app.services.ports.applying import Ending, Sending

_DAY_S: Final = 86_400
_MOST_SENT: Final = 200
"""Values of an entity that are remembered as sent, at most."""

_MOST_CHANGES: Final = 100
"""Changes of an entity that are searched for the author of a key, at most."""

_KNOWN: Final = text("""
SELECT entity_id, sent_mzxid, applied_mzxid, applied_offset, applied, refused_code, refused_text, (
  SELECT coalesce(jsonb_agg(jsonb_build_array(item -> 'key', item -> 'value') ORDER BY number), '[]')
  FROM jsonb_array_elements(sent) WITH ORDINALITY AS item(item, number)
  WHERE CAST(item ->> 'at' AS double precision) > extract(epoch FROM now()) - :day_s
) AS sent
FROM target_states WHERE cluster = :cluster AND entity_id = ANY(:ids)
""").bindparams(bindparam("ids", type_=ARRAY(Text)))

# In the order of ids, so that two statements lock rows in the same order. A value that is sent again moves to the end.
_BEGIN: Final = text("""
INSERT INTO target_states AS known (cluster, entity_id, sent_mzxid, sent)
SELECT :cluster, entity_id, mzxid, (
  SELECT coalesce(jsonb_agg(
    jsonb_build_object('key', key, 'value', value, 'at', extract(epoch FROM clock_timestamp()))), '[]')
  FROM jsonb_each(given."values")
)
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given(entity_id text, mzxid bigint, "values" jsonb)
ORDER BY entity_id COLLATE "C"
ON CONFLICT (cluster, entity_id) DO UPDATE SET
  sent_mzxid = excluded.sent_mzxid, sent_at = now(), refused_code = NULL, refused_text = NULL,
  sent = (
    SELECT coalesce(jsonb_agg(item ORDER BY number), '[]') FROM (
      SELECT item, number FROM jsonb_array_elements(known.sent) WITH ORDINALITY AS old(item, number)
      WHERE CAST(item ->> 'at' AS double precision) > extract(epoch FROM now()) - :day_s
        AND NOT EXISTS (
          SELECT FROM jsonb_array_elements(excluded.sent) AS new(item)
          WHERE new.item -> 'key' = old.item -> 'key' AND new.item -> 'value' = old.item -> 'value'
        )
      ORDER BY number DESC LIMIT :most
    ) AS kept
  ) || excluded.sent
WHERE known.sent_mzxid <= excluded.sent_mzxid
RETURNING entity_id
""")

_END: Final = text("""
WITH given AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given(
    entity_id text, mzxid bigint, "values" jsonb, "offset" bigint, code integer, said text)
), locked AS MATERIALIZED (
  SELECT entity_id FROM target_states
  WHERE cluster = :cluster AND entity_id IN (SELECT entity_id FROM given)
  ORDER BY entity_id FOR UPDATE
)
UPDATE target_states AS known SET
  applied_mzxid = CASE WHEN code IS NULL THEN given.mzxid ELSE known.applied_mzxid END,
  applied_offset = greatest(known.applied_offset, given."offset"),
  applied = CASE WHEN code IS NULL THEN known.applied || given."values" ELSE known.applied END,
  refused_code = code, refused_text = said
FROM given JOIN locked USING (entity_id)
WHERE known.cluster = :cluster AND known.entity_id = given.entity_id AND known.sent_mzxid = given.mzxid
""")

_UNSETTLED: Final = text("""
SELECT entity_id FROM target_states WHERE cluster = :cluster AND applied_mzxid IS DISTINCT FROM sent_mzxid
""")

# Of each entity so many changes at most are read, for an entity may have any number of them.
_AUTHORS: Final = text("""
SELECT asked.entity_id, asked.key, found.principal, found."time"
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS asked(entity_id text, key text)
CROSS JOIN LATERAL (
  SELECT intents.principal, outcomes."time" FROM (
    SELECT change_id, attempt, keys FROM intent_entities
    WHERE cluster = :cluster AND entity_id = asked.entity_id ORDER BY change_id DESC LIMIT :most
  ) AS newest
  JOIN outcomes USING (change_id, attempt) JOIN intents USING (change_id, attempt)
  WHERE asked.key = ANY(newest.keys) AND outcomes.committed
  ORDER BY newest.change_id DESC LIMIT 1
) AS found
""")

_FORGET: Final = text("DELETE FROM target_states WHERE cluster = :cluster")


class PostgresTargetStates:
    """Implements :class:`app.services.ports.applying.TargetStates`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def known(self, cluster: str, entity_ids: Sequence[str]) -> dict[str, TargetState]:
        """Return the states of some entities: see the port."""

        async def work(connection: AsyncConnection) -> dict[str, TargetState]:
            parameters = {"cluster": cluster, "ids": list(entity_ids), "day_s": _DAY_S}
            rows = await connection.execute(_KNOWN, parameters)
            return {row.entity_id: _state(row) for row in rows}

        return await self._database.read(work)

    async def begin(self, cluster: str, sendings: Sequence[Sending]) -> set[str]:
        """Make durable what is about to be sent: see the port."""
        rows = orjson.dumps(
            [{"entity_id": each.entity_id, "mzxid": each.mzxid, "values": each.values} for each in sendings]
        ).decode()

        async def work(connection: AsyncConnection) -> set[str]:
            parameters = {"cluster": cluster, "rows": rows, "day_s": _DAY_S, "most": _MOST_SENT}
            return set((await connection.scalars(_BEGIN, parameters)).all())

        return await self._database.read(work)

    async def end(self, cluster: str, endings: Sequence[Ending]) -> None:
        """Write the ends of sendings: see the port."""
        rows = orjson.dumps([_row(each) for each in endings]).decode()

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(_END, {"cluster": cluster, "rows": rows})

        await self._database.read(work)

    async def unsettled(self, cluster: str) -> list[str]:
        """Return the entities whose last sending the cluster has not taken: see the port."""

        async def work(connection: AsyncConnection) -> list[str]:
            return list((await connection.scalars(_UNSETTLED, {"cluster": cluster})).all())

        return await self._database.read(work)

    async def authors(self, cluster: str, keys: Mapping[str, Collection[str]]) -> dict[tuple[str, str], Author]:
        """Return the authors of the newest changes of keys: see the port."""
        asked = [{"entity_id": entity_id, "key": key} for entity_id, each in keys.items() for key in each]

        async def work(connection: AsyncConnection) -> dict[tuple[str, str], Author]:
            parameters = {"cluster": cluster, "rows": orjson.dumps(asked).decode(), "most": _MOST_CHANGES}
            rows = await connection.execute(_AUTHORS, parameters)
            return {(row.entity_id, row.key): Author(row.principal, round(row.time.timestamp() * 1000)) for row in rows}

        return await self._database.read(work) if asked else {}

    async def forget(self, cluster: str) -> None:
        """Drop the states of a cluster: see the port."""

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(_FORGET, {"cluster": cluster})

        await self._database.read(work)


def _row(ending: Ending) -> dict[str, Any]:
    end = ending.end
    refused = end if isinstance(end, Refused) else None
    return {
        "entity_id": ending.entity_id,
        "mzxid": ending.mzxid,
        "values": ending.values,
        "offset": ending.offset,
        "code": None if refused is None else refused.code,
        "said": None if refused is None else refused.text,
    }


def _state(row: Row[Any]) -> TargetState:
    sent: dict[str, list[str | None]] = {}
    for key, value in row.sent:
        sent.setdefault(key, []).append(value)
    refused = None if row.refused_code is None else Refused(row.refused_code, row.refused_text or "")
    return TargetState(row.entity_id, row.sent_mzxid, row.applied_mzxid, row.applied_offset, row.applied, sent, refused)
