"""Reads the runs of rollups, and pages through their rows with bounded work for any search."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson
from sqlalchemy import text
from typing_extensions import override

from confplane.audit import visible
from confplane.audit.database import from_row
from confplane.domain.texts import storable
from confplane.services.ports.pages import PAGE_BYTES
from confplane.services.ports.rollups import JobRuns, Place, RollupResults, RollupRun, RunState

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from sqlalchemy.ext.asyncio import AsyncConnection

    from confplane.audit.database import Database
    from confplane.services.ports.rollups import RowQuery

_WINDOW: Final = 25_000
"""Rows that one statement reads."""
_MAX_EXAMINED: Final = 200_000
"""Maximum number of rows that one page may read, which takes about half a second."""

LOCK_OF: Final = "hashtextextended(CAST({} AS text), 0)"
"""The key of the advisory lock that the process making a run holds until it ends."""

_COLUMNS: Final = (
    "id, cluster, job, state, as_of, position, previous, principal, started_at, finished_at, row_count, error"
)
# The 64-bit key of a lock is in two columns, as two unsigned numbers.
_RUNS: Final = text(f"""
WITH latest AS (
  SELECT DISTINCT ON (job) * FROM rollup_runs WHERE cluster = :cluster ORDER BY job, started_at DESC, id DESC
), current AS (
  SELECT DISTINCT ON (job) * FROM rollup_runs WHERE cluster = :cluster AND state = 'complete'
  ORDER BY job, as_of DESC, id DESC
), held AS (
  SELECT (classid::bigint << 32) | objid::bigint AS key FROM pg_locks
  WHERE locktype = 'advisory' AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
SELECT true AS is_current, {_COLUMNS} FROM current
UNION ALL
SELECT false, id, cluster, job,
  CASE WHEN state = 'running' AND {LOCK_OF.format("id")} NOT IN (SELECT key FROM held) THEN 'lost' ELSE state END,
  as_of, position, previous, principal, started_at, finished_at, row_count, error
FROM latest
""")  # noqa: S608 - put together from constants
_RUN: Final = text(f"""
SELECT {_COLUMNS} FROM rollup_runs
WHERE cluster = :cluster AND job = :job AND state = 'complete' AND id = coalesce(CAST(:run_id AS uuid), id)
ORDER BY as_of DESC, id DESC LIMIT 1
""")  # noqa: S608 - put together from constants
_ENTITY: Final = "AND entity_id = :entity_id"
_ROWS: Final = """
SELECT part, ordinal, entity_id, item FROM rollup_rows
WHERE partition = :partition AND run_id = :run_id AND (part, ordinal) > (:part, :ordinal) {entity}
ORDER BY part, ordinal LIMIT :count
"""
# Items beyond a page's size in bytes are left out. Their rows are returned, to show that there are more.
_PAGE: Final = """
SELECT part, ordinal, CASE WHEN before < :bytes THEN item END AS item
FROM (
  SELECT part, ordinal, item,
    coalesce(sum(octet_length(item::text)) OVER (
      ORDER BY part, ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), 0) AS before
  FROM ({rows}) AS rows
) AS sized
ORDER BY part, ordinal
"""
_BY_PLACE: Final = text(_ROWS.format(entity=""))
_OF_ENTITY: Final = text(_ROWS.format(entity=_ENTITY))
_PAGE_BY_PLACE: Final = text(_PAGE.format(rows=_BY_PLACE.text))
_PAGE_OF_ENTITY: Final = text(_PAGE.format(rows=_OF_ENTITY.text))
# The window is inside the filter: in the other order, a filter that few rows match would scan the whole run.
_SEARCH: Final = """
WITH seen AS MATERIALIZED ({rows}), found AS (
  SELECT part, ordinal, item FROM seen WHERE item @> CAST(:members AS jsonb) {wanted}
  ORDER BY part, ordinal LIMIT :limit
)
SELECT part, ordinal, item, false AS is_end FROM found
UNION ALL
(SELECT part, ordinal, NULL, true FROM seen ORDER BY part DESC, ordinal DESC LIMIT 1)
ORDER BY is_end, part, ordinal
"""
_SORTED: Final = """
SELECT item FROM rollup_rows
WHERE partition = :partition AND run_id = :run_id {entity} AND item @> CAST(:members AS jsonb) {wanted}
ORDER BY {order}, part, ordinal OFFSET :offset LIMIT :limit
"""
# A separate statement, so that the rows are read with a plan for this one partition.
_PARTITION: Final = text("SELECT partition FROM rollup_parts WHERE run_id = :run_id LIMIT 1")
_IS_THERE: Final = text("SELECT EXISTS (SELECT FROM rollup_runs WHERE id = :run_id AND state = 'complete')")
COUNT_OF: Final = """
SELECT count(*) FROM rollup_rows
WHERE partition = (SELECT partition FROM rollup_parts WHERE run_id = {0} LIMIT 1)
  AND run_id = {0} AND item @> CAST({1} AS jsonb)
"""
"""The number of rows of a run with certain members."""
_COUNT: Final = text(COUNT_OF.format(":run_id", ":members"))
_BEFORE_ALL: Final = (-1, -1)


class PostgresRollups(RollupResults):
    """The results of rollups, in Postgres.

    Args:
        database: The database.
        window: Rows that one statement reads.
        max_examined: Rows that one page may read.
    """

    def __init__(self, database: Database, *, window: int = _WINDOW, max_examined: int = _MAX_EXAMINED) -> None:
        self._database = database
        self._window = window
        self._max_examined = max_examined

    @override
    async def runs(self, cluster: str) -> dict[str, JobRuns]:
        rows = await self._database.rows(_RUNS, cluster=cluster)
        current = {row.job: run_of(row) for row in rows if row.is_current}
        return {row.job: JobRuns(current.get(row.job), run_of(row)) for row in rows if not row.is_current}

    @override
    async def run(self, cluster: str, job: str, run_id: UUID | None = None) -> RollupRun | None:
        row = await self._database.row(_RUN, cluster=cluster, job=job, run_id=run_id)
        return None if row is None else run_of(row)

    @override
    async def count(self, run_id: UUID, members: Mapping[str, Any]) -> int:
        [number] = await self._database.scalars(_COUNT, run_id=run_id, members=orjson.dumps(members).decode())
        return int(number)

    @override
    async def rows(self, query: RowQuery) -> tuple[list[dict[str, Any]], Place | None] | None:
        # No row has a text that Postgres can't hold.
        if not all(storable(given) for given in _texts(query)):
            return [], None
        if query.within is not None and query.entity_id is not None:
            if query.entity_id not in query.within:
                return [], None
            query = replace(query, within=None)  # all rows of one entity are as visible as the entity

        async def work(connection: AsyncConnection) -> tuple[list[dict[str, Any]], Place | None] | None:
            filtered = query.members or query.conditions or query.within is not None
            partition = await connection.scalar(_PARTITION, {"run_id": query.run_id})
            read = self._sorted if query.order else self._search if filtered else self._page
            page = ([], None) if partition is None else await read(connection, query, partition)
            # The rows of a run are removed with it, or after it. So if it still exists, no row was missing above.
            is_there = await connection.scalar(_IS_THERE, {"run_id": query.run_id})
            return page if is_there else None

        return await self._database.read(work)

    async def _page(
        self, connection: AsyncConnection, query: RowQuery, partition: int
    ) -> tuple[list[dict[str, Any]], Place | None]:
        statement = _PAGE_BY_PLACE if query.entity_id is None else _PAGE_OF_ENTITY
        given = _given(query, query.after, partition) | {"count": query.page_size + 1, "bytes": PAGE_BYTES}
        found = (await connection.execute(statement, given)).all()
        page = [row for row in found[: query.page_size] if row.item is not None]
        return [row.item for row in page], (page[-1].part, page[-1].ordinal) if len(found) > len(page) else None

    async def _search(
        self, connection: AsyncConnection, query: RowQuery, partition: int
    ) -> tuple[list[dict[str, Any]], Place | None]:
        rows_read = _BY_PLACE if query.entity_id is None else _OF_ENTITY
        wanted, fixed = _wanted(query)
        statement = text(_SEARCH.format(rows=rows_read.text, wanted=wanted))
        items: list[dict[str, Any]] = []
        after = query.after
        for _ in range(max(1, self._max_examined // self._window)):
            limit = query.page_size - len(items)
            given = _given(query, after, partition) | fixed | {"count": self._window, "limit": limit}
            rows = (await connection.execute(statement, given)).all()
            if not rows:
                return items, None
            *found, end = rows
            items += [row.item for row in found]
            if len(items) == query.page_size:
                return items, (found[-1].part, found[-1].ordinal)
            after = (end.part, end.ordinal)
        return items, after

    async def _sorted(
        self, connection: AsyncConnection, query: RowQuery, partition: int
    ) -> tuple[list[dict[str, Any]], Place | None]:
        wanted, fixed = _wanted(query)
        order = ", ".join(
            f"{_member(each.member, is_number=each.is_number)} {'DESC' if each.descending else 'ASC'} NULLS LAST"
            for each in query.order
        )
        statement = text(_SORTED.format(entity="" if query.entity_id is None else _ENTITY, wanted=wanted, order=order))
        offset = 0 if query.after is None else query.after[1]
        given = _given(query, None, partition) | fixed | {"offset": offset, "limit": query.page_size + 1}
        items = list((await connection.execute(statement, given)).scalars())
        page = items[: query.page_size]
        return page, (0, offset + len(page)) if len(items) > len(page) else None


def run_of(row: Any) -> RollupRun:
    """Return the run of a row of ``rollup_runs``."""
    return from_row(RollupRun, row, state=RunState(row.state), rows=row.row_count)


def _member(name: str, *, is_number: bool) -> str:
    """Return an expression for a member of a row; names are those of columns of the domain."""
    value = f"item ->> '{name}'"
    return f"CAST({value} AS numeric)" if is_number else f'({value}) COLLATE "C"'


def _wanted(query: RowQuery) -> tuple[str, dict[str, Any]]:
    """Return the conditions of a query for SQL, and their parameters."""
    conditions: list[str] = []
    given: dict[str, Any] = {"members": orjson.dumps(query.members or {}).decode()}
    for number, each in enumerate(query.conditions):
        is_number = each.value is not None and not isinstance(each.value, str)
        value = "" if each.value is None else f" CAST(:value_{number} AS {'numeric' if is_number else 'text'})"
        conditions.append(f"{_member(each.member, is_number=is_number)} {each.operator}{value}")
        if value:
            given[f"value_{number}"] = each.value
    if query.within is not None:
        conditions.append(visible.condition("entity_id"))
        given |= visible.parameters(query.within)
    return "".join(f" AND {each}" for each in conditions), given


def _given(query: RowQuery, after: Place | None, partition: int) -> dict[str, Any]:
    part, ordinal = after or _BEFORE_ALL
    entity = {} if query.entity_id is None else {"entity_id": query.entity_id}
    return {"partition": partition, "run_id": query.run_id, "part": part, "ordinal": ordinal, **entity}


def _texts(query: RowQuery) -> list[str]:
    texts = [] if query.entity_id is None else [query.entity_id]
    for value in (query.members or {}).values():
        texts += [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]
    return texts
