from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from confplane.audit import Database, PostgresAppliedReports
from confplane.audit.applied import MAX_PER_ENTITY, AppliedView, Instance, Room
from confplane.audit.write_behind_buffer import WriteBehindOptions
from confplane.domain.errors import LimitExceededError, UnavailableError
from confplane.services.metrics import Sample
from confplane.services.ports.applied import KEPT_S, AppliedReport, Refusal
from tests.audit.rows import count, fetch, run
from tests.support.alerts import PartAlerts
from tests.support.clock import Clock
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support import servers

NOON = 1_700_000_000.0
QUICK = WriteBehindOptions(write_interval_s=0.05, read_interval_s=0.05)
NEVER = WriteBehindOptions(write_interval_s=600, read_interval_s=600)
ALICE = "user=alice"


def applied(revision: int = 7, *refused: Refusal) -> AppliedReport:
    return AppliedReport("kafka-python", "2.2", revision, refused)


@asynccontextmanager
async def running(
    database: servers.Database, buffer_options: WriteBehindOptions = QUICK, **options: Any
) -> AsyncIterator[PostgresAppliedReports]:
    pool = Database(database.service_dsn, 4)
    reports = PostgresAppliedReports(pool, options=buffer_options, **options)
    await reports.start()
    try:
        yield reports
    finally:
        await reports.close()
        await pool.close()


def written(reports: PostgresAppliedReports) -> bool:
    """Say whether no report waits for Postgres."""
    return Sample("applied_reports_pending", 0) in reports.metrics()


def rows(database: servers.Database) -> list[Any]:
    return fetch(
        database.owner_dsn,
        "SELECT entity_id, instance_id, applied_revision, refused FROM applied_reports ORDER BY entity_id, instance_id",
    )


async def test_a_report_is_answered_at_once_and_reaches_other_replicas(migrated: servers.Database) -> None:
    refusal = Refusal("acks", "enable.idempotence is set")
    async with running(migrated) as one, running(migrated) as other:
        one.report("payments", ALICE, "a", applied(5))
        one.report("payments", ALICE, "a", applied(7, refusal))
        one.report("payments", "user=alice,client-id=x", "a", applied())
        one.report("payments", "user=alice-b", "a", applied())
        assert one.of_entity("payments", ALICE) == [applied(7, refusal)]
        assert one.of_entity("other", ALICE) == []
        assert one.reported("payments", ALICE) == [ALICE, "user=alice,client-id=x"]
        assert one.reported("payments", "user=bob") == one.reported("other", ALICE) == []
        await until(lambda: other.of_entity("payments", ALICE) == [applied(7, refusal)])
        # The later report counts, through whichever replica it was sent.
        other.report("payments", ALICE, "a", applied(9))
        await until(lambda: one.of_entity("payments", ALICE) == [applied(9)])
    assert rows(migrated)[0] == (ALICE, "a", 9, [])


async def test_a_restart_knows_what_was_reported_and_a_stop_writes_all_of_it(migrated: servers.Database) -> None:
    clock = Clock(NOON)
    async with running(migrated, NEVER, clock=clock) as reports:
        for number in range(3_000):
            reports.report("payments", f"user=u{number}", "a", applied(number))
    assert count(migrated.owner_dsn, "applied_reports") == 3_000
    async with running(migrated, clock=clock) as reports:
        await until(lambda: reports.of_entity("payments", "user=u2999") == [applied(2999)])
        assert reports.of_entity("payments", "user=u0") == [applied(0)]


async def test_repeated_reports_are_written_every_two_minutes_whatever_their_rate(migrated: servers.Database) -> None:
    clock = Clock(NOON)
    async with running(migrated, NEVER, clock=clock) as reports:
        versions = []
        for second in range(0, 240, 10):
            clock.now = NOON + second
            for user in range(20):
                reports.report("payments", f"user=u{user}", "a", applied())
            await reports._buffer.flush()
            versions.append(fetch(migrated.owner_dsn, "SELECT max(version) FROM applied_reports")[0][0])
        assert versions == [*[20] * 12, *[40] * 12]
        # A change is written at once.
        reports.report("payments", "user=u0", "a", applied(8))
        await reports._buffer.flush()
        assert fetch(migrated.owner_dsn, "SELECT max(version) FROM applied_reports") == [(41,)]


async def test_a_silent_client_is_forgotten_everywhere(migrated: servers.Database) -> None:
    clock = Clock(NOON)
    async with running(migrated, clock=clock) as one, running(migrated, clock=clock) as other:
        one.report("payments", ALICE, "silent", applied(1))
        one.report("payments", ALICE, "talks", applied(2))
        await until(lambda: len(other.of_entity("payments", ALICE)) == 2)
        clock.now = NOON + 600
        one.report("payments", ALICE, "talks", applied(2))
        await until(lambda: other._view.find("payments", ALICE, "talks").reported_ms == (NOON + 600) * 1000)  # type: ignore[union-attr]
        clock.now = NOON + KEPT_S + 1
        assert one.of_entity("payments", ALICE) == other.of_entity("payments", ALICE) == [applied(2)]
        await until(lambda: (len(one._view), len(other._view)) == (1, 1))
        await until(lambda: [row[1] for row in rows(migrated)] == ["talks"])
        clock.now = NOON + 600 + KEPT_S + 1
        await until(lambda: not one.reported("payments", ALICE) and not other.reported("payments", ALICE))
    async with running(migrated, clock=clock) as late:
        await late._refresh()
        assert late.of_entity("payments", ALICE) == []


