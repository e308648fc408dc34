"""Publishes rollup runs: a run is begun, written in parts by many processes, and made current at once, or not at all.

The process that makes a run holds an advisory lock, in a transaction on its own connection, until the run is done. So
an incomplete run with a free lock will never be complete; the next run of the job removes its rows. Other processes
write the parts (:mod:`confplane.audit.rollup_parts`); each part commits once, and only while the run is being made.

The code is synchronous: Spark's driver waits for it.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import orjson
import psycopg
from psycopg.errors import LockNotAvailable
from psycopg.rows import namedtuple_row

from confplane.audit import faults
from confplane.audit.dsn import LIFT, conninfo
from confplane.audit.rollup_parts import RunAttempt, fold_id
from confplane.audit.rollups import COUNT_OF, LOCK_OF, run_of
from confplane.domain.errors import ConcurrentChangeError, UnavailableError
from confplane.services.ports.rollups import KEEP_RUNS, KEEP_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from uuid import UUID

    from psycopg import Connection

    from confplane.services.ports.rollups import RollupRun


# The partitions of ``rollup_rows``: each run has its own, so that any number of rows is removed at once.
#
# A run uses a free partition; if there is none, a new one is created. The run keeps the partition while it is running
# or complete. Then the partition is emptied with TRUNCATE and is free again. Emptying waits only for readers and
# writers of this partition, and only briefly: if a task of a dead attempt still writes to it, a later run empties it.
# Partitions are never dropped, because that would wait for the readers and writers of all runs.
#
# Partition 0 is shared by the runs of releases without partitions. Their rows are removed one by one.
#
# Two functions of the database (``migrations/versions/0018``) create and empty partitions. They run with the rights of
# the tables' owner, which the service's role lacks.

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
_FREE_PARTITION: Final = "SELECT FROM rollup_partitions WHERE number = %s FOR UPDATE SKIP LOCKED"
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
                is_held = connection.execute(_FREE_PARTITION, [number]).fetchone() is not None
                if is_held and connection.execute(_LEFT, [number]).fetchone() is not None:
                    connection.execute("SELECT empty_rollup_partition(%s)", [number])
                    connection.execute(_FREE, [number])
        except LockNotAvailable:
            continue


_RETURNED: Final = (
    "id, cluster, job, state, as_of, position, previous, principal, started_at, finished_at, row_count, error"
)
_LOCK: Final = f"SELECT pg_try_advisory_xact_lock({LOCK_OF.format('%s')})"
_FIND: Final = f"SELECT {_RETURNED} FROM rollup_runs WHERE id = %s FOR UPDATE"  # noqa: S608 - of constants
_CURRENT: Final = f"""
SELECT {_RETURNED} FROM rollup_runs WHERE cluster = %s AND job = %s AND state = 'complete'
ORDER BY as_of DESC, id DESC LIMIT 1
"""  # noqa: S608 - of constants
_BEGIN: Final = """
INSERT INTO rollup_runs (id, cluster, job, state, as_of, position, previous, principal)
VALUES (%(id)s, %(cluster)s, %(job)s, 'running', %(as_of)s, %(position)s, %(previous)s, %(principal)s)
ON CONFLICT (id) DO UPDATE SET
  state = 'running', as_of = excluded.as_of, position = excluded.position, previous = excluded.previous,
  principal = excluded.principal, started_at = now(), finished_at = NULL, row_count = NULL, error = NULL,
  attempt = rollup_runs.attempt + 1
RETURNING attempt
"""
_COMPLETE: Final = f"""
UPDATE rollup_runs SET
  state = 'complete', finished_at = clock_timestamp(),
  row_count = (SELECT coalesce(sum(row_count), 0) FROM rollup_parts WHERE run_id = %(id)s)
