"""Refused attempts in Postgres: bounded however many there are, found by their filters, kept for 90 days."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from confplane.audit import Database, PostgresRefusedAttempts, refusals
from confplane.audit.write_behind_buffer import WriteBehindOptions
from confplane.domain.access.ranges import NameRanges
from confplane.services.metrics import Sample
from confplane.services.ports.refusals import RefusedAttempt, RefusedQuery
from tests.audit.rows import age, count, fetch, run
from tests.support.alerts import PartAlerts
from tests.support.clock import Clock
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from confplane.devstack.postgres import Postgres
    from confplane.services.ports.refusals import StoredAttempt
    from tests.support import servers

CLUSTER = "payments"
NOON = 1_770_033_600.0
KEPT_S = 90 * 86_400
ATTEMPT = RefusedAttempt(CLUSTER, "User:olga", "putClientQuotas", 44, "policy-violation", "r-1", entity_id="user=alice")
ROWS = """
SELECT cluster, principal, behalf_of, operation, entity_id, keys, error_code, problem, request_id, count
FROM refused_attempts ORDER BY count, request_id
"""


def log_at(pool: Database, clock: Clock[float], **options: Any) -> PostgresRefusedAttempts:
    return PostgresRefusedAttempts(pool, clock=clock, options=WriteBehindOptions(**{"max_pending": 10_000, **options}))


def dropped(log: PostgresRefusedAttempts) -> Any:
    return next(each.value for each in log.metrics() if each.name == "refused_attempts_dropped")


async def test_a_loop_of_refused_requests_has_sixty_rows_a_minute_and_sums(
    pool: Database, migrated: servers.Database
) -> None:
    clock = Clock(NOON)
    log = log_at(pool, clock)
    for number in range(10_000):
        clock.now = NOON + number / 10_000
        log.record(replace(ATTEMPT, request_id=f"r-{number}", keys=("producer_byte_rate",)))
    for _ in range(70):
        log.record(replace(ATTEMPT, error_code=31, problem="forbidden"))
    log.record(replace(ATTEMPT, principal="User:zoe"))
    clock.now = NOON + 60
    log.record(replace(ATTEMPT, request_id="next"))
    await log.close()
    rows = fetch(migrated.owner_dsn, ROWS)
    single, sums = [row for row in rows if row[-1] == 1], [row for row in rows if row[-1] > 1]
    assert len(single) == refusals.ROWS_PER_MINUTE + 2
    sum_: tuple[Any, ...] = (CLUSTER, "User:olga", None, "putClientQuotas", None, [])
    assert sums == [
        (*sum_, 31, "forbidden", None, 70),
        (*sum_, 44, "policy-violation", None, 10_000 - refusals.ROWS_PER_MINUTE),
    ]
    assert dropped(log) == 0


async def test_sums_are_written_once_their_minute_is_over(pool: Database, migrated: servers.Database) -> None:
    clock = Clock(NOON)
    log = log_at(pool, clock, write_interval_s=0.01, read_interval_s=0.01)
    await log.start()
    for _ in range(refusals.ROWS_PER_MINUTE + 5):
        log.record(ATTEMPT)
    await until(lambda: count(migrated.owner_dsn, "refused_attempts") == refusals.ROWS_PER_MINUTE)
    assert Sample("refused_attempts_held", 1) in log.metrics()
    clock.now += 60
    await until(lambda: fetch(migrated.owner_dsn, "SELECT id FROM refused_attempts WHERE count = 5"))
    await log.close()


async def test_what_finds_no_room_is_counted_and_harms_nothing(pool: Database, migrated: servers.Database) -> None:
    clock = Clock(NOON)
    log = log_at(pool, clock, max_pending=100)
    alerts = PartAlerts(log)
    for number in range(2_000):
        log.record(replace(ATTEMPT, principal=f"User:{number // 60}"))
    assert dropped(log) == 1_900
    assert alerts.scrape() == {"RefusedAttemptsDropped"}
    for number in range(refusals.MAX_SUMS + 70):
        log.record(replace(ATTEMPT, principal="User:many", operation=f"operation-{number}"))
    assert dropped(log) == 1_900 + refusals.ROWS_PER_MINUTE + 10
    await log.close()
    assert dropped(log) == 1_900 + refusals.ROWS_PER_MINUTE + 10 + refusals.MAX_SUMS
    assert count(migrated.owner_dsn, "refused_attempts") == 100


async def test_odd_names_and_long_ones_are_stored_in_part(pool: Database) -> None:
    log = log_at(pool, Clock(NOON))
    long = "user=" + "x" * 4_000
    odd = "a\0b", "lone \ud800 surrogate", "\x1b[2J\u202e\n\x85", "é🐘", "k" * 4_000, "k" * refusals.MAX_KEY
    log.record(replace(ATTEMPT, entity_id=long, keys=odd))
    log.record(replace(ATTEMPT, entity_id="user=plain", keys=tuple(f"key-{number}" for number in range(10_000))))
    await log.close()
    assert dropped(log) == 0
    found, _ = await log.search(RefusedQuery(CLUSTER))
    keys = {each.attempt.entity_id: each.attempt.keys for each in found}
    cut = long[: refusals.MAX_ID] + refusals.ELLIPSIS
    assert keys[cut] == (
        "a?b",
        "lone ? surrogate",
        "?[2J???",
        "é🐘",
        "k" * refusals.MAX_KEY + refusals.ELLIPSIS,
        odd[-1],
    )
    assert keys["user=plain"] == tuple(f"key-{number}" for number in range(refusals.MAX_KEYS))
    found, _ = await log.search(RefusedQuery(CLUSTER, entity_id=long))
    assert [each.attempt.entity_id for each in found] == [cut]
    for key in odd:
        found, _ = await log.search(RefusedQuery(CLUSTER, key=key))
        assert [each.attempt.entity_id for each in found] == [cut]
    assert await log.search(RefusedQuery(CLUSTER, request_id="a\0b")) == ([], None)


async def all_pages(log: PostgresRefusedAttempts, query: RefusedQuery) -> list[StoredAttempt]:
    found: list[StoredAttempt] = []
    while True:
        page, cursor = await log.search(query)
        assert len(page) <= query.page_size
        found += page
        if cursor is None:
            return found
        query = replace(query, before=cursor)


@pytest.fixture
async def sixty(pool: Database) -> tuple[PostgresRefusedAttempts, list[StoredAttempt]]:
    """Sixty attempts, one a second, and those of them in the cluster."""
    clock = Clock(NOON)
    log = log_at(pool, clock)
    entities = (None, "user=abc", "user=abd", "user=abcde" + "x" * 400, "topic=abc")
    for number in range(60):
        clock.now += 1
        log.record(
            replace(
                ATTEMPT,
                cluster="elsewhere" if number % 7 == 0 else CLUSTER,
                principal=f"User:{number % 3}",
                entity_id=entities[number % 5],
                keys=("acks",) if number % 2 else ("acks", "retries"),
                request_id=f"r-{number % 4}",
            )
        )
    await log.close()
    found, cursor = await log.search(RefusedQuery(CLUSTER))
    assert (len(found), cursor) == (51, None)
    return log, found


MIDDLE = datetime.fromtimestamp(NOON + 30, UTC)
MIDDLE_MS = (NOON + 30) * 1000


@pytest.mark.parametrize("examined", [3, refusals.EXAMINED])
@pytest.mark.parametrize(
    ("filters", "fits"),
    [
        ({}, lambda _: True),
        ({"entity_id": "user=abc"}, lambda each: each.attempt.entity_id == "user=abc"),
        ({"key": "retries"}, lambda each: "retries" in each.attempt.keys),
        ({"principal": "User:1"}, lambda each: each.attempt.principal == "User:1"),
        (
            {"request_id": "r-2", "principal": "User:2"},
            lambda each: (each.attempt.request_id, each.attempt.principal) == ("r-2", "User:2"),
        ),
        ({"since": MIDDLE}, lambda each: each.time_ms >= MIDDLE_MS),
        ({"until": MIDDLE, "key": "acks"}, lambda each: each.time_ms < MIDDLE_MS),
        ({"key": "nothing"}, lambda _: False),
        ({"within": NameRanges.of([("user=abc", "user=abcd")])}, lambda each: each.attempt.entity_id == "user=abc"),
        ({"within": NameRanges.of([("u", "v")])}, lambda each: each.attempt.entity_id in {"user=abc", "user=abd"}),
        ({"within": NameRanges.of([])}, lambda _: False),
    ],
    ids=["all", "entity", "key", "principal", "two", "since", "until", "nothing", "one", "users", "hidden"],
)
async def test_searches_equal_a_naive_filter_whatever_the_filters_and_the_page(
    sixty: tuple[PostgresRefusedAttempts, list[StoredAttempt]],
    monkeypatch: pytest.MonkeyPatch,
    filters: dict[str, Any],
    fits: Callable[[StoredAttempt], bool],
    examined: int,
) -> None:
    log, everything = sixty
    monkeypatch.setattr(refusals, "EXAMINED", examined)
    for page_size in (1, 4, 100):
        assert await all_pages(log, RefusedQuery(CLUSTER, page_size=page_size, **filters)) == [
            each for each in everything if fits(each)
        ]


async def test_a_page_without_a_filter_is_full_however_few_rows_may_be_examined(
    sixty: tuple[PostgresRefusedAttempts, list[StoredAttempt]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, everything = sixty
    monkeypatch.setattr(refusals, "EXAMINED", 3)
    for filters in ({}, {"until": datetime.fromtimestamp(NOON + 3_600, UTC)}, {"principal": "User:1"}):
        found, cursor = await log.search(RefusedQuery(CLUSTER, page_size=10, **filters))
        fitting = [each for each in everything if filters.get("principal") in {None, each.attempt.principal}]
        assert (found, cursor) == (fitting[:10], fitting[9].id)


async def test_attempts_are_forgotten_after_ninety_days(pool: Database, migrated: servers.Database) -> None:
    clock = Clock(NOON)
    log = log_at(pool, clock, write_interval_s=0.01, read_interval_s=0.01)
    for number in range(4_100):
        log.record(replace(ATTEMPT, principal=f"User:{number}"))
    await log.close()
    age(migrated.owner_dsn, "refused_attempts", 1_200)
    log.record(replace(ATTEMPT, request_id="almost"))
    await log.close()
    age(migrated.owner_dsn, "refused_attempts", KEPT_S - 600)
    await log.start()
    await until(lambda: count(migrated.owner_dsn, "refused_attempts") == 1)
    await log.close()
    assert fetch(migrated.owner_dsn, "SELECT request_id FROM refused_attempts") == [("almost",)]


@pytest.mark.parametrize("statement", ["UPDATE {} SET count = 0", "DELETE FROM {}", "TRUNCATE {}"])
async def test_nobody_alters_or_removes_an_attempt_before(
    pool: Database, migrated: servers.Database, postgres: Postgres, statement: str
) -> None:
    log = log_at(pool, Clock(NOON))
    log.record(ATTEMPT)
    await log.close()
    statement = statement.format("refused_attempts")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(migrated.service_dsn, statement)
    for dsn in (migrated.owner_dsn, postgres.dsn("postgres", migrated.name)):
        with pytest.raises(psycopg.errors.RestrictViolation, match="refused_attempts is append-only"):
            run(dsn, statement)
    assert count(migrated.owner_dsn, "refused_attempts") == 1
