"""Postgres that goes away, freezes, comes back, and loses replies. Nothing here restarts the service."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest
from sqlalchemy import exc, text

from confplane.audit import Database, PostgresAuditLog, faults, migrate
from confplane.audit.database import driver_connection
from confplane.audit.group_commit import GroupCommitOptions
from confplane.devstack.postgres import OWNER, Postgres
from confplane.domain.errors import UnavailableError, WriteOutcome
from confplane.services.ports.trail import AuditQuery
from tests.audit.proxy import Proxy
from tests.audit.rows import committed, count, intent, rejected, run
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.support import servers

EVENTUALLY_S = 60
"""Seconds after which a test gives up; the events awaited take a second or two."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A Postgres that tests may stop and freeze; each leaves it running."""
    with Postgres(tmp_path_factory.mktemp("own"), durable=False) as server:
        migrate.upgrade(server.dsn(OWNER), "confplane")
        yield server


@asynccontextmanager
async def log_on(dsn: str, options: GroupCommitOptions = GroupCommitOptions()) -> AsyncIterator[PostgresAuditLog]:  # noqa: B008 - frozen
    pool = Database(dsn, 4)
    await pool.start()
    log = PostgresAuditLog(pool, options=options)
    try:
        yield log
    finally:
        await log.close()
        await pool.close()


@contextmanager
def frozen(server: Postgres) -> Iterator[None]:
    """All processes of the server are stopped: connections are accepted by the kernel and nobody answers."""
    postmaster = psutil.Process(int((server.data_dir / "data" / "postmaster.pid").read_text().split()[0]))
    processes = [postmaster, *postmaster.children()]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGCONT)


async def eventually_buffered(log: PostgresAuditLog, number: int) -> None:
    await until(lambda: log.kept == number and (log._resending is None or log._resending.done()))


async def test_a_lost_reply_is_sent_again_and_stands_once(migrated: servers.Database) -> None:
    async with Proxy(migrated.service_dsn).running() as proxy, log_on(proxy.dsn) as log:
        one = intent()
        proxy.lose_reply_to(b"INSERT INTO intents")
        await log.intend([one])
        proxy.lose_reply_to(b"INSERT INTO outcomes")
        assert await log.conclude([committed(one)])
        assert proxy.lost == 2
        record = await log.get(one.cluster, one.change_id)
        assert record is not None
        assert (record.intent, record.outcome) == (one, committed(one))
        assert count(migrated.owner_dsn, "intents") == count(migrated.owner_dsn, "outcomes") == 1
        proxy.lose_reply_to(b"SELECT")
        assert await log.get(one.cluster, one.change_id) == record
        assert proxy.lost == 3


