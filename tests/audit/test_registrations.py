from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from confplane.audit import Database, PostgresRegistrationLog
from confplane.audit.registration_view import MAX_PER_ENTITY, RegistrationView, SoftwareVersion
from confplane.audit.registrations import RegistrationBudget
from confplane.audit.write_behind_buffer import WriteBehindOptions
from confplane.domain.errors import InvalidRequestError, UnavailableError
from confplane.services.ports.registrations import ClientRegistration
from tests.audit.rows import count, fetch, run
from tests.support.alerts import PartAlerts
from tests.support.clock import Clock
from tests.support.metrics import value_of
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support import servers

EVENTUALLY_S = 60
DAY_S = 86_400
NOON = 20_000.5 * DAY_S
QUICK = WriteBehindOptions(write_interval_s=0.05, read_interval_s=0.05)


def registration(
    entity_id: str = "user=alice", version: str = "1.0", *configs: str, **overrides: Any
) -> ClientRegistration:
    given: dict[str, Any] = {
        "cluster": "payments",
        "entity_id": entity_id,
        "software_name": "librdkafka",
        "software_version": version,
        "supported_configs": configs or ("acks",),
    }
    return ClientRegistration(**{**given, **overrides})


@asynccontextmanager
async def running(
    database: servers.Database, buffer_options: WriteBehindOptions = QUICK, **options: Any
) -> AsyncIterator[PostgresRegistrationLog]:
    pool = Database(database.service_dsn, 4)
    log = PostgresRegistrationLog(pool, options=buffer_options, **options)
    await log.start()
    try:
        yield log
    finally:
        await log.close()
        await pool.close()


async def found(log: PostgresRegistrationLog, **filters: Any) -> list[tuple[ClientRegistration, datetime, datetime]]:
    page, cursor = await log.search(
        **{"cluster": "payments", "entity_id": None, "page_size": 100, "after": None, **filters}
    )
    assert cursor is None
    return page


async def written(log: PostgresRegistrationLog) -> None:
    await until(lambda: log.loaded)
    await log._buffer.flush()


async def test_a_registration_is_answered_at_once_and_written_once(migrated: servers.Database) -> None:
    async with running(migrated) as log:
        for _ in range(1000):
            log.record(registration())
        log.record(registration("user=alice", "0.9", "acks", "session.timeout.ms"))
        log.record(registration("user=bob"))
        assert log.compatibility("payments", "user=alice") == [
            registration("user=alice", "0.9", "acks", "session.timeout.ms"),
            registration(),
        ]
        assert log.compatibility("other", "user=alice") == []
        await written(log)
        assert {one for one, _, _ in await found(log)} == {
            registration(),
            registration("user=alice", "0.9", "acks", "session.timeout.ms"),
            registration("user=bob"),
        }
    assert count(migrated.owner_dsn, "registrations") == 3


async def test_it_is_written_again_only_on_another_day_to_keep_first_and_last_seen(
    migrated: servers.Database,
) -> None:
    clock = Clock(NOON)
    async with running(migrated, clock=clock) as log:
        for seconds in (0, 60, 3_600, DAY_S, DAY_S + 60, 3 * DAY_S, 3 * DAY_S - 60):
            clock.now = NOON + seconds
            log.record(registration())
        await written(log)
        assert await found(log) == [
            (registration(), datetime.fromtimestamp(NOON, UTC), datetime.fromtimestamp(NOON + 3 * DAY_S, UTC))
        ]
    assert count(migrated.owner_dsn, "registrations") == 3


async def test_a_restart_knows_what_was_registered(migrated: servers.Database) -> None:
    clock = Clock(NOON)
    async with running(migrated, clock=clock) as log:
        for number in range(1200):
            log.record(registration(f"user=u{number:04}"))
        await log.clear("payments", entity_id="user=u0007", principal="User:admin", request_id="r")
    async with running(migrated, clock=clock) as log:
        await until(lambda: log.loaded)
        assert log.compatibility("payments", "user=u1199") == [registration("user=u1199")]
        assert log.compatibility("payments", "user=u0007") == []
        for number in range(1200):
            log.record(registration(f"user=u{number:04}"))
    events = fetch(migrated.owner_dsn, "SELECT event, count(*) FROM registrations GROUP BY event ORDER BY event")
    assert events == [("cleared", 1), ("seen", 1201)]


async def test_two_replicas_see_each_other_and_write_a_row_of_the_day_once(migrated: servers.Database) -> None:
    clock = Clock(NOON)
    # The second is slow to read: it does not know yet what the first one wrote.
    async with (
        running(migrated, clock=clock) as one,
        running(migrated, clock=clock, buffer_options=replace(QUICK, read_interval_s=600)) as other,
    ):
        await until(lambda: one.loaded and other.loaded)
        one.record(registration())
        await written(one)
        other.record(registration())
        other.record(registration("user=bob"))
        await written(other)
        await until(lambda: one.compatibility("payments", "user=bob"))
        assert count(migrated.owner_dsn, "registrations") == 2


