"""The keys of requests in Postgres: their holders, the changes made under them, and their answers.

Each statement may be sent again after a lost reply: its second run finds the work of the first.

Every request asks whether its key is known, and nearly every one stores an answer. These statements are shared with
concurrent callers (:mod:`confplane.audit.group_commit`), as the intents in between are. What happens to few keys has a
statement of its own.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import orjson
from sqlalchemy import Text, Uuid, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from typing_extensions import override

from confplane.audit.group_commit import GroupWriter, RowRefusedError, WritePartition
from confplane.services.ports.request_keys import KeyedChange, KeyRow, RequestKeys, StoredAnswer
from confplane.services.ports.trail import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any
    from uuid import UUID

    from sqlalchemy import Row

    from confplane.audit.database import Database
    from confplane.services.metrics import Sample

_PIECE: Final = 2_000
"""Keys purged by one statement."""
_LARGE: Final = 64 * 1024
"""The size in bytes from which an answer is stored by a statement of its own, so that it delays no other."""

# Takes a JSON array of keys, and returns the numbers, from 0, of those that exist.
_KNOWN: Final = text("""
WITH asked AS MATERIALIZED (
  SELECT key, number FROM jsonb_array_elements_text(CAST(:rows AS jsonb)) WITH ORDINALITY AS row(key, number)
), known AS (
  SELECT key FROM request_keys WHERE key = ANY(ARRAY(SELECT key FROM asked))
)
SELECT number - 1 FROM asked WHERE key IN (SELECT key FROM known)
""")
# Takes a JSON array of answers, and returns the numbers, from 0, of those that were not stored. It waits for no row, so
# two of these statements can't wait for each other: a row that is locked counts as not stored.
_STORE_MANY: Final = text("""
WITH sent AS MATERIALIZED (
  SELECT * FROM ROWS FROM (jsonb_to_recordset(CAST(:rows AS jsonb)) AS (
    id uuid, holder uuid, status integer, headers jsonb, answer text, needs text[])
  ) WITH ORDINALITY AS row(id, holder, status, headers, answer, needs, number)
), held AS MATERIALIZED (
  SELECT id, holder FROM request_keys WHERE id = ANY(ARRAY(SELECT id FROM sent)) FOR NO KEY UPDATE SKIP LOCKED
), stored AS (
  UPDATE request_keys AS row
  SET status = sent.status, headers = sent.headers, answer = sent.answer, needs = sent.needs
  FROM sent JOIN held USING (id, holder)
  WHERE row.id = sent.id AND row.holder = sent.holder
  RETURNING sent.number
)
SELECT number - 1 FROM sent WHERE number NOT IN (SELECT number FROM stored)
""")
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


class PostgresRequestKeys(RequestKeys):
    """Idempotency keys and the stored responses, in Postgres.

    Args:
        database: The database.
        partition: The write partition of answers; None: one of its own. The look-up of keys has its own in any case,
            so that it waits for no commit.
    """

    def __init__(self, database: Database, partition: WritePartition | None = None) -> None:
        self._database = database
        self._known = GroupWriter(database, _KNOWN, partition=WritePartition(database))
        self._answers = GroupWriter(database, _STORE_MANY, partition=partition or WritePartition(database))

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield from self._known.metrics("request_keys")
        yield from self._answers.metrics("stored_answers")

    async def close(self) -> None:
        """Wait for the statements under way."""
        await self._known.close()
        await self._answers.close()

    @override
    async def find(self, key: str) -> KeyRow | None:
        try:
            await self._known.write([orjson.dumps(key)])
        except RowRefusedError:
            row = await self._database.row(_FIND, key=key)
        else:
            return None
        return None if row is None else _row(row)

    @override
    async def take_over(self, row: KeyRow, holder: UUID, *, writer: str, seconds: float) -> bool:
        given = {"id": row.id, "holder": holder, "holders": [row.holder, holder], "writer": writer, "seconds": seconds}
        return await self._database.execute(_TAKE_OVER, **given) > 0

    @override
    async def changes(self, key_id: UUID) -> list[KeyedChange]:
        return [_change(row) for row in await self._database.rows(_CHANGES, id=key_id)]

    @override
    async def store(self, key_id: UUID, holder: UUID, answer: StoredAnswer) -> bool:
        given: dict[str, Any] = {"status": answer.status, "answer": answer.body, "needs": answer.needs}
        if len(answer.body) < _LARGE:
            row = {"id": key_id, "holder": holder, "headers": answer.headers, **given}
            with contextlib.suppress(RowRefusedError):
                await self._answers.write([orjson.dumps(row)])
                return True
        given["headers"] = orjson.dumps(answer.headers).decode()
        given["needs"] = None if answer.needs is None else list(answer.needs)
        return await self._database.execute(_STORE, id=key_id, holder=holder, **given) > 0

    @override
    async def hand_on(self, key_id: UUID, holder: UUID) -> bool:
        return await self._database.execute(_HAND_ON, id=key_id, holder=holder) > 0

    @override
    async def release(self, key_id: UUID, holder: UUID) -> bool:
        return await self._database.execute(_RELEASE, id=key_id, holder=holder) > 0

    @override
    async def purge(self, keep_s: float) -> None:
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
