"""The partitions of ``rollup_rows``: each run has its own, so that any number of rows is removed at once.

A run uses a free partition; if there is none, a new one is created. The run keeps the partition while it is running or
complete. Then the partition is emptied with TRUNCATE and is free again. Emptying waits only for readers and writers of
this partition, and only briefly: if a task of a dead attempt still writes to it, a later run empties it. Partitions are
never dropped, because that would wait for the readers and writers of all runs.

Partition 0 is shared by the runs of releases without partitions. Their rows are removed one by one.

Two functions of the database (``migrations/versions/0018``) create and empty partitions. They run with the rights of
the tables' owner, which the service's role lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg.errors import LockNotAvailable

if TYPE_CHECKING:
    from uuid import UUID

    from psycopg import Connection

SHARED: Final = 0
"""The partition that is shared by runs without their own."""

_TAKE: Final = """
UPDATE rollup_partitions SET run_id = %(run)s, attempt = %(attempt)s
WHERE number = (
  SELECT number FROM rollup_partitions WHERE run_id IS NULL ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING number
"""
_ADD: Final = "SELECT add_rollup_partition() AS number"
_TAKE_ADDED: Final = "UPDATE rollup_partitions SET run_id = %(run)s, attempt = %(attempt)s WHERE number = %(number)s"
_LEFT: Final = """
SELECT number FROM rollup_partitions AS taken
WHERE run_id IS NOT NULL AND number = coalesce(%s, number) AND NOT EXISTS (
  SELECT FROM rollup_runs AS run
  WHERE run.id = taken.run_id AND run.attempt = taken.attempt AND run.state IN ('running', 'complete')
)
"""
_LOCK: Final = "SELECT FROM rollup_partitions WHERE number = %s FOR UPDATE SKIP LOCKED"
_FREE: Final = "UPDATE rollup_partitions SET run_id = NULL, attempt = NULL WHERE number = %s"


def take(connection: Connection[Any], run_id: UUID, attempt: int) -> int:
    """Assign a partition to an attempt at a run, and return its number."""
    given: dict[str, Any] = {"run": run_id, "attempt": attempt}
    for (number,) in connection.execute(_TAKE, given):
        return int(number)
    [(number,)] = connection.execute(_ADD)
    connection.execute(_TAKE_ADDED, {**given, "number": number})
    return int(number)


def empty_left(connection: Connection[Any]) -> None:
    """Empty the partitions of attempts that ended without a complete run, and of runs that are gone.

    Args:
        connection: A connection without an open transaction.
    """
    left = [number for (number,) in connection.execute(_LEFT, [None])]
    connection.commit()
    for number in left:
        try:
            with connection.transaction():
                # Another process may be emptying it. Checked again under the lock: it may have a new run by now.
                is_held = connection.execute(_LOCK, [number]).fetchone() is not None
                if is_held and connection.execute(_LEFT, [number]).fetchone() is not None:
                    connection.execute("SELECT empty_rollup_partition(%s)", [number])
                    connection.execute(_FREE, [number])
        except LockNotAvailable:
            continue