async def test_connections_that_the_server_ended_are_replaced_unnoticed(
    log: PostgresAuditLog, migrated: servers.Database, postgres: Postgres
) -> None:
    await asyncio.gather(*(log.intend([intent()]) for _ in range(5)))
    for _ in range(3):
        postgres.query(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{migrated.name}'")  # noqa: S608 - a name made here
        await log.intend([intent()])
        postgres.query(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{migrated.name}'")  # noqa: S608 - a name made here
        assert len((await log.search(AuditQuery("payments")))[0]) >= 5
    assert count(migrated.owner_dsn, "intents") == 8


async def test_a_stopped_server_refuses_writes_keeps_outcomes_and_recovers_by_itself(server: Postgres) -> None:
    async with log_on(server.dsn()) as log:
        before = [intent() for _ in range(300)]
        await log.intend(before)
        server.stop()
        try:
            with pytest.raises(UnavailableError, match="nothing was changed") as refused:
                await log.intend([intent()])
            assert refused.value.outcome is WriteOutcome.NOT_APPLIED
            assert refused.value.retry_after_s == 2
            assert not any(await asyncio.gather(*(log.conclude([committed(one)]) for one in before)))
            assert log.kept == 300
            with pytest.raises(UnavailableError):
                await log.search(AuditQuery("payments"))
            with pytest.raises(UnavailableError):
                await log.check()
        finally:
            server.start()
        await eventually_buffered(log, 0)
        for one in before:
            record = await log.get(one.cluster, one.change_id)
            assert record is not None
            assert record.outcome == committed(one)
        await log.intend([intent()])


async def test_a_start_without_the_server_recovers_by_itself(server: Postgres) -> None:
    server.stop()
    try:
        async with log_on(server.dsn()) as log:
            with pytest.raises(UnavailableError):
                await log.intend([intent()])
            server.start()
            await log.intend([intent()])
            assert await log.check() == []
    finally:
        server.start()


async def test_a_frozen_server_makes_calls_fail_and_thaws_unnoticed(server: Postgres) -> None:
    async with log_on(server.dsn()) as log:
        one = intent()
        await log.intend([one])
        async with asyncio.timeout(EVENTUALLY_S):
            with frozen(server):
                # The connection in the pool is frozen; then connecting is.
                for _ in range(2):
                    with pytest.raises(UnavailableError) as refused:
                        await log.intend([intent()])
                    assert refused.value.outcome is WriteOutcome.NOT_APPLIED
                assert not await log.conclude([committed(one)])
                with pytest.raises(UnavailableError):
                    await log.get(one.cluster, one.change_id)
            await eventually_buffered(log, 0)
        record = await log.get(one.cluster, one.change_id)
        assert record is not None
        assert record.outcome == committed(one)
        await log.intend([intent()])


async def test_a_restart_quicker_than_the_patience_goes_unnoticed(server: Postgres) -> None:
    options = GroupCommitOptions(patience_s=float(EVENTUALLY_S), pauses_s=(0.1,) * 10 * EVENTUALLY_S)
    async with log_on(server.dsn(), options) as log:
        await log.intend([intent()])
        server.stop()
        try:
            writing = asyncio.create_task(log.intend([intent()]))
            await asyncio.wait({writing}, timeout=0.5)
            assert not writing.done()
        finally:
            server.start()
        await writing


async def test_a_locked_table_delays_an_outcome_and_loses_nothing(
    log: PostgresAuditLog, migrated: servers.Database
) -> None:
    one = intent()
    await log.intend([one])
    with psycopg.connect(migrated.owner_dsn) as other:
        other.execute("LOCK TABLE outcomes")
        assert not await log.conclude([committed(one)])
        assert log.kept == 1
    await eventually_buffered(log, 0)
    assert count(migrated.owner_dsn, "outcomes") == 1


async def test_buffered_outcomes_are_bounded_and_a_bad_one_does_not_hold_up_the_rest(
    pool: Database, migrated: servers.Database, caplog: pytest.LogCaptureFixture
) -> None:
    log = PostgresAuditLog(pool, most_kept=5)
    intents = [intent() for _ in range(8)]
    await log.intend(intents)
    outcomes = [committed(one) for one in intents]
    outcomes[6] = committed(intents[6], revision=None)
    run(migrated.owner_dsn, "REVOKE INSERT ON outcomes FROM confplane")
    for one in outcomes:
        assert not await log.conclude([one])
    assert log.kept == 5
    assert "1 kept outcomes were dropped" in caplog.text
    run(migrated.owner_dsn, "GRANT INSERT ON outcomes TO confplane")
    await eventually_buffered(log, 0)
    assert count(migrated.owner_dsn, "outcomes") == 4
    assert "Postgres refused a kept outcome" in caplog.text
    await log.close()


async def test_a_connection_that_is_returned_to_a_closed_pool_is_closed(migrated: servers.Database) -> None:
    pool = Database(migrated.service_dsn, 4)
    async with pool.connection(EVENTUALLY_S) as in_use:
        raw = await driver_connection(in_use)
        await pool.close()
        await in_use.execute(text("SELECT 1"))
    assert raw.closed
    async with pool.connection(EVENTUALLY_S) as opened_later:
        raw = await driver_connection(opened_later)
        await opened_later.execute(text("SELECT 1"))
    assert raw.closed


async def test_closing_writes_buffered_outcomes(migrated: servers.Database) -> None:
    one = intent()
    async with log_on(migrated.service_dsn) as log:
        await log.intend([one])
        run(migrated.owner_dsn, "REVOKE INSERT ON outcomes FROM confplane")
        assert not await log.conclude([rejected(one)])
        run(migrated.owner_dsn, "GRANT INSERT ON outcomes TO confplane")
    assert count(migrated.owner_dsn, "outcomes") == 1


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (psycopg.errors.AdminShutdown(), True),
        (psycopg.errors.CannotConnectNow(), True),
        (psycopg.errors.ConnectionFailure(), True),
        (psycopg.errors.ReadOnlySqlTransaction(), True),
        (psycopg.errors.DeadlockDetected(), True),
        (psycopg.OperationalError("connection refused"), True),
        (ConnectionRefusedError(), True),
        (psycopg.errors.QueryCanceled(), False),
        (psycopg.errors.LockNotAvailable(), False),
        (psycopg.errors.DiskFull(), False),
        (psycopg.errors.TooManyConnections(), False),
        (psycopg.errors.InvalidPassword(), False),
        (psycopg.errors.UndefinedTable(), False),
        (psycopg.errors.InsufficientPrivilege(), False),
        (exc.TimeoutError(), False),
        (TimeoutError(), False),
    ],
)
def test_faults_of_the_server_are_distinguished_from_those_of_the_data(error: Exception, *, again: bool) -> None:
    fault = faults.classify(error)
    assert fault is not None
    assert fault.again is again
    wrapped = faults.classify(exc.DBAPIError("INSERT", {}, error)) if isinstance(error, psycopg.Error) else fault
    assert wrapped == fault


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (psycopg.errors.AdminShutdown(), 2),
        (psycopg.errors.DiskFull(), 10),
        (psycopg.errors.InvalidPassword(), 30),
        (psycopg.errors.UndefinedTable(), 30),
    ],
)
def test_callers_are_told_when_to_try_again(error: Exception, seconds: int) -> None:
    fault = faults.classify(error)
    assert fault is not None
    assert faults.unavailable(fault).retry_after_s == seconds


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.UntranslatableCharacter(),
        psycopg.errors.CheckViolation(),
        psycopg.errors.NumericValueOutOfRange(),
        psycopg.errors.SyntaxError(),
        ValueError(),
    ],
)
def test_all_else_is_no_fault_of_the_server(error: Exception) -> None:
    assert faults.classify(error) is None
