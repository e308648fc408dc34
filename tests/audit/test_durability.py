"""The trail after a crash of Postgres: outcomes of commits may be lost until the proof for their markers was asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from uuid_utils.compat import uuid7

from confplane.audit import Database, PostgresAuditLog, PostgresOpenChanges, PostgresRequestKeys, open_changes
from confplane.domain.errors import UnavailableError
from confplane.services.ports.request_keys import StoredAnswer
from confplane.services.ports.trail import Claim
from tests.audit.rows import committed, fetch, intent, rejected
from tests.support import servers
from tests.support.forgetful import Forgetful, marked_by_reading
from tests.support.waiting import until_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from uuid import UUID

    from confplane.services.ports.trail import Intent


WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()"


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forgetful]:
    with Forgetful(tmp_path_factory.mktemp("forgetful")) as server:
        yield server


@pytest.fixture
def migrated(forgetful: Forgetful) -> servers.Database:
    """A database on that server."""
    return servers.make_migrated(forgetful)


@pytest.fixture(params=["server", "one backend"])
def crash(forgetful: Forgetful, request: pytest.FixtureRequest) -> Callable[[], None]:
    """Kills the server, or one of its processes; the server is back when it returns."""
    return forgetful.crash_backend if request.param == "one backend" else forgetful.crash_and_start


@pytest.fixture
def changes(pool: Database) -> PostgresOpenChanges:
    return PostgresOpenChanges(pool)


def outcomes(database: servers.Database) -> set[UUID]:
    return {change_id for (change_id,) in fetch(database.owner_dsn, "SELECT change_id FROM outcomes")}


async def intended(log: PostgresAuditLog, number: int = 1) -> list[Intent]:
    """Changes with an intent, durable as every intent is."""
    intents = [intent() for _ in range(number)]
    await log.intend(intents)
    return intents


async def test_the_outcome_of_a_commit_is_shown_at_once_and_lost_with_a_crash(
    forgetful: Forgetful, log: PostgresAuditLog, migrated: servers.Database, crash: Callable[[], None]
) -> None:
    forgetful.hold_back()
    [done] = await intended(log)
    assert await log.conclude([committed(done)])
    assert outcomes(migrated) == {done.change_id}
    crash()
    assert outcomes(migrated) == set()
    assert fetch(migrated.owner_dsn, "SELECT change_id FROM intents") == [(done.change_id,)]
    # What is lost so is found again by the marker, and written again.
    assert await log.conclude([committed(done)])
    assert outcomes(migrated) == {done.change_id}


async def test_an_outcome_without_a_complete_marker_is_durable_at_once(
    forgetful: Forgetful, log: PostgresAuditLog, migrated: servers.Database, crash: Callable[[], None]
) -> None:
    """Outcomes of the same statement and earlier outcomes become durable with it."""
    forgetful.hold_back()
    before, refused, beside, remade = await intended(log, 4)
    assert await log.conclude([committed(before)])
    assert await log.conclude([committed(beside), rejected(refused)])
    crash()
    assert outcomes(migrated) == {before.change_id, beside.change_id, refused.change_id}
    forgetful.hold_back()
    assert await log.conclude([committed(remade, remade={"/config/user=alice": 7})])
    crash()
    assert remade.change_id in outcomes(migrated)


async def test_outcomes_found_by_a_scan_for_markers_are_durable(
    forgetful: Forgetful,
    log: PostgresAuditLog,
    changes: PostgresOpenChanges,
    migrated: servers.Database,
    crash: Callable[[], None],
) -> None:
    forgetful.hold_back()
    done, later = await intended(log, 2)
    assert await log.conclude([committed(done)])
    [known] = await changes.marked([done.change_id])
    assert known.committed
    assert await log.conclude([committed(later)])
    crash()
    assert outcomes(migrated) == {done.change_id}


async def test_to_have_read_an_outcome_proves_nothing(
    forgetful: Forgetful,
    log: PostgresAuditLog,
    changes: PostgresOpenChanges,
    migrated: servers.Database,
    crash: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look that writes nothing of its own shows an outcome which is lost later."""
    monkeypatch.setattr(open_changes, "MARKED", marked_by_reading())
    forgetful.hold_back()
    [done] = await intended(log)
    assert await log.conclude([committed(done)])
    [known] = await changes.marked([done.change_id])
    assert known.committed
    crash()
    assert outcomes(migrated) == set()


async def test_a_stored_answer_is_durable_and_the_outcome_with_it(
    forgetful: Forgetful, pool: Database, log: PostgresAuditLog, migrated: servers.Database, crash: Callable[[], None]
) -> None:
    forgetful.hold_back()
    done, key = intent(), uuid7()
    await log.intend([done], [Claim("k", key, key, fresh=True, body="b", seconds=60.0, results=[])])
    assert await log.conclude([committed(done)])
    assert await PostgresRequestKeys(pool).store(key, key, StoredAnswer(200, {}, "{}"))
    crash()
    assert outcomes(migrated) == {done.change_id}
    assert fetch(migrated.owner_dsn, "SELECT id, status FROM request_keys") == [(key, 200)]


async def test_a_server_that_lost_something_is_another_run_and_one_that_stopped_in_order_too(
    forgetful: Forgetful, changes: PostgresOpenChanges, crash: Callable[[], None]
) -> None:
    _, first = await changes.new("payments", None, ())
    _, again = await changes.new("payments", first, ())
    assert again.server == first.server
    crash()
    _, after = await changes.new("payments", again, ())
    assert after.server != first.server
    forgetful.stop()
    forgetful.start()
    _, last = await changes.new("payments", after, ())
    assert last.server != after.server


async def test_an_intent_that_is_sent_again_is_waited_for_as_the_first_time(tmp_path: Path) -> None:
    """After a crash its first try is seen, though the standby lacks it: the second one finds its row."""
    one = intent()
    with Forgetful(tmp_path / "server") as server:
        database = servers.make_migrated(server)
        with server.with_standby(tmp_path / "standby") as standby:
            pool = Database(database.service_dsn, 4)
            log = PostgresAuditLog(pool)
            standby.cut_off()
            writing = asyncio.create_task(log.intend([one]))
            await until_thread(lambda: server.query(WAITING, database.name) == "1")
            await asyncio.to_thread(server.crash_backend)
            with pytest.raises(UnavailableError):
                await writing
            assert fetch(database.owner_dsn, "SELECT change_id FROM intents") == [(one.change_id,)]
            assert standby.query("SELECT count(*) FROM intents", database.name) == "0"
            await log.close()
            await pool.close()