async def test_clearing_hides_says_how_many_and_who_did_it(migrated: servers.Database) -> None:
    async with running(migrated) as one, running(migrated) as other:
        for name in ("user=a", "user=b", "user=c"):
            one.record(registration(name, "1.0"))
            one.record(registration(name, "2.0"))
        one.record(registration("user=a", cluster="other"))
        # What is pending is written first, and hidden too.
        assert await one.clear("payments", entity_id="user=a", principal="User:admin", request_id="r-1") == 2
        assert one.compatibility("payments", "user=a") == []
        assert [len(await found(one, entity_id=name)) for name in ("user=a", "user=b")] == [0, 2]
        await until(lambda: other.compatibility("payments", "user=c"))
        assert await other.clear("payments", entity_id=None, principal="User:ops", request_id="r-2") == 4
        assert other.compatibility("payments", "user=c") == []
        await until(lambda: not one.compatibility("payments", "user=c"))
        assert await found(one) == []
        assert await one.clear("payments", entity_id=None, principal="User:ops", request_id="r-3") == 0
        assert one.compatibility("other", "user=a") == [registration("user=a", cluster="other")]
        # Seen again, it counts again.
        one.record(registration("user=a"))
        await written(one)
        assert [one_ for one_, _, _ in await found(other)] == [registration("user=a")]
    cleared = "SELECT entity_id, principal, request_id FROM registrations WHERE event = 'cleared' ORDER BY id"
    assert fetch(migrated.owner_dsn, cleared) == [
        ("user=a", "User:admin", "r-1"),
        (None, "User:ops", "r-2"),
        (None, "User:ops", "r-3"),
    ]


async def test_pages_are_in_order_whatever_their_size(migrated: servers.Database) -> None:
    async with running(migrated) as log:
        everything = sorted(
            (
                registration(entity_id, version, *configs)
                for entity_id in (
                    "user",
                    "user=a",
                    "user=a,client-id",
                    "user=a,client-id=Ab",
                    "user=a,client-id=~C3~BC",
                )
                for version in ("1.0", "1.10", "ü")
                for configs in (("acks",), ("acks", "session.timeout.ms"))
            ),
            key=lambda one: (one.entity_id, one.software_version, one.supported_configs),
        )
        for one in everything:
            log.record(one)
        for entity_id in ("user=0", "user=b", "user=c"):
            log.record(registration(entity_id))
        await written(log)
        for entity_id in ("user=0", "user=b", "user=c"):
            await log.clear("payments", entity_id=entity_id, principal="p", request_id="r")
        for page_size in (1, 2, 7, 30, 100):
            pages: list[ClientRegistration] = []
            after = None
            while True:
                page, after = await log.search("payments", entity_id=None, page_size=page_size, after=after)
                assert len(page) <= page_size
                pages += [one for one, _, _ in page]
                if after is None:
                    break
            assert pages == everything
        of_one = [one for one in everything if one.entity_id == "user=a"]
        page, after = await log.search("payments", entity_id="user=a", page_size=4, after=None)
        rest, end = await log.search("payments", entity_id="user=a", page_size=4, after=after)
        assert [one for one, _, _ in page + rest] == of_one
        assert end is None


async def test_a_page_that_meets_nothing_but_cleared_entities_has_a_cursor(migrated: servers.Database) -> None:
    async with running(migrated) as log:
        for number in range(60):
            log.record(registration(f"user=u{number:03}"))
        assert await log.clear("payments", entity_id=None, principal="p", request_id="r") == 60
        log.record(registration("user=u059"))
        await written(log)
        page, after = await log.search("payments", entity_id=None, page_size=1, after=None)
        assert page == []
        assert after is not None
        while after is not None:
            more, after = await log.search("payments", entity_id=None, page_size=1, after=after)
            page += more
        assert [one for one, _, _ in page] == [registration("user=u059")]


@pytest.mark.parametrize(
    "cursor", ["", "{}", "[]", "[1]", '["a","b"]', '["a","b","c",[1]]', '["a\\u0000"]', "\ud800", '["a']
)
async def test_a_cursor_of_something_else_is_refused(migrated: servers.Database, cursor: str) -> None:
    async with running(migrated) as log:
        with pytest.raises(InvalidRequestError, match="page token"):
            await log.search("payments", entity_id=None, page_size=1, after=cursor)


async def test_an_entity_that_no_row_can_hold_has_no_registrations(migrated: servers.Database) -> None:
    async with running(migrated) as log:
        assert await found(log, entity_id="a\0") == []


