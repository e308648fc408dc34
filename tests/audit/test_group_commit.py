from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

import orjson
import psycopg
import pytest

from confplane.audit import Database, PostgresAuditLog
from confplane.audit.group_commit import GroupCommitOptions, WritePartition
from confplane.services.ports.trail import AuditQuery, Claim
from tests.audit.proxy import Proxy
from tests.audit.rows import committed, count, entity, fetch, intent
from tests.support.waiting import until

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from confplane.services.ports.trail import Intent
    from tests.support import servers


async def test_concurrent_calls_share_their_statements(
    log: PostgresAuditLog, statements: list[object], migrated: servers.Database
) -> None:
    intents = [intent() for _ in range(500)]
    await asyncio.gather(*(log.intend([one]) for one in intents))
    assert len(statements) == 2  # of at most 256 rows
    assert all(await asyncio.gather(*(log.conclude([committed(one)]) for one in intents)))
    assert len(statements) == 4
    assert count(migrated.owner_dsn, "intents") == count(migrated.owner_dsn, "outcomes") == 500


async def test_one_bad_row_among_500_fails_only_its_own_call(log: PostgresAuditLog, migrated: servers.Database) -> None:
    intents = [intent() for _ in range(500)]
    intents[317] = intent(None, entity(before={"key": "a NUL \0 in it"}))
    answers = await asyncio.gather(*(log.intend([one]) for one in intents), return_exceptions=True)
    assert [index for index, answer in enumerate(answers) if answer is not None] == [317]
    assert isinstance(answers[317], psycopg.errors.UntranslatableCharacter)
    stored = {row[0] for row in fetch(migrated.owner_dsn, "SELECT change_id FROM intents")}
    assert stored == {one.change_id for one in intents} - {intents[317].change_id}


async def test_a_row_that_is_no_json_fails_its_own_call(log: PostgresAuditLog, migrated: servers.Database) -> None:
    good, bad = intent(), intent(reason="a lone surrogate \ud800")
    answers = await asyncio.gather(log.intend([bad]), log.intend([good]), return_exceptions=True)
    assert isinstance(answers[0], TypeError)
    assert answers[1] is None
    assert fetch(migrated.owner_dsn, "SELECT change_id FROM intents") == [(good.change_id,)]


async def test_a_bad_outcome_does_not_fail_the_rest_of_its_call(
    log: PostgresAuditLog, migrated: servers.Database, caplog: pytest.LogCaptureFixture
) -> None:
    intents = [intent() for _ in range(5)]
    outcomes = [committed(one) for one in intents]
    outcomes[2] = committed(intents[2], revision=None)
    assert not await log.conclude(outcomes)
    assert "ck_outcomes_committed_is_whole" in caplog.text
    assert log.kept == 0
    assert count(migrated.owner_dsn, "outcomes") == 4


async def test_a_caller_who_is_cancelled_leaves_the_others_alone(
    log: PostgresAuditLog, migrated: servers.Database
) -> None:
    calls = [asyncio.create_task(log.intend([intent()])) for _ in range(20)]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[::2])
    assert answers[1::2] == [None] * 10
    # Those who gave up had handed their rows over.
    assert count(migrated.owner_dsn, "intents") == 20


async def test_an_intent_of_many_entities_above_the_size_of_a_batch_is_written_whole(
    log: PostgresAuditLog, migrated: servers.Database
) -> None:
    big = intent(None, *(entity(f"user=u{number}") for number in range(1000)))
    many = [intent() for _ in range(600)]
    await asyncio.gather(log.intend([big]), log.intend(many))
    assert count(migrated.owner_dsn, "intents") == 601
    positions = fetch(
        migrated.owner_dsn,
        "SELECT position, entity_id FROM intent_entities WHERE change_id = %s ORDER BY position",
        big.change_id,
    )
    assert positions == [(number, f"user=u{number}") for number in range(1000)]


async def test_what_is_sent_twice_stands_once(log: PostgresAuditLog, migrated: servers.Database) -> None:
    one = intent(None, entity("user=a"), entity("user=b"))
    await log.intend([one])
    await log.intend([one, one])
    assert await log.conclude([committed(one)])
    assert await log.conclude([committed(one), committed(one)])
    assert {table: count(migrated.owner_dsn, table) for table in ("intents", "intent_entities", "outcomes")} == {
        "intents": 1,
        "intent_entities": 2,
        "outcomes": 1,
    }


@pytest.mark.parametrize("claimed", [False, True])
async def test_a_call_of_few_rows_does_not_wait_for_a_call_of_many(
    log: PostgresAuditLog, migrated: servers.Database, monkeypatch: pytest.MonkeyPatch, *, claimed: bool
) -> None:
    """The batches of many rows are held until the call of few rows has ended."""
    holding, held = asyncio.Event(), asyncio.Event()
    execute = WritePartition.execute

    async def hold(partition: WritePartition, statement: bytes, parameters: dict[str, str]) -> tuple[int, list[int]]:
        if len(orjson.loads(parameters["rows"])) > 1:
            holding.set()
            await held.wait()
        return await execute(partition, statement, parameters)

    monkeypatch.setattr(WritePartition, "execute", hold)

    def intend(count: int) -> asyncio.Task[None]:
        intents = [intent() for _ in range(count)]
        key = uuid4()
        claims = [Claim(key.hex, key, key, fresh=True, body="b", seconds=60.0, results=[]) for _ in intents]
        return asyncio.create_task(log.intend(intents, claims if claimed else ()))

    many = [intend(100) for _ in range(3)]
    await until(holding.is_set)
    single = intent()
    await log.intend([single])
    assert await log.conclude([committed(single)])
    assert not any(each.done() for each in many)
    held.set()
    await asyncio.gather(*many)
    assert count(migrated.owner_dsn, "intents") == 301


