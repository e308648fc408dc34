"""Writes one part of a run of a rollup, on an executor, in one transaction, once; and reads it.

A task may run twice: tried again, or side by side on two machines. Each attempt writes rows of its own; the first to
commit is the part, and the others leave nothing. An attempt after the end of its run leaves nothing either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psycopg

from app.audit.dsn import conninfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from uuid import UUID

_WRITTEN: Final = "SELECT row_count FROM rollup_parts WHERE run_id = %s AND part = %s"
_PARTS: Final = "SELECT part, row_count FROM rollup_parts WHERE run_id = %s"
_READ: Final = "SELECT CAST(item AS text) FROM rollup_rows WHERE run_id = %s AND part = %s ORDER BY ordinal"
_FETCHED: Final = 5_000
_COPY: Final = "COPY rollup_rows (run_id, part, ordinal, entity_id, item) FROM STDIN"
# Waits only for another attempt that is about to commit, and for a process that gives the run up.
_COMMIT: Final = """
WITH run AS MATERIALIZED (
  SELECT id FROM rollup_runs WHERE id = %(run)s AND attempt = %(attempt)s AND state = 'running' FOR SHARE
)
INSERT INTO rollup_parts (run_id, part, row_count)
SELECT id, CAST(%(part)s AS integer), CAST(%(rows)s AS bigint) FROM run ON CONFLICT DO NOTHING
"""


class RunGoneError(Exception):
    """The run is no longer being made."""


def write_part(dsn: str, run_id: UUID, attempt: int, part: int, pieces: Iterable[tuple[bytes, int]]) -> int:
    """Write a part, unless it is written already.

    Args:
        dsn: ``postgresql://...`` of the service's role.
        run_id: The run.
        attempt: The number of the attempt at the run.
        part: The part's number.
        pieces: Rows as lines of COPY's text format, with their number; columns are run id, part, ordinal, entity id and
            item.

    Returns:
        The number of rows of the part.

    Raises:
        RunGoneError: The run was given up.
        psycopg.Error: Postgres is away, or refuses.
    """
    with psycopg.connect(conninfo(dsn)) as connection:
        row = connection.execute(_WRITTEN, [run_id, part]).fetchone()
        if row is not None:
            return int(row[0])
        rows = 0
        with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
            for lines, count in pieces:
                copy.write(lines)
                rows += count
        if connection.execute(_COMMIT, {"run": run_id, "attempt": attempt, "part": part, "rows": rows}).rowcount:
            return rows
        connection.rollback()
        row = connection.execute(_WRITTEN, [run_id, part]).fetchone()
        if row is None:
            raise RunGoneError(f"Run {run_id} is not being made any more")
        return int(row[0])


def check_parts(dsn: str, run_id: UUID, written: Mapping[int, int]) -> None:
    """Check that a run has exactly these parts.

    Args:
        dsn: ``postgresql://...`` of the service's role.
        run_id: The run.
        written: The number of rows of each part, as :func:`write_part` returned it.

    Raises:
        RuntimeError: The run has other parts.
    """
    with psycopg.connect(conninfo(dsn)) as connection:
        found: dict[int, int] = dict(connection.execute(_PARTS, [run_id]).fetchall())
    if found != written:
        raise RuntimeError(
            f"Run {run_id} has {sum(found.values())} rows in {len(found)} parts in Postgres, and"
            f" {sum(written.values())} rows in {len(written)} parts were written"
        )


def read_part(dsn: str, run_id: UUID, part: int) -> Iterator[list[str]]:
    """Return the items of a part in their order, as JSON, some thousands at a time.

    Raises:
        RunGoneError: Parts of it are missing: the run was dropped meanwhile.
        psycopg.Error: Postgres is away, or refuses.
    """
    with psycopg.connect(conninfo(dsn)) as connection:
        left = connection.execute(_WRITTEN, [run_id, part]).fetchone()
        missing = None if left is None else int(left[0])
        with connection.cursor("items") as cursor:
            cursor.execute(_READ, [run_id, part])
            while rows := cursor.fetchmany(_FETCHED):
                missing = None if missing is None else missing - len(rows)
                yield [item for (item,) in rows]
    if missing != 0:
        raise RunGoneError(f"Run {run_id} was dropped while it was read")