async def test_without_postgres_they_wait_up_to_a_bound_and_are_taken_when_they_come_again(
    migrated: servers.Database, caplog: pytest.LogCaptureFixture
) -> None:
    run(migrated.owner_dsn, "REVOKE INSERT, SELECT ON registrations FROM confplane")
    async with running(migrated, buffer_options=replace(QUICK, max_pending=10)) as log:
        alerts = PartAlerts(log)
        for number in range(15):
            log.record(registration(f"user=u{number:02}"))
        assert alerts.scrape() == {"RegistrationsDropped"}
        assert value_of(log, "registrations_dropped") == 5
        assert "Registrations are dropped" in caplog.text
        assert log.compatibility("payments", "user=u09") == [registration("user=u09")]
        assert log.compatibility("payments", "user=u10") == []
        with pytest.raises(UnavailableError):
            await log._buffer.flush()
        with pytest.raises(UnavailableError):
            await found(log)
        run(migrated.owner_dsn, "GRANT INSERT, SELECT ON registrations TO confplane")
        await written(log)
        for number in range(15):
            log.record(registration(f"user=u{number:02}"))
        await written(log)
        assert len(await found(log)) == 15
    assert count(migrated.owner_dsn, "registrations") == 15


async def test_clearing_without_postgres_is_refused(migrated: servers.Database) -> None:
    async with running(migrated) as log:
        await until(lambda: log.loaded)
        log.record(registration())
        await written(log)
        run(migrated.owner_dsn, "REVOKE INSERT ON registrations FROM confplane")
        with pytest.raises(UnavailableError):
            await log.clear("payments", entity_id=None, principal="p", request_id="r")
        assert log.compatibility("payments", "user=alice") == [registration()]


