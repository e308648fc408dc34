"""Runs of rollups: seen whole or not at all, whoever dies, is late, or writes a part twice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson
import psycopg
import pytest
from sqlalchemy import event
from uuid_utils.compat import uuid7

from confplane.audit import Database, PostgresRollups
from confplane.audit.rollup_parts import RunAttempt, RunGoneError, check_parts, write_part
from confplane.audit.rollup_runs import LOST, RollupRuns
from confplane.domain.errors import ConcurrentChangeError, UnavailableError
from confplane.services.ports.rollups import RowQuery, RunState
from tests.audit.proxy import Proxy
from tests.audit.rows import count, fetch, run
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from confplane.services.ports.rollups import Place
    from tests.support import servers

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
POSITION = {"floor": 2**40, "horizon": 2**40 + 7, "watermark": None, "registrations": 12}


def begin(
    runs: RollupRuns, run_id: UUID, job: str = "activity", *, minutes: int = 0, previous: UUID | None = None
) -> RunAttempt:
    begun = runs.begin(
        run_id,
        job,
        as_of=NOON + timedelta(minutes=minutes),
        position=POSITION,
        previous=previous,
        principal="User:olga",
    )
    assert isinstance(begun, RunAttempt)
    return begun


def lines(run_id: UUID, attempt: RunAttempt, part: int, items: list[dict[str, Any]]) -> Iterator[tuple[bytes, int]]:
    """Rows, two at a time."""
    for start in range(0, len(items), 2):
        piece = items[start : start + 2]
        text = "".join(
            f"{attempt.partition}\t{run_id}\t{part}\t{start + number}\t{item.get('entity_id', chr(92) + 'N')}\t{orjson.dumps(item).decode()}\n"
            for number, item in enumerate(piece)
        )
        yield text.encode(), len(piece)


def publish(
    runs: RollupRuns, dsn: str, parts: list[list[dict[str, Any]]], job: str = "activity", *, minutes: int = 0
) -> UUID:
    run_id = uuid7()
    with runs.held(run_id):
        attempt = begin(runs, run_id, job, minutes=minutes)
        rows = {
            part: write_part(dsn, run_id, attempt, part, lines(run_id, attempt, part, items))
            for part, items in enumerate(parts)
        }
        check_parts(dsn, run_id, rows)
        runs.complete(run_id)
    return run_id


async def all_rows(rollups: PostgresRollups, run_id: UUID, page_size: int = 3, **filters: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after: Place | None = None
    while True:
        page = await rollups.rows(RowQuery(run_id, page_size, after=after, **filters))
        assert page is not None
        assert len(page[0]) <= page_size
        found += page[0]
        after = page[1]
        if after is None:
            return found


async def test_a_run_is_seen_when_it_is_complete_and_all_at_once(
    rollups: PostgresRollups, runs: RollupRuns, migrated: servers.Database
) -> None:
    assert await rollups.runs("payments") == {}
    run_id = uuid7()
    parts = [[{"n": 1}, {"n": 2}, {"n": 3}], [{"n": 4}]]
    with runs.held(run_id):
        attempt = begin(runs, run_id)
        for part, items in enumerate(parts):
            assert write_part(migrated.service_dsn, run_id, attempt, part, lines(run_id, attempt, part, items)) == len(
                items
            )
            assert await rollups.run("payments", "activity") is None
            assert await rollups.run("payments", "activity", run_id) is None
            assert await rollups.rows(RowQuery(run_id, 10)) is None
        (found,) = (await rollups.runs("payments")).values()
        assert found.current is None
        assert found.latest is not None
        assert found.latest.state is RunState.RUNNING
        done = runs.complete(run_id)
    assert (done.state, done.rows, done.position) == (RunState.COMPLETE, 4, POSITION)
    assert done == await rollups.run("payments", "activity") == runs.current("activity")
    assert (await rollups.runs("payments"))["activity"].current == done
    assert await all_rows(rollups, run_id) == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]
    assert await rollups.run("other", "activity") is None
    assert await rollups.run("other", "activity", run_id) is None
    assert runs.parts(run_id) == [0, 1]
    # Whoever is late finds it done.
    with runs.held(run_id):
        again = runs.begin(run_id, "activity", as_of=NOON, position={}, previous=None, principal="User:olga")
    assert again == done
    assert runs.complete(run_id) == done
    runs.fail(run_id, "too late")
    assert await all_rows(rollups, run_id) == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]


async def test_the_latest_moment_is_current_regardless_of_which_run_ends_last(
    rollups: PostgresRollups, runs: RollupRuns, migrated: servers.Database
) -> None:
    newer = publish(runs, migrated.service_dsn, [[{"n": 2}]], minutes=5)
    older = publish(runs, migrated.service_dsn, [[{"n": 1}]], minutes=1)
    found = (await rollups.runs("payments"))["activity"]
    assert found.current is not None
    assert found.latest is not None
    assert (found.current.id, found.latest.id) == (newer, older)
    current = await rollups.run("payments", "activity")
    assert current is not None
    assert current.id == newer
    # Who was sent to it before still finds it.
    assert await all_rows(rollups, older) == [{"n": 1}]


async def test_a_part_that_is_written_twice_counts_once(
    rollups: PostgresRollups, runs: RollupRuns, migrated: servers.Database
) -> None:
    dsn = migrated.service_dsn
    run_id = uuid7()
    items = [{"n": number} for number in range(5)]
    with runs.held(run_id):
        attempt = begin(runs, run_id)
        assert write_part(dsn, run_id, attempt, 0, lines(run_id, attempt, 0, items)) == 5
        assert write_part(dsn, run_id, attempt, 0, lines(run_id, attempt, 0, items)) == 5
        # Side by side: both have written their rows before either of them commits.
        both = threading.Barrier(2, timeout=60)

        def met() -> Iterator[tuple[bytes, int]]:
            yield from lines(run_id, attempt, 1, items)
            both.wait()

        counts: list[int] = []
        attempts = [
            threading.Thread(target=lambda: counts.append(write_part(dsn, run_id, attempt, 1, met()))) for _ in range(2)
        ]
        for one in attempts:
            one.start()
        for one in attempts:
            one.join(60)
        assert counts == [5, 5]
        assert count(migrated.owner_dsn, "rollup_rows") == 10
        assert runs.complete(run_id).rows == 10
    assert len(await all_rows(rollups, run_id)) == 10


def test_a_part_of_a_run_that_was_given_up_leaves_nothing(runs: RollupRuns, migrated: servers.Database) -> None:
    run_id = uuid7()
    with runs.held(run_id):
        attempt = begin(runs, run_id)

        def given_up() -> Iterator[tuple[bytes, int]]:
            yield from lines(run_id, attempt, 0, [{"n": 1}])
            runs.fail(run_id, "no more")

        with pytest.raises(RunGoneError):
            write_part(migrated.service_dsn, run_id, attempt, 0, given_up())
        with pytest.raises(ConcurrentChangeError, match="given up"):
            runs.complete(run_id)
        # The same run again, while a task of before is still about.
        again = begin(runs, run_id)
        assert again.number == attempt.number + 1
        with pytest.raises(RunGoneError):
            write_part(migrated.service_dsn, run_id, attempt, 0, lines(run_id, attempt, 0, [{"n": 1}]))
        assert write_part(migrated.service_dsn, run_id, again, 0, lines(run_id, again, 0, [{"n": 2}])) == 1
        assert runs.complete(run_id).error is None
    assert fetch(migrated.owner_dsn, "SELECT item FROM rollup_rows") == [({"n": 2},)]


def test_rows_that_are_missing_are_noticed(runs: RollupRuns, migrated: servers.Database) -> None:
    run_id = uuid7()
    with runs.held(run_id):
        attempt = begin(runs, run_id)
        write_part(migrated.service_dsn, run_id, attempt, 0, lines(run_id, attempt, 0, [{"n": 1}]))
        check_parts(migrated.service_dsn, run_id, {0: 1})
        with pytest.raises(RuntimeError, match="has 1 rows in 1 parts in Postgres, and 2 rows in 2 parts were written"):
            check_parts(migrated.service_dsn, run_id, {0: 1, 1: 1})


HOLDER = """
import sys, uuid
from datetime import datetime, UTC
from confplane.audit.rollup_runs import RollupRuns
from confplane.audit.rollup_parts import write_part
dsn, run_id = sys.argv[1], uuid.UUID(sys.argv[2])
runs = RollupRuns(dsn, "payments")
with runs.held(run_id):
    attempt = runs.begin(run_id, "activity", as_of=datetime.now(UTC), position={}, previous=None, principal="User:x")
    write_part(dsn, run_id, attempt, 0, [(f"{attempt.partition}\\t{run_id}\\t0\\t0\\t\\\\N\\t{{}}\\n".encode(), 1)])
    print("begun", flush=True)
    sys.stdin.read()