async def test_a_clock_that_is_set_back_loses_no_report(migrated: servers.Database) -> None:
    clock = Clock(NOON)
    async with running(migrated, clock=clock) as reports:
        reports.report("payments", ALICE, "a", applied(1))
        clock.now = NOON - 60
        reports.report("payments", ALICE, "a", applied(2))
        assert reports.of_entity("payments", ALICE) == [applied(2)]
        await until(lambda: rows(migrated) == [(ALICE, "a", 2, [])])
        await reports._refresh()
        assert reports.of_entity("payments", ALICE) == [applied(2)]


async def test_without_postgres_reports_wait_and_without_room_they_are_refused(
    migrated: servers.Database, caplog: pytest.LogCaptureFixture
) -> None:
    run(migrated.owner_dsn, "REVOKE INSERT, SELECT, UPDATE ON applied_reports FROM confplane")
    async with running(migrated, replace(QUICK, max_pending=10)) as reports:
        for number in range(10):
            reports.report("payments", ALICE, f"i{number}", applied())
        alerts = PartAlerts(reports)
        with pytest.raises(UnavailableError, match="no room"):
            reports.report("payments", ALICE, "i10", applied())
        assert "Applied reports are dropped" in caplog.text
        assert alerts.scrape() == {"AppliedReportsDropped"}
        reports.report("payments", ALICE, "i9", applied(8))  # one that waits already
        assert len(reports.of_entity("payments", ALICE)) == 10
        with pytest.raises(UnavailableError):
            await reports._buffer.flush()
        run(migrated.owner_dsn, "GRANT INSERT, SELECT, UPDATE ON applied_reports TO confplane")
        # A row makes room a moment after it is in Postgres.
        await until(lambda: count(migrated.owner_dsn, "applied_reports") == 10 and written(reports))
        reports.report("payments", ALICE, "i10", applied())
    assert {row[1]: row[2] for row in rows(migrated)}["i9"] == 8


def test_a_user_has_an_eighth_of_the_view_and_leaves_the_rest_to_others() -> None:
    view = AppliedView(80, 800)
    entity_ids = ["user=a", "user=a,client-id=x"]
    taken = [
        view.put("c", entity_ids[number % 2], f"i{number}", Instance(applied(), number, 0)) for number in range(12)
    ]
    assert taken == [True] * 10 + [False] * 2
    assert view.room("c", "user=a", "new", applied()) is Room.USER_FULL
    # A longer name, the user of another cluster, and an instance that is known, are not in the way of each other.
    assert view.put("c", "user=ab", "i", Instance(applied(), 20, 0))
    assert view.put("d", "user=a", "i", Instance(applied(), 20, 0))
    assert view.put("c", "user=a", "i0", Instance(applied(1, Refusal("k", "r" * 99)), 21, 0))
    assert view.room("c", "user=a,client-id=x", "i1", applied(1, Refusal("", "r"))) is Room.USER_FULL
    assert view.put("c", "user=a", "i0", Instance(applied(1, Refusal("k", "r" * 98)), 22, 0))
    assert view.put("c", "user=a,client-id=x", "i1", Instance(applied(1, Refusal("", "r")), 23, 0))
    view.forget(10)
    assert view.entities("c", "user=a") == entity_ids
    assert view.room("c", "user=a", "new", applied()) is Room.FREE
    view.forget(24)
    assert (len(view), view.entities("c", "user=a"), view.find("c", "user=a", "i0")) == (0, [], None)
    assert view.put("c", "user=a", "i", Instance(applied(1, Refusal("k", "r" * 99)), 30, 0))


def test_the_view_is_bounded_in_instances_and_in_characters() -> None:
    view = AppliedView(16, 800)
    for user in "abcdefgh":
        assert view.put("c", f"user={user}", "0", Instance(applied(1, Refusal("", "r" * 100)), 0, 0))
        assert view.put("c", f"user={user}", "1", Instance(applied(), 1, 0))
        assert view.room("c", f"user={user}", "2", applied()) is Room.USER_FULL
    assert view.room("c", "user=z", "0", applied()) is Room.FULL
    view.forget(1)
    assert view.room("c", "user=z", "0", applied(1, Refusal("", "r" * 100))) is Room.FREE
    large = AppliedView(8 * MAX_PER_ENTITY * 2, 100)
    for number in range(MAX_PER_ENTITY):
        assert large.put("c", "user=a", f"i{number}", Instance(applied(), number, number))
    assert large.room("c", "user=a", "further", applied()) is Room.USER_FULL


async def test_one_application_leaves_room_for_the_reports_of_others(migrated: servers.Database) -> None:
    async with running(migrated, QUICK, max_instances=80) as reports, running(migrated, max_instances=80) as other:
        for number in range(10):
            reports.report("payments", f"{ALICE},client-id=c{number}", "i", applied())
        for _ in range(3):
            with pytest.raises(LimitExceededError, match="clients of this user") as refused:
                reports.report("payments", ALICE, "i", applied())
        assert refused.value.retry_after_s == 60
        reports.report("payments", "user=bob", "i", applied())
        await until(lambda: other.reported("payments", "user=bob") and len(other.reported("payments", ALICE)) == 10)
        with pytest.raises(LimitExceededError):
            other.report("payments", ALICE, "i", applied())
        other.report("payments", "user=carol", "i", applied())
