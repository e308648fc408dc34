"""The keys of requests in Postgres: their holders, the changes made under them, and their answers.

Each statement may be sent again after a lost reply: its second run finds the work of the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson
from sqlalchemy import Text, Uuid, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY

from confplane.services.ports.request_keys import KeyedChange, KeyRow, StoredAnswer
from confplane.services.ports.trail import Outcome

if TYPE_CHECKING:
    from typing import Any
    from uuid import UUID

    from sqlalchemy import Row

    from confplane.audit.database import Database

_PIECE: Final = 2_000
"""Keys purged by one statement."""

_FIND: Final = text("""
SELECT id, holder, body, writer, until > now() AS in_time, status, headers, answer, needs
FROM request_keys WHERE key = :key
""")
_TAKE_OVER: Final = text("""
UPDATE request_keys
SET holder = :holder, writer = :writer, until = now() + make_interval(secs => :seconds)
WHERE id = :id AND holder = ANY(:holders) AND status IS NULL
""").bindparams(bindparam("holders", type_=ARRAY(Uuid)))
_CHANGES: Final = text("""
SELECT
  made.change_id, made.attempt, made.results, ended.attempt AS final_attempt, ended.cluster, ended.committed,
  ended.revision, CAST(round(extract(epoch FROM ended.time) * 1000) AS bigint) AS time_ms, ended.versions
FROM request_changes AS made LEFT JOIN outcomes AS ended ON ended.change_id = made.change_id
WHERE made.key_id = :id ORDER BY made.change_id, made.attempt
""")
_STORE: Final = text("""
UPDATE request_keys SET status = :status, headers = CAST(:headers AS jsonb), answer = :answer, needs = :needs
WHERE id = :id AND holder = :holder
""").bindparams(bindparam("needs", type_=ARRAY(Text)))
_HAND_ON: Final = text("UPDATE request_keys SET until = now() WHERE id = :id AND holder = :holder")
_RELEASE: Final = text("""
WITH released AS (DELETE FROM request_keys WHERE id = :id AND holder = :holder RETURNING id)
DELETE FROM request_changes WHERE key_id IN (SELECT id FROM released)
""")
_PURGE: Final = text("""
WITH old AS MATERIALIZED (
  SELECT id FROM request_keys WHERE recorded_at < now() - make_interval(secs => :keep_s)
  ORDER BY recorded_at LIMIT :piece FOR UPDATE SKIP LOCKED
), changes AS (DELETE FROM request_changes WHERE key_id IN (SELECT id FROM old))
DELETE FROM request_keys WHERE id IN (SELECT id FROM old)
""")


class PostgresRequestKeys:
    """Implements :class:`confplane.services.ports.request_keys.RequestKeys`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, key: str) -> KeyRow | None:
        """Return the row of a key."""
        row = await self._database.row(_FIND, key=key)
        return None if row is None else _row(row)

    async def take_over(self, row: KeyRow, holder: UUID, *, writer: str, seconds: float) -> bool:
        """Make another request the holder."""
        given = {"id": row.id, "holder": holder, "holders": [row.holder, holder], "writer": writer, "seconds": seconds}
        return await self._database.execute(_TAKE_OVER, **given) > 0

    async def changes(self, key_id: UUID) -> list[KeyedChange]:
        """Return the changes made under a key."""
        return [_change(row) for row in await self._database.rows(_CHANGES, id=key_id)]

    async def store(self, key_id: UUID, holder: UUID, answer: StoredAnswer) -> bool:
        """Store the answer."""
        headers = orjson.dumps(answer.headers).decode()
        needs = None if answer.needs is None else list(answer.needs)
        given = {"status": answer.status, "headers": headers, "answer": answer.body, "needs": needs}
        return await self._database.execute(_STORE, id=key_id, holder=holder, **given) > 0

    async def hand_on(self, key_id: UUID, holder: UUID) -> bool:
        """End a turn without an answer."""
        return await self._database.execute(_HAND_ON, id=key_id, holder=holder) > 0

    async def release(self, key_id: UUID, holder: UUID) -> bool:
        """Forget a key."""
        return await self._database.execute(_RELEASE, id=key_id, holder=holder) > 0

    async def purge(self, keep_s: float) -> None:
        """Forget old keys."""
        while await self._database.execute(_PURGE, keep_s=keep_s, piece=_PIECE) == _PIECE:
            pass


def _row(row: Row[Any]) -> KeyRow:
    needs = None if row.needs is None else tuple(row.needs)
    answer = None if row.status is None else StoredAnswer(row.status, row.headers, row.answer, needs)
    return KeyRow(row.id, row.holder, row.body, row.writer, row.in_time, answer)


def _change(row: Row[Any]) -> KeyedChange:
    outcome = None
    if row.committed is not None:
        outcome = Outcome(
            row.change_id,
            row.final_attempt,
            row.cluster,
            committed=row.committed,
            revision=row.revision,
            time_ms=row.time_ms,
            versions=row.versions,
        )
    return KeyedChange(row.change_id, row.attempt, row.results, outcome)