@pytest.mark.parametrize("pool", [7], indirect=True)
async def test_bulks_of_all_kinds_take_one_connection(
    pool: Database, lent: list[None], migrated: servers.Database
) -> None:
    """Writers take turns on it, also while each of their writers has more to write."""
    log = PostgresAuditLog(pool)
    intents = [[intent() for _ in range(200)] for _ in range(4)]
    await asyncio.gather(*map(log.intend, intents))
    more = [[intent() for _ in range(200)] for _ in range(4)]
    outcomes = [log.conclude([committed(one) for one in some]) for some in intents]
    concluded, _ = await asyncio.gather(asyncio.gather(*outcomes), asyncio.gather(*map(log.intend, more)))
    assert all(concluded)
    assert len(lent) == in_use(pool) == 1
    assert (count(migrated.owner_dsn, "intents"), count(migrated.owner_dsn, "outcomes")) == (1_600, 800)
    await log.close()
    assert in_use(pool) == 0


async def test_writers_of_a_small_pool_take_turns(migrated: servers.Database) -> None:
    """A pool of two serves the five lanes and the reads, with rows of all kinds and sizes under way."""
    pool = Database(migrated.service_dsn, 2)
    log = PostgresAuditLog(pool)
    intents = [[intent() for _ in range(size)] for size in (1, 100, 1, 200, 33, 32)]

    async def whole(some: list[Intent]) -> None:
        await log.intend(some)
        assert await log.conclude([committed(one) for one in some])
        assert await log.get(some[0].cluster, some[0].change_id) is not None

    await asyncio.gather(*map(whole, intents))
    assert count(migrated.owner_dsn, "outcomes") == sum(map(len, intents))
    assert in_use(pool) == 0
    await log.close()
    await pool.close()


@pytest.fixture
def lent(pool: Database, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One entry for each time that a writer borrowed a connection."""
    times: list[None] = []
    borrow = pool.borrow

    async def note() -> AsyncConnection:
        times.append(None)
        return await borrow()

    monkeypatch.setattr(pool, "borrow", note)
    return times


async def write(log: PostgresAuditLog, *, batches: int) -> None:
    await asyncio.gather(*(log.intend([intent()]) for _ in range(256 * (batches - 1) + 1)))


@pytest.mark.parametrize(("seconds", "borrowed"), [(1e9, 1), (0, 3)])
async def test_a_connection_is_kept_from_batch_to_batch_for_a_moment(
    pool: Database, lent: list[None], seconds: float, borrowed: int
) -> None:
    """The pool has as many as there are writers."""
    assert not pool.spare
    log = PostgresAuditLog(pool, options=GroupCommitOptions(shared_s=seconds))
    await write(log, batches=3)
    assert len(lent) == borrowed
    await write(log, batches=1)
    assert len(lent) == borrowed + 1
    await log.close()
    assert in_use(pool) == 0


@pytest.mark.parametrize("pool", [7], indirect=True)
async def test_where_each_writer_may_have_one_a_connection_is_kept_from_flush_to_flush(
    pool: Database, lent: list[None]
) -> None:
    log = PostgresAuditLog(pool)
    for _ in range(3):
        await write(log, batches=2)
    assert len(lent) == in_use(pool) == 1
    await log.conclude([committed(intent())])
    assert len(lent) == in_use(pool) == 2
    await log.close()
    assert in_use(pool) == 0


@pytest.mark.parametrize("pooled", [False, True])
async def test_a_statement_is_prepared_where_one_process_of_postgres_runs_all_of_a_connection(
    migrated: servers.Database, *, pooled: bool
) -> None:
    async with Proxy(migrated.service_dsn).running() as proxy:
        proxy.pooler = pooled
        pool = Database(proxy.dsn, 7)
        log = PostgresAuditLog(pool)
        for _ in range(3):
            await write(log, batches=1)
        cursor = log._intents._few._partition._cursor
        assert cursor is not None
        connection = cursor.connection
        assert (await prepared(connection) == []) is pooled
        await log.close()
        # It goes back to the pool, whose searches are planned each time.
        await log.search(AuditQuery("payments"))
        assert connection.prepare_threshold is None
        assert len(await prepared(connection)) == (0 if pooled else 1)
        await pool.close()
    assert count(migrated.owner_dsn, "intents") == 3


async def prepared(connection: psycopg.AsyncConnection) -> list[tuple[str]]:
    return await (await connection.execute("SELECT statement FROM pg_prepared_statements", prepare=False)).fetchall()


@pytest.mark.parametrize("pool", [7], indirect=True)
async def test_a_connection_that_is_kept_is_given_back_when_its_time_is_over(pool: Database, lent: list[None]) -> None:
    log = PostgresAuditLog(pool, options=GroupCommitOptions(kept_s=0.05))
    await write(log, batches=1)
    await until(lambda: in_use(pool) == 0)
    await write(log, batches=1)
    assert len(lent) == 2
    await log.close()


def in_use(pool: Database) -> float:
    [found] = [sample.value for sample in pool.metrics() if sample.name == "postgres_connections_in_use"]
    assert isinstance(found, int)
    return found


async def test_nothing_to_write_is_written_at_once(log: PostgresAuditLog, statements: list[object]) -> None:
    await log.intend([])
    assert await log.conclude([])
    assert statements == []