"""


async def test_a_killed_process_leaves_nothing_visible_and_the_next_run_cleans_up(
    rollups: PostgresRollups, runs: RollupRuns, migrated: servers.Database
) -> None:
    run_id = uuid7()
    with subprocess.Popen(  # noqa: ASYNC220 - all of it waits
        [sys.executable, "-c", HOLDER, migrated.service_dsn, str(run_id)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"begun\n"
            # As long as it lives nobody takes it for dead.
            assert runs.sweep("activity") == []
            with pytest.raises(ConcurrentChangeError, match="being made by another process"), runs.held(run_id):
                pass
            latest = (await rollups.runs("payments"))["activity"].latest
            assert latest is not None
            assert latest.state is RunState.RUNNING
        finally:
            holder.kill()
    assert count(migrated.owner_dsn, "rollup_rows") == 1

    async def lost() -> bool:
        latest = (await rollups.runs("payments"))["activity"].latest
        return latest is not None and latest.state is RunState.LOST

    await until(lost)
    assert await rollups.run("payments", "activity") is None
    assert runs.sweep("integrity") == []
    assert runs.sweep("activity") == [run_id]
    assert runs.sweep("activity") == []
    found = (await rollups.runs("payments"))["activity"].latest
    assert found is not None
    assert (found.state, found.error) == (RunState.FAILED, LOST)
    assert [count(migrated.owner_dsn, table) for table in ("rollup_rows", "rollup_parts")] == [0, 0]


def age(migrated: servers.Database) -> None:
    """All that was made so far ended two hours ago."""
    run(migrated.owner_dsn, "UPDATE rollup_runs SET finished_at = finished_at - interval '2 hours'")


async def test_old_runs_go_and_what_is_of_use_stays(
    rollups: PostgresRollups, runs: RollupRuns, migrated: servers.Database
) -> None:
    dsn = migrated.service_dsn
    made = [publish(runs, dsn, [[{"n": number}, {"n": -1}]], minutes=number) for number in range(5)]
    other = publish(runs, dsn, [[{"n": 1}]], "integrity", minutes=-60)
    failed = [uuid7() for _ in range(5)]
    for run_id in failed:
        begin(runs, run_id, minutes=9)
        runs.fail(run_id, "away")
    assert runs.purge("activity") == []
    age(migrated)
    fresh = publish(runs, dsn, [[{"n": 5}]], minutes=-9)
    under_way = uuid7()
    with runs.held(under_way):
        begin(runs, under_way, previous=made[0])
        assert set(runs.purge("activity")) == {made[1], *failed[:2]}
        runs.complete(under_way)
    assert runs.purge("activity") == [made[0]]
    assert runs.purge("activity") == []
    left = {row[0] for row in fetch(migrated.owner_dsn, "SELECT id FROM rollup_runs")}
    assert left == {*made[2:], fresh, other, *failed[2:], under_way}
    assert await rollups.rows(RowQuery(made[0], 10)) is None
    assert await all_rows(rollups, made[2]) == [{"n": 2}, {"n": -1}]
    assert {row[0] for row in fetch(migrated.owner_dsn, "SELECT DISTINCT run_id FROM rollup_rows")} == {
        *made[2:],
        fresh,
        other,
    }


async def test_rows_are_found_by_entity_and_by_members(
    pool: Database, runs: RollupRuns, migrated: servers.Database
) -> None:
    items = [
        {"n": number, "entity_id": f"user={'abc'[number % 3]}", "key": "xy"[number % 2], "of": ["a", "b"], "at": None}
        for number in range(30)
    ]
    run_id = publish(runs, migrated.service_dsn, [items[:13], [], items[13:]])
    for rollups in (PostgresRollups(pool), PostgresRollups(pool, window=4, max_examined=8)):
        for page_size in (1, 4, 100):
            found = await all_rows(rollups, run_id, page_size, entity_id="user=a")
            assert found == items[::3]
            found = await all_rows(rollups, run_id, page_size, members={"key": "y"})
            assert found == items[1::2]
            found = await all_rows(rollups, run_id, page_size, entity_id="user=b", members={"key": "x"})
            assert found == items[4::6]
            assert await all_rows(rollups, run_id, page_size, members={"n": 17}) == [items[17]]
            assert await all_rows(rollups, run_id, page_size) == items
    rollups = PostgresRollups(pool)
    for filters in (
        {"members": {"n": "17"}},
        {"entity_id": "user=d"},
        {"members": {"key": "\0"}},
        {"entity_id": "\ud800"},
    ):
        assert await all_rows(rollups, run_id, 10, **filters) == []
    assert await rollups.rows(RowQuery(uuid.uuid4(), 10)) is None
    # A page ends when enough was looked through, with nothing in it and yet not the last.
    few = PostgresRollups(pool, window=4, max_examined=8)
    assert await few.rows(RowQuery(run_id, 10, members={"n": 29})) == ([], (0, 7))


def test_postgres_away_or_not_migrated_says_what_to_do(database: servers.Database) -> None:
    with pytest.raises(UnavailableError, match="run `confplane migrate`"):
        RollupRuns(database.service_dsn, "payments").current("activity")
    nowhere = "postgresql://confplane:secret@127.0.0.1:1/confplane"
    with pytest.raises(UnavailableError) as refused, RollupRuns(nowhere, "payments").held(uuid7()):
        pass
    assert "secret" not in str(refused.value)


async def test_a_lost_reply_to_the_last_step_is_asked_for_again(runs: RollupRuns, migrated: servers.Database) -> None:
    run_id = uuid7()
    async with Proxy(migrated.service_dsn).running() as proxy:
        with runs.held(run_id):
            begin(runs, run_id)
            proxy.lose_reply_to(b"state = 'complete'")
            done = await asyncio.to_thread(RollupRuns(proxy.dsn, "payments").complete, run_id)
    assert proxy.lost == 1
    assert done == runs.find(run_id)
    assert done.state is RunState.COMPLETE


async def test_who_pages_through_a_large_run_reads_no_more_than_the_page_and_no_other_run(
    pool: Database, rollups: PostgresRollups, runs: RollupRuns, migrated: servers.Database
) -> None:
    dsn = migrated.service_dsn
    beside = publish(runs, dsn, [[{"n": 1}]])
    run_id = uuid7()
    with runs.held(run_id):
        attempt = begin(runs, run_id)
        text = "".join(f"{attempt.partition}\t{run_id}\t0\t{n}\tuser={n}\t{{}}\n" for n in range(20_000)).encode()
        assert write_part(dsn, run_id, attempt, 0, [(text, 20_000)]) == 20_000
        runs.complete(run_id)
    run(migrated.owner_dsn, "ANALYZE rollup_rows")
    noted: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        if "rollup_rows" in statement:
            noted.append((statement, parameters))

    event.listen(pool._engine.sync_engine, "before_cursor_execute", note)
    for filters in ({}, {"entity_id": "user=7"}, {"members": {"n": 3}}):
        await rollups.rows(RowQuery(run_id, 101, after=(0, 9_000), **filters))
    assert await rollups.count(run_id, {}) == 20_000
    assert len(noted) == 5  # the search reads two windows, up to the end of the run
    with psycopg.connect(dsn) as connection:
        plans = [
            "\n".join(row[0] for row in connection.execute(f"EXPLAIN ANALYZE {one}", given)) for one, given in noted
        ]
    *pages, counting = plans
    assert f"rollup_rows_{attempt.partition}" in counting
    # The rest of what the plan of the count names is known to be of no use before it is read.
    assert all("(never executed)" in line for line in counting.splitlines() if "Scan" in line and "_0" in line), (
        counting
    )
    others = {f"rollup_rows_{number}" for number in range(10)} - {f"rollup_rows_{attempt.partition}"}
    for plan in pages:
        assert "Index Scan" in plan, plan
        assert not any(other in plan for other in others), plan
    assert all("Sort" not in plan for plan in pages[:2]), pages
    assert await all_rows(rollups, beside) == [{"n": 1}]


def test_rows_that_are_no_json_are_refused_as_a_whole(runs: RollupRuns, migrated: servers.Database) -> None:
    run_id = uuid7()
    with runs.held(run_id):
        attempt = begin(runs, run_id)
        line = f"{attempt.partition}\t{run_id}\t0\t0\t\\N\t{{\n".encode()
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            write_part(migrated.service_dsn, run_id, attempt, 0, [(line, 1)])
    assert count(migrated.owner_dsn, "rollup_rows") == 0


async def test_rows_are_counted_by_their_members(
    rollups: PostgresRollups, runs: RollupRuns, migrated: servers.Database
) -> None:
    items = [{"n": number, "pending": number % 3 == 0} for number in range(7)]
    run_id = publish(runs, migrated.service_dsn, [items[:4], items[4:]])
    for members, expected in (({"pending": True}, 3), ({"pending": False}, 4), ({}, 7), ({"pending": "true"}, 0)):
        assert await rollups.count(run_id, members) == runs.count(run_id, members) == expected
    assert await rollups.count(uuid7(), {}) == 0
