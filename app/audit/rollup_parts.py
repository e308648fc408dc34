"""Writes one part of a run of a rollup: on an executor, in one transaction, once.

A task may run twice: tried again, or side by side on two machines. Each attempt writes rows of its own; the first that
commits is the part, and the others leave nothing. Nor does an attempt that comes after its run was given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psycopg

from app.audit.rollup_runs import conninfo

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

_WRITTEN: Final = "SELECT row_count FROM rollup_parts WHERE run_id = %s AND part = %s"
_COPY: Final = "COPY rollup_rows (run_id, part, ordinal, entity_id, item) FROM STDIN"
# Waits for nobody but another attempt that is about to commit, and for who gives the run up.
_COMMIT: Final = """
WITH run AS MATERIALIZED (
  SELECT id FROM rollup_runs WHERE id = %(run)s AND attempt = %(attempt)s AND state = 'running' FOR SHARE
)
INSERT INTO rollup_parts (run_id, part, row_count)
SELECT id, CAST(%(part)s AS integer), CAST(%(rows)s AS bigint) FROM run ON CONFLICT DO NOTHING
"""


class RunGoneError(Exception):
    """The run is not being made any more."""


def write_part(dsn: str, run_id: UUID, attempt: int, part: int, pieces: Iterable[tuple[bytes, int]]) -> int:
    """Write a part, unless it is written already.

    Args:
        dsn: ``postgresql://...`` of the service's role.
        run_id: The run.
        attempt: Which attempt at the run.
        part: The part's number.
        pieces: Rows as lines of COPY's text format, and how many they are; columns are run id, part, ordinal, entity id
            and item.

    Returns:
        How many rows the part has.

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