async def test_a_registration_that_postgres_refuses_does_not_hold_up_the_others(
    migrated: servers.Database, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(migrated) as log:
        await until(lambda: log.loaded)
        for number in range(5):
            log.record(registration(f"user=u{number}", "a NUL \0" if number == 2 else "1.0"))
        log.record(registration("user=\ud800"))
        await written(log)
        assert [one.entity_id for one, _, _ in await found(log)] == ["user=u0", "user=u1", "user=u3", "user=u4"]
        assert "Postgres refused one of the registrations" in caplog.text


def test_the_view_is_bounded_in_all_and_by_entity() -> None:
    view = RegistrationView(MAX_PER_ENTITY + 1)
    for number in range(MAX_PER_ENTITY):
        assert view.add("c", "user=a", SoftwareVersion("s", str(number), ()), 100 + number)
    # The one seen least recently makes room.
    assert view.add("c", "user=a", SoftwareVersion("s", "new", ()), 500)
    assert view.last_seen("c", "user=a", SoftwareVersion("s", "0", ())) is None
    assert view.last_seen("c", "user=a", SoftwareVersion("s", "1", ())) == 101
    assert len(view) == len(view.of_entity("c", "user=a")) == MAX_PER_ENTITY
    assert view.add("c", "user=b", SoftwareVersion("s", "1", ()), 1)
    assert not view.add("c", "user=c", SoftwareVersion("s", "1", ()), 1)
    assert view.add("c", "user=b", SoftwareVersion("s", "1", ()), 7)
    assert view.add("c", "user=b", SoftwareVersion("s", "1", ()), 5)
    assert view.last_seen("c", "user=b", SoftwareVersion("s", "1", ())) == 7
    assert view.clear("c", "user=a") == MAX_PER_ENTITY
    assert view.clear("c", None) == 1
    assert (len(view), view.clear("c", None), view.clear("nowhere", "user=a")) == (0, 0, 0)


def test_software_is_forgotten_with_its_last_registration_and_memory_has_a_bound_in_bytes() -> None:
    view = RegistrationView(1_000, 100_000)
    large = [SoftwareVersion("s", str(number), ("k" * 10_000,)) for number in range(12)]
    added = [view.add("c", f"user={number}", software, 1) for number, software in enumerate(large)]
    assert added == [True] * 9 + [False] * 3
    # The same software of another client takes little more.
    held = view.bytes_held
    assert view.add("c", "user=other", large[0], 1)
    assert view.bytes_held - held < 1_000
    assert view.clear("c", "user=0") == 1
    assert not view.add("c", "user=late", large[11], 1)
    assert view.clear("c", "user=other") == 1
    assert view.add("c", "user=late", large[11], 1)
    # Versions that are replaced in an entity are forgotten too.
    for number in range(10 * MAX_PER_ENTITY):
        view.add("d", "user=a", SoftwareVersion("s", str(number), ("k" * 100,)), number)
    assert len(view.of_entity("d", "user=a")) <= MAX_PER_ENTITY
    assert view.clear("d", None) + view.clear("c", None) > 0
    assert (len(view), view.bytes_held) == (0, 0)


async def test_a_user_has_a_budget_of_versions_a_day_and_others_have_theirs(migrated: servers.Database) -> None:
    clock = Clock(NOON)
    async with running(migrated, clock=clock, budget=RegistrationBudget(versions=10, size=10_000)) as log:
        for number in range(50):
            log.record(registration(f"user=flood,client-id=c{number % 3}", f"v{number}"))
        log.record(registration("user=flood,client-id=c9", "v3"))
        log.record(registration("user=long", "1.0", "k" * 11_000))
        log.record(registration("user=honest", "1.0"))
        log.record(registration("user=" + "x" * 2_000, "1.0"))
        assert log.dropped == 42
        await written(log)
        assert count(migrated.owner_dsn, "registrations") == 12
        assert log.compatibility("payments", "user=honest") == [registration("user=honest", "1.0")]
        assert log.compatibility("payments", "user=flood,client-id=c9") == [
            registration("user=flood,client-id=c9", "v3")
        ]
        clock.now += DAY_S
        log.record(registration("user=flood", "tomorrow"))
        assert log.compatibility("payments", "user=flood") == [registration("user=flood", "tomorrow")]


def seen(dsn: str, entity_id: str, *days: int, version: str = "1.0") -> list[int]:
    """Store rows of a registration that was seen and recorded some days ago, and return their ids."""
    row = """
        INSERT INTO registrations (
          event, cluster, entity_id, software_name, software_version, supported_configs, seen_at, seen_on, recorded_at)
        SELECT 'seen', 'payments', %s, 'librdkafka', %s, '{acks}', moment, moment::date, moment
        FROM (SELECT now() - make_interval(days => %s) AS moment) AS given RETURNING id
    """
    return [number for each in days for (number,) in fetch(dsn, row, entity_id, version, each)]


AGES = "SELECT event, entity_id, software_version, now()::date - seen_on FROM registrations ORDER BY id"


async def test_rows_of_a_month_ago_expire_except_for_the_first_and_the_last_of_a_registration(
    migrated: servers.Database,
) -> None:
    seen(migrated.service_dsn, "user=alice", 90, 80, 70, 60, 29, 28, 0)
    seen(migrated.service_dsn, "user=alice", 85, 75, 65, version="0.9")
    seen(migrated.service_dsn, "user=bob", 50, 45)
    async with running(migrated) as log:
        await until(lambda: count(migrated.owner_dsn, "registrations") == 8)
        assert fetch(migrated.owner_dsn, AGES) == [
            *(("seen", "user=alice", "1.0", days) for days in (90, 29, 28, 0)),
            *(("seen", "user=alice", "0.9", days) for days in (85, 65)),
            *(("seen", "user=bob", "1.0", days) for days in (50, 45)),
        ]
        spans = {(one.entity_id, one.software_version): (last - first).days for one, first, last in await found(log)}
        assert spans == {("user=alice", "1.0"): 90, ("user=alice", "0.9"): 20, ("user=bob", "1.0"): 5}


async def test_rows_that_a_clearing_hides_expire_and_the_clearing_stays(migrated: servers.Database) -> None:
    seen(migrated.service_dsn, "user=alice", 90, 80, 20)
    seen(migrated.service_dsn, "user=bob", 90)
    run(
        migrated.service_dsn,
        "INSERT INTO registrations (event, cluster, entity_id, principal, request_id, recorded_at)"
        " VALUES ('cleared', 'payments', 'user=alice', 'User:olga', 'r', now() - interval '70 days')",
    )
    seen(migrated.service_dsn, "user=alice", 60, 50, 40)
    async with running(migrated) as log:
        await until(lambda: count(migrated.owner_dsn, "registrations") == 5)
        assert fetch(migrated.owner_dsn, AGES) == [
            ("seen", "user=alice", "1.0", 20),
            ("seen", "user=bob", "1.0", 90),
            ("cleared", "user=alice", None, None),
            ("seen", "user=alice", "1.0", 60),
            ("seen", "user=alice", "1.0", 40),
        ]
        assert [(one.entity_id, (last - first).days) for one, first, last in await found(log)] == [
            ("user=alice", 20),
            ("user=bob", 0),
        ]


def test_rows_expire_in_pieces_and_no_other_row_can_be_deleted(migrated: servers.Database) -> None:
    ids = seen(migrated.service_dsn, "user=alice", 90, 80, 70, 60, 50, 1)
    after: int | None = 0
    reached = []
    while after is not None:
        [(after,)] = fetch(migrated.service_dsn, "SELECT expire_registrations(%s, 2)", after)
        reached.append(after)
    assert reached == [ids[1], ids[3], None]
    assert fetch(migrated.service_dsn, "SELECT id FROM registrations ORDER BY id") == [(ids[0],), (ids[5],)]
    with pytest.raises(psycopg.errors.RestrictViolation):
        fetch(migrated.owner_dsn, "DELETE FROM registrations WHERE id = %s", ids[5])
