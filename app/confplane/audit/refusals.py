"""Refused attempts in Postgres: taken into memory, and written in the background.

Each principal has some rows of its own in a minute. Further attempts are sums, one for each operation and error, which
are written when their minute is over. So a client that repeats a refused request in a loop adds a bounded number of
rows, and delays nobody. What finds no room is dropped and counted.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import text
from typing_extensions import override
from uuid_utils.compat import uuid7

from confplane.audit import visible
from confplane.audit.database import from_row
from confplane.audit.trail_queries import first_id_at
from confplane.audit.write_behind_buffer import WriteBehindBuffer, WriteBehindOptions
from confplane.domain.texts import storable
from confplane.services.ports.refusals import RefusedAttempt, RefusedAttempts, StoredAttempt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from sqlalchemy import Row

    from confplane.audit.database import Database
    from confplane.audit.group_commit import WritePartition
    from confplane.services.metrics import Sample
    from confplane.services.ports.refusals import RefusedQuery

ROWS_PER_MINUTE: Final = 60
"""Attempts of one principal in one minute and process that have rows of their own."""
MAX_SUMS: Final = 1_000
"""Sums of one minute and process."""
MAX_ID: Final = 256
MAX_KEYS: Final = 20
MAX_KEY: Final = 249
"""Characters of the longest name of a config in Kafka, which it shares with topics."""
ELLIPSIS: Final = "…"
"""Ends a text that is cut. No entity id contains it."""
EXAMINED: Final = 20_000
"""Rows that one page may read."""
_PENDING: Final = 10_000
_EXPIRED_EVERY_S: Final = 3_600
_PIECE: Final = 2_000
"""Rows that one call of ``expire_refused_attempts`` removes at most (migrations/versions/0024)."""

_INSERT: Final = text("""
INSERT INTO refused_attempts (
  id, cluster, principal, behalf_of, operation, entity_id, keys, error_code, problem, request_id, count)
SELECT id, cluster, principal, behalf_of, operation, entity_id, keys, error_code, problem, request_id, count
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given(
  id uuid, cluster text, principal text, behalf_of text, operation text, entity_id text, keys text[],
  error_code integer, problem text, request_id text, count integer)
