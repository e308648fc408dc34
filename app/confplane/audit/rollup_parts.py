"""Writes one part of a rollup run on an executor, once, in one transaction; and reads it.

A task may run twice: as a retry, or concurrently on two machines. Each attempt writes its own rows. The first attempt
to commit becomes the part; other attempts leave no rows. An attempt after the end of its run leaves no rows either.

A run may also have a fold for the next run: rows like its own, in separate parts, under the id :func:`fold_id`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid5

import psycopg

from confplane.audit.dsn import LIFT, conninfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from uuid import UUID

_WRITTEN: Final = "SELECT row_count, partition FROM rollup_parts WHERE run_id = %s AND part = %s"
_PARTS: Final = "SELECT part, row_count FROM rollup_parts WHERE run_id = %s"
_READ: Final = """
SELECT CAST(item AS text) FROM rollup_rows WHERE partition = %s AND run_id = %s AND part = %s ORDER BY ordinal
"""
_FETCHED: Final = 5_000
_COPY: Final = "COPY rollup_rows (partition, run_id, part, ordinal, entity_id, item) FROM STDIN"
# Waits only for another attempt that is about to commit, and for a process that is giving up the run.
_COMMIT: Final = """
WITH run AS MATERIALIZED (
  SELECT id FROM rollup_runs WHERE id = %(run)s AND attempt = %(attempt)s AND state = 'running' FOR SHARE
)
INSERT INTO rollup_parts (run_id, part, row_count, partition)
SELECT CAST(%(under)s AS uuid), CAST(%(part)s AS integer), CAST(%(rows)s AS bigint), CAST(%(partition)s AS integer)
FROM run ON CONFLICT DO NOTHING
"""


class RunGoneError(Exception):
    """The run is no longer being made."""


@dataclass(frozen=True, slots=True)
class RunAttempt:
    """An attempt at a run: its number, and the partition of its rows."""

    number: int
    partition: int


def fold_id(run_id: UUID) -> UUID:
    """Return the id of a run's fold in the tables of its rows."""
    return uuid5(run_id, "fold")


def write_part(
    dsn: str,
    run_id: UUID,
    attempt: RunAttempt,
    part: int,
    pieces: Iterable[tuple[bytes, int]],
    *,
    under: UUID | None = None,
) -> int:
    """Write a part, unless it is written already.

    Args:
        dsn: ``postgresql://...`` of the service's role.
        run_id: The run.
        attempt: The attempt at the run.
        part: The part's number.
        pieces: Rows as lines of COPY's text format, with their number; columns are the attempt's partition, the id of
            ``under``, part, ordinal, entity id and item.
        under: The id under which the rows are stored: that of the run's fold, or None for that of the run.

    Returns:
        The number of rows of the part.

    Raises:
        RunGoneError: The run was given up.
        psycopg.Error: Postgres is unavailable, or refused a statement.
    """
    under = under or run_id
    with psycopg.connect(conninfo(dsn)) as connection:
        connection.execute(LIFT)
        row = connection.execute(_WRITTEN, [under, part]).fetchone()
        if row is not None:
            return int(row[0])
        rows = 0
        with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
            for lines, count in pieces:
                copy.write(lines)
                rows += count
        given = {
            "run": run_id,
            "attempt": attempt.number,
            "under": under,
            "part": part,
            "rows": rows,
            "partition": attempt.partition,
        }
        if connection.execute(_COMMIT, given).rowcount:
            return rows
        connection.rollback()
        row = connection.execute(_WRITTEN, [under, part]).fetchone()
        if row is None:
            raise RunGoneError(f"Run {run_id} is not being made any more")
        return int(row[0])


def check_parts(dsn: str, run_id: UUID, written: Mapping[int, int]) -> None:
    """Check that a run has exactly these parts.

    Args:
        dsn: ``postgresql://...`` of the service's role.
        run_id: The run, or the id of its fold.
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
        RunGoneError: Parts of it are missing: the run was dropped in the meantime.
        psycopg.Error: Postgres is unavailable, or refused a statement.
    """
    with psycopg.connect(conninfo(dsn)) as connection:
        connection.execute(LIFT)
        left = connection.execute(_WRITTEN, [run_id, part]).fetchone()
        missing, partition = (None, None) if left is None else left
        with connection.cursor("items") as cursor:
            cursor.execute(_READ, [partition, run_id, part])
            while rows := cursor.fetchmany(_FETCHED):
                missing = None if missing is None else missing - len(rows)
                yield [item for (item,) in rows]
    if missing != 0:
        raise RunGoneError(f"Run {run_id} was deleted while it was being read")