WHERE id = %(id)s AND state = 'running' RETURNING {_RETURNED}
"""  # noqa: S608 - of constants
_FAIL: Final = (
    "UPDATE rollup_runs SET state = 'failed', finished_at = now(), error = %s WHERE id = %s AND state = 'running'"
)
_RUNNING: Final = "SELECT id FROM rollup_runs WHERE cluster = %s AND job = %s AND state = 'running'"
# The base of a run under way is kept, too. The same number of failed runs is kept as of complete runs.
_OLD: Final = """
WITH ranked AS (
  SELECT id, row_number() OVER (
    PARTITION BY state ORDER BY CASE state WHEN 'complete' THEN as_of ELSE started_at END DESC, id DESC
  ) AS rank
  FROM rollup_runs WHERE cluster = %(cluster)s AND job = %(job)s
)
SELECT id FROM rollup_runs AS old
WHERE id IN (SELECT id FROM ranked WHERE rank > %(keep)s) AND state <> 'running'
  AND finished_at < now() - make_interval(secs => %(keep_s)s)
  AND NOT EXISTS (SELECT FROM rollup_runs AS built WHERE built.previous = old.id AND built.state = 'running')
FOR UPDATE SKIP LOCKED
"""
_DROP: Final = (
    f"DELETE FROM rollup_rows WHERE partition = {SHARED} AND run_id = ANY(%s)",  # noqa: S608 - a constant
    "DELETE FROM rollup_parts WHERE run_id = ANY(%s)",
)
_COUNT: Final = COUNT_OF.format("%(run)s", "%(members)s")
_FORGET: Final = "DELETE FROM rollup_runs WHERE id = ANY(%s)"
LOST: Final = "The process that made it ended before it was done"


class RollupRuns:
    """The runs of one cluster's rollups, for the process that makes them.

    Every method raises ``UnavailableError`` if Postgres is unavailable or not migrated.

    Args:
        dsn: ``postgresql://...`` of the service's role.
        cluster: The cluster.

    Raises:
        ValueError: ``dsn`` is not a connection string.
    """

    def __init__(self, dsn: str, cluster: str) -> None:
        self._conninfo = conninfo(dsn)
        self._cluster = cluster

    @contextmanager
    def held(self, run_id: UUID, otherwise: str | None = None) -> Iterator[None]:
        """Hold a run for the duration of a block, so that no other process considers it abandoned.

        Args:
            run_id: The run, or the id of any other work that only one process does at a time.
            otherwise: The message of the refusal; None for the message about a run.

        Raises:
            ConcurrentChangeError: Another process is making the run.
        """
        with _server_faults(), psycopg.connect(self._conninfo) as connection:
            connection.execute(LIFT)
            row = connection.execute(_LOCK, [run_id]).fetchone()
            if row is None or not row[0]:
                raise ConcurrentChangeError(otherwise or f"Run {run_id} is being made by another process")
            # The transaction stays open; it has no snapshot, and so does not hold back vacuum.
            try:
                yield
            finally:
                # The server notices a closed connection some time later, but another process may need the lock at once.
                with suppress(psycopg.Error):
                    connection.rollback()
                connection.close()

    def current(self, job: str) -> RollupRun | None:
        """Return the current run of a job."""
        with self._connected() as connection:
            row = connection.execute(_CURRENT, [self._cluster, job]).fetchone()
            return None if row is None else run_of(row)

    def count(self, run_id: UUID, members: Mapping[str, Any]) -> int:
        """Return the number of a run's rows that have these members, equal as JSON."""
        with self._connected() as connection:
            given = {"run": run_id, "members": orjson.dumps(members).decode()}
            row = connection.execute(_COUNT, given).fetchone()
            return 0 if row is None else int(row[0])

    def find(self, run_id: UUID) -> RollupRun | None:
        """Return a run, with its stored state, or None if the run is unknown or no longer kept."""
        with self._connected() as connection:
            row = connection.execute(_FIND, [run_id]).fetchone()
            return None if row is None else run_of(row)

    def begin(
        self,
        run_id: UUID,
        job: str,
        *,
        as_of: datetime,
        position: Mapping[str, Any],
        previous: UUID | None,
        principal: str,
    ) -> RollupRun | RunAttempt:
        """Begin a run that is held, or begin it again. Rows of an earlier attempt are dropped.

        Returns:
            This attempt at the run, for the writers of its parts; or the run if it is complete already.
        """
        with self._connected() as connection:
            row = connection.execute(_FIND, [run_id]).fetchone()
            if row is not None and row.state == "complete":
                return run_of(row)
            if row is not None:
                _drop(connection, [run_id])
            begun = connection.execute(
                _BEGIN,
                {
                    "id": run_id,
                    "cluster": self._cluster,
                    "job": job,
                    "as_of": as_of,
                    "position": orjson.dumps(dict(position)).decode(),
                    "previous": previous,
                    "principal": principal,
                },
            ).fetchone()
            assert begun is not None  # noqa: S101 - for the type checker; the statement always returns a row
            return RunAttempt(begun.attempt, take(connection, run_id, begun.attempt))

    def parts(self, run_id: UUID) -> list[int]:
        """Return the numbers of the written parts of a run, or of a fold by its id."""
        with self._connected() as connection:
            found = connection.execute("SELECT part FROM rollup_parts WHERE run_id = %s ORDER BY part", [run_id])
            return [row.part for row in found]

    def complete(self, run_id: UUID) -> RollupRun:
        """Make a run visible, with all of its rows.

        Raises:
            ConcurrentChangeError: The run is no longer being made: it was considered abandoned.
        """
        try:
            return self._complete(run_id)
        except UnavailableError:
            # The reply may have been lost although the run is complete.
            return self._complete(run_id)

    def _complete(self, run_id: UUID) -> RollupRun:
        with self._connected() as connection:
            row = connection.execute(_COMPLETE, {"id": run_id}).fetchone()
            if row is None:
                row = connection.execute(_FIND, [run_id]).fetchone()
                if row is None or row.state != "complete":
                    raise ConcurrentChangeError(f"Run {run_id} was given up in the meantime. Run it again.")
            return run_of(row)

    def fail(self, run_id: UUID, error: str) -> bool:
        """Give up a run: its rows are removed, and it is kept as failed. Has no effect on a complete run.

        Returns:
            False if the run was not being made.
        """
        with self._connected() as connection:
            if not connection.execute(_FAIL, [error, run_id]).rowcount:
                return False
            _drop(connection, [run_id])
        self._empty()
        return True

    def sweep(self, job: str) -> list[UUID]:
        """Give up the runs of a job whose processes are gone, and return their ids."""
        with self._connected() as connection:
            running = [row.id for row in connection.execute(_RUNNING, [self._cluster, job])]
        swept = []
        for run_id in running:
            # Each in its own transaction, which holds the run's lock: no process begins the run again at the same time.
            with self._connected() as connection:
                row = connection.execute(_LOCK, [run_id]).fetchone()
                if row is not None and row[0] and connection.execute(_FAIL, [LOST, run_id]).rowcount:
                    _drop(connection, [run_id])
                    swept.append(run_id)
        self._empty()
        return swept

    def purge(self, job: str, *, keep: int = KEEP_RUNS, keep_s: float = KEEP_S) -> list[UUID]:
        """Drop old runs of a job, and return their ids.

        Args:
            job: The job.
            keep: The number of complete runs to keep, the latest by ``as_of``, and the number of failed runs to keep.
            keep_s: Seconds for which every run is kept after its end.
        """
        with self._connected() as connection:
            given = {"cluster": self._cluster, "job": job, "keep": keep, "keep_s": keep_s}
            old = [row.id for row in connection.execute(_OLD, given)]
            if old:
                _drop(connection, old)
                connection.execute(_FORGET, [old])
        self._empty()
        return old

    def _empty(self) -> None:
        """Empty the partitions that no run uses any more."""
        with self._connected() as connection:
            empty_left(connection)

    @contextmanager
    def _connected(self) -> Iterator[Connection[Any]]:
        """Connect for one transaction."""
        with _server_faults(), psycopg.connect(self._conninfo, row_factory=namedtuple_row) as connection:
            yield connection


def _drop(connection: Connection[Any], run_ids: list[UUID]) -> None:
    """Remove the parts of runs and of their folds, after which their partitions can be emptied."""
    ids = [*run_ids, *map(fold_id, run_ids)]
    for statement in _DROP:
        connection.execute(statement, [ids])


@contextmanager
def _server_faults() -> Iterator[None]:
    """Raise the server's faults as errors that name the next step."""
    try:
        yield
    except psycopg.Error as error:
        fault = faults.classify(error)
        if fault is None:
            raise
        raise faults.unavailable(fault) from error