ON CONFLICT DO NOTHING
""")
_EXPIRE: Final = text("SELECT expire_refused_attempts()")
_INDEXED: Final = ("request_id", "entity_id", "principal")
"""Filters with an index, the most selective first. The first that is given finds the rows; the others test them."""


class _Sum(NamedTuple):
    """A sum: the attempts of one minute that have no row of their own."""

    cluster: str
    principal: str
    operation: str
    error_code: int
    problem: str


class PostgresRefusedAttempts(RefusedAttempts):
    """Refused attempts, in Postgres.

    Args:
        database: The database.
        partition: The write partition of its writes; None: one of its own.
        options: Pauses between writes, and between checks for sums that are due; the capacity.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        database: Database,
        *,
        partition: WritePartition | None = None,
        options: WriteBehindOptions = WriteBehindOptions(max_pending=_PENDING),  # noqa: B008 - nothing alters it
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._buffer: WriteBehindBuffer[UUID] = WriteBehindBuffer(
            database, _INSERT, kind="refused_attempts", options=options, partition=partition
        )
        self._clock = clock
        self._minute = 0
        self._own_rows: Counter[str] = Counter()
        """The rows of each principal in this minute."""
        self._sums: dict[_Sum, StoredAttempt] = {}
        self._expired_at = float("-inf")

    async def start(self) -> None:
        """Start the background tasks; Postgres may be down."""
        self._buffer.start(self._keep_up)

    async def close(self) -> None:
        """Stop, and write the pending rows and sums, as :meth:`WriteBehindBuffer.close` does."""
        self._end_minute()
        await self._buffer.close()

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield from self._buffer.metrics(len(self._sums))

    @override
    def record(self, attempt: RefusedAttempt) -> None:
        now = self._clock()
        self._advance(now)
        self._own_rows[attempt.principal] += 1
        if self._own_rows[attempt.principal] <= ROWS_PER_MINUTE:
            self._queue(StoredAttempt(_id_at(now), attempt))
            return
        key = _Sum(attempt.cluster, attempt.principal, attempt.operation, attempt.error_code, attempt.problem)
        found = self._sums.get(key)
        if found is None and len(self._sums) >= MAX_SUMS:
            self._buffer.drop(len(self._sums))
            return
        first = _id_at(now) if found is None else found.id
        count = 1 if found is None else found.attempt.count + 1
        self._sums[key] = StoredAttempt(first, RefusedAttempt(*key, request_id=None, count=count))

    @override
    async def search(self, query: RefusedQuery) -> tuple[list[StoredAttempt], UUID | None]:
        given = {
            "request_id": query.request_id,
            "entity_id": None if query.entity_id is None else _cut(query.entity_id, MAX_ID),
            "principal": query.principal,
            "key": None if query.key is None else _cut(query.key, MAX_KEY),
        }
        filters = {name: value for name, value in given.items() if value is not None}
        if not all(map(storable, filters.values())) or (query.within is not None and not query.within):
            return [], None
        window, tests = ["cluster = :cluster"], ["true"]
        parameters: dict[str, Any] = {"cluster": query.cluster, **filters}
        index = next((name for name in _INDEXED if name in filters), None)
        for name in filters:
            test = "keys @> ARRAY[CAST(:key AS text)]" if name == "key" else f"{name} = :{name}"
            (window if name == index else tests).append(test)
        for sign, limit, bound in (
            ("<", "before", query.before),
            (">=", "since", None if query.since is None else first_id_at(query.since)),
            ("<", "until", None if query.until is None else first_id_at(query.until)),
        ):
            if bound is not None:
                window.append(f"id {sign} :{limit}")
                parameters[limit] = bound
        if query.within is not None:
            # Not by its beginning alone: the rest of an id that is cut may be an entity that the caller may not see.
            tests += [f"({visible.condition('entity_id')}) IS TRUE", "right(entity_id, 1) <> :ellipsis"]
            parameters |= {"ellipsis": ELLIPSIS, **visible.parameters(query.within)}
        # Without a test, the first rows are the page.
        parameters["examined"] = EXAMINED if len(tests) > 1 else query.page_size + 1
        found = await self._database.rows(
            text(f"""
WITH near AS MATERIALIZED (
  SELECT * FROM refused_attempts WHERE {" AND ".join(window)} ORDER BY id DESC LIMIT :examined
), fitting AS (
  SELECT * FROM near WHERE {" AND ".join(tests)} ORDER BY id DESC LIMIT :most
)
SELECT fitting.*, fitting.count AS attempts, reached.* FROM (
  SELECT CASE count(*) WHEN :examined THEN (array_agg(near.id ORDER BY near.id))[1] END AS floor FROM near
) AS reached LEFT JOIN fitting ON true ORDER BY fitting.id DESC
"""),  # noqa: S608 - put together from constants
            **parameters,
            most=query.page_size + 1,
        )
        floor = found[0].floor
        attempts = [_stored(row) for row in found if row.id is not None]
        if len(attempts) > query.page_size:
            return attempts[: query.page_size], attempts[query.page_size - 1].id
        return attempts, floor

    async def _keep_up(self) -> None:
        """Queue the sums of past minutes, and remove expired rows now and then."""
        now = self._clock()
        self._advance(now)
        if now - self._expired_at >= _EXPIRED_EVERY_S:
            while (await self._database.scalars(_EXPIRE))[0] == _PIECE:
                pass
            self._expired_at = now

    def _advance(self, now: float) -> None:
        minute = int(now // 60)
        if minute != self._minute:
            self._end_minute()
            self._minute = minute

    def _end_minute(self) -> None:
        for each in self._sums.values():
            self._queue(each)
        self._sums.clear()
        self._own_rows.clear()

    def _queue(self, stored: StoredAttempt) -> None:
        if not self._buffer.has_room(stored.id):
            self._buffer.drop(len(self._sums), stored.attempt.count)
            return
        attempt = stored.attempt
        self._buffer.add(
            stored.id,
            {
                **asdict(attempt),
                "id": str(stored.id),
                "entity_id": None if attempt.entity_id is None else _cut(attempt.entity_id, MAX_ID),
                "keys": [_cut(key, MAX_KEY) for key in attempt.keys[:MAX_KEYS]],
            },
        )


def _id_at(now: float) -> UUID:
    return uuid7(nanoseconds=int(now * 1e9))


def _cut(given: str, limit: int) -> str:
    """Return a text cut if it is long, with ``?`` for characters that can't be printed or stored."""
    cut = given if len(given) <= limit else given[:limit] + ELLIPSIS
    return cut if cut.isprintable() else "".join(each if each.isprintable() else "?" for each in cut)


def _stored(row: Row[Any]) -> StoredAttempt:
    return StoredAttempt(row.id, from_row(RefusedAttempt, row, keys=tuple(row.keys), count=row.attempts))
