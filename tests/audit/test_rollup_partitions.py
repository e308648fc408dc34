"""Partitions of the rows of rollups: taken by runs, emptied at once, and shared with a release that knows of none."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from alembic import command
from sqlalchemy import NullPool, create_engine, make_url
from uuid_utils.compat import uuid7

from confplane.audit import Database, PostgresRollups, migrate
from confplane.audit.rollup_parts import fold_id, write_part
from confplane.audit.rollup_runs import RollupRuns
from confplane.services.ports.rollups import RowQuery, RunState
from tests.audit.rows import count, fetch, run
from tests.audit.test_rollups import age, all_rows, begin, lines, publish
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from tests.support import servers

JOB: Final = "activity"


def partitions(migrated: servers.Database) -> dict[int, UUID | None]:
    """The number of each partition, and its run."""
    return dict(fetch(migrated.owner_dsn, "SELECT number, run_id FROM rollup_partitions ORDER BY number"))


def sizes(migrated: servers.Database) -> list[int]:
    """The bytes of the rows of each partition of a run; 0 where a partition was emptied at once."""
    numbers = "SELECT pg_relation_size(('rollup_rows_' || number)::regclass) FROM rollup_partitions ORDER BY number"
    return [size for (size,) in fetch(migrated.owner_dsn, numbers)]


async def test_old_runs_leave_empty_partitions_which_later_runs_take(
    runs: RollupRuns, rollups: PostgresRollups, migrated: servers.Database
) -> None:
    dsn = migrated.service_dsn
    made = [publish(runs, dsn, [[{"n": number}] * 50], minutes=number) for number in range(5)]
    assert partitions(migrated) == dict(enumerate(made, start=1))
    age(migrated)
    assert set(runs.purge(JOB)) == set(made[:2])
    assert list(partitions(migrated).values()) == [None, None, *made[2:]]
    assert [size > 0 for size in sizes(migrated)] == [False, False, True, True, True]
    later = [publish(runs, dsn, [[{"n": number}] * 50], minutes=number) for number in (6, 7, 8)]
    assert list(partitions(migrated).values()) == [*later[:2], *made[2:], later[2]]
    assert await all_rows(rollups, later[0], 50) == [{"n": 6}] * 50
    assert await all_rows(rollups, made[3], 50) == [{"n": 3}] * 50
    assert count(migrated.owner_dsn, "rollup_rows_0") == 0


def test_a_fold_is_emptied_with_its_run(runs: RollupRuns, migrated: servers.Database) -> None:
    run_id = uuid7()
    with runs.held(run_id):
        attempt = begin(runs, run_id)
        for under in (run_id, fold_id(run_id)):
            write_part(migrated.service_dsn, run_id, attempt, 0, lines(under, attempt, 0, [{"n": 1}]), under=under)
        assert count(migrated.owner_dsn, f"rollup_rows_{attempt.partition}") == 2
        assert runs.fail(run_id, "away")
    assert sizes(migrated) == [0]
    assert partitions(migrated) == {1: None}
    assert count(migrated.owner_dsn, "rollup_parts") == 0


def test_runs_that_begin_at_once_take_partitions_of_their_own(runs: RollupRuns, migrated: servers.Database) -> None:
    for _ in range(2):
        both = threading.Barrier(6, timeout=60)

        def begun(both: threading.Barrier = both) -> tuple[UUID, int]:
            run_id = uuid7()
            both.wait()
            return run_id, begin(runs, run_id).partition

        with ThreadPoolExecutor(6) as threads:
            ended = [threads.submit(begun) for _ in range(6)]
            taken = dict(one.result() for one in ended)
        assert sorted(taken.values()) == sorted(set(taken.values()))
        assert {number: run_id for run_id, number in taken.items()}.items() <= partitions(migrated).items()
        # Nobody holds these runs, so they are taken for lost: those of the second round take partitions of the first.
        assert set(runs.sweep(JOB)) == set(taken)
    assert set(partitions(migrated).values()) == {None}
    assert len(partitions(migrated)) == 6


WRITTEN: Final = "SELECT count(*) FROM pg_locks WHERE mode = 'RowExclusiveLock' AND relation = %s::regclass"


def test_a_task_that_outlives_its_attempt_keeps_nobody_waiting(runs: RollupRuns, migrated: servers.Database) -> None:
    run_id = uuid7()
    ended = threading.Event()
    with runs.held(run_id), ThreadPoolExecutor(1) as threads:
        first = begin(runs, run_id)

        def slow() -> Iterator[tuple[bytes, int]]:
            yield from lines(run_id, first, 0, [{"n": 1}] * 5_000)
            ended.wait(60)

        writing = threads.submit(write_part, migrated.service_dsn, run_id, first, 0, slow())
        wait_for(lambda: fetch(migrated.owner_dsn, WRITTEN, f"rollup_rows_{first.partition}") == [(1,)])
        assert runs.fail(run_id, "away")
        second = begin(runs, run_id)
        assert second.partition != first.partition
        assert partitions(migrated) == {first.partition: run_id, second.partition: run_id}
        write_part(migrated.service_dsn, run_id, second, 0, lines(run_id, second, 0, [{"n": 2}]))
        assert runs.complete(run_id).rows == 1
        ended.set()
        # The part is there by now: that of the second attempt.
        assert writing.result(60) == 1
    runs.purge(JOB)
    assert partitions(migrated) == {first.partition: None, second.partition: run_id}
    assert sizes(migrated)[first.partition - 1] == 0
    assert fetch(migrated.owner_dsn, "SELECT item FROM rollup_rows") == [({"n": 2},)]


# The statements of a release that knows of no partitions.
EARLIER_BEGIN: Final = """
INSERT INTO rollup_runs (id, cluster, job, state, as_of, position, principal)
VALUES (%(id)s, 'payments', 'activity', 'running', now(), '{}', 'User:olga')
ON CONFLICT (id) DO UPDATE SET state = 'running', attempt = rollup_runs.attempt + 1
"""
EARLIER_ROWS: Final = """
INSERT INTO rollup_rows (run_id, part, ordinal, entity_id, item)
SELECT %(id)s, 0, n, NULL, jsonb_build_object('n', n) FROM generate_series(0, 9) AS n
"""
EARLIER_PART: Final = "INSERT INTO rollup_parts (run_id, part, row_count) VALUES (%(id)s, 0, 10)"
EARLIER_END: Final = "UPDATE rollup_runs SET state = 'complete', finished_at = now(), row_count = 10 WHERE id = %(id)s"
EARLIER_READ: Final = """
SELECT item FROM rollup_rows WHERE run_id = %(id)s AND (part, ordinal) > (-1, -1) ORDER BY part, ordinal LIMIT 25000
"""
EARLIER_DROP: Final = (
    "DELETE FROM rollup_rows WHERE run_id = %(id)s",
    "DELETE FROM rollup_parts WHERE run_id = %(id)s",
    "DELETE FROM rollup_runs WHERE id = %(id)s",
)
TEN: Final = [{"n": number} for number in range(10)]


def earlier(dsn: str, run_id: UUID, *statements: str) -> list[Any]:
    """Run statements of an earlier release in a transaction, and return the items that the last one found."""
    with psycopg.connect(dsn) as connection:
        for statement in statements:
            cursor = connection.execute(statement, {"id": run_id})
        return [item for (item,) in cursor] if cursor.description else []


async def test_an_earlier_release_next_to_this_one_reads_writes_and_removes(
    runs: RollupRuns, rollups: PostgresRollups, migrated: servers.Database
) -> None:
    dsn = migrated.service_dsn
    ours = publish(runs, dsn, [TEN])
    assert earlier(dsn, ours, EARLIER_READ) == TEN
    theirs = uuid7()
    assert earlier(dsn, theirs, EARLIER_BEGIN, EARLIER_ROWS, EARLIER_PART, EARLIER_END, EARLIER_READ) == TEN
    assert await all_rows(rollups, theirs) == TEN
    assert await rollups.count(theirs, {"n": 3}) == runs.count(theirs, {"n": 3}) == 1
    # Each removes what the other wrote.
    earlier(dsn, ours, *EARLIER_DROP)
    assert await rollups.rows(RowQuery(ours, 10)) is None
    assert partitions(migrated) == {1: ours}
    assert runs.purge(JOB, keep=0, keep_s=0) == [theirs]
    assert count(migrated.owner_dsn, "rollup_rows") == 0
    assert partitions(migrated) == {1: None}
    # A run that this release began and the earlier one makes again: its rows are where the earlier one put them.
    again = uuid7()
    begin(runs, again)
    earlier(dsn, again, EARLIER_BEGIN, EARLIER_ROWS, EARLIER_PART, EARLIER_END)
    assert await all_rows(rollups, again) == TEN
    assert runs.sweep(JOB) == []
    assert partitions(migrated) == {1: None}


def migrated_to(database: servers.Database, revision: str) -> None:
    """Bring a database to a revision, and leave its rights as they are."""
    engine = create_engine(make_url(database.owner_dsn).set(drivername="postgresql+psycopg"), poolclass=NullPool)
    config = migrate._config()
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        connection.commit()
    engine.dispose()


async def test_rows_of_before_the_migration_stay_and_no_reader_waits_for_it(database: servers.Database) -> None:
    migrated_to(database, "0017")
    run(database.owner_dsn, "GRANT ALL ON ALL TABLES IN SCHEMA public TO confplane")
    old, lost, dsn = uuid7(), uuid7(), database.service_dsn
    earlier(dsn, old, EARLIER_BEGIN, EARLIER_ROWS, EARLIER_PART, EARLIER_END)
    earlier(dsn, lost, EARLIER_BEGIN, EARLIER_ROWS)
    with psycopg.connect(dsn) as writing:
        writing.execute(EARLIER_ROWS, {"id": lost})
        # It gives up waiting for that writer, and another run of it begins where this one ended.
        with pytest.raises(Exception, match="lock timeout"):
            migrate.upgrade(database.owner_dsn, "confplane")
        assert earlier(dsn, old, EARLIER_READ) == TEN
    migrated_to(database, "0018")
    # The rights passed to the new table with it, before those of this release were given.
    assert earlier(dsn, old, EARLIER_READ) == TEN
    granted = "SELECT has_table_privilege('confplane', %s, 'SELECT')"
    assert [fetch(database.owner_dsn, granted, f"rollup_rows{of}") for of in ("", "_0")] == [[(True,)], [(False,)]]
    migrate.upgrade(database.owner_dsn, "confplane")
    assert earlier(dsn, old, EARLIER_READ) == TEN
    runs, pool = RollupRuns(dsn, "payments"), Database(dsn, 2)
    try:
        rollups = PostgresRollups(pool)
        assert await all_rows(rollups, old) == TEN
        current = runs.current(JOB)
        assert current is not None
        assert (current.id, current.state) == (old, RunState.COMPLETE)
        assert runs.sweep(JOB) == [lost]
        assert count(database.owner_dsn, "rollup_rows") == 10
        ours = publish(runs, dsn, [TEN], minutes=60 * 24 * 365 * 10)
        assert await all_rows(rollups, ours) == TEN
    finally:
        await pool.close()
