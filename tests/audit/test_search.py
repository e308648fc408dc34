from __future__ import annotations

import random
import secrets
from datetime import UTC, datetime, timedelta
from itertools import islice, product
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

from confplane.audit import trail_queries
from confplane.services.ports.pages import PAGE_BYTES
from confplane.services.ports.trail import AuditQuery, ObservedRange
from tests.audit.rows import change_id, committed, entity, intent, rejected

if TYPE_CHECKING:
    from confplane.audit import PostgresAuditLog
    from confplane.services.ports.trail import AuditRecord, Intent, Outcome
    from tests.support import servers

START_MS = 1_763_682_000_000


def at(milliseconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=START_MS + milliseconds)


def recorded_at(dsn: str, times: dict[UUID, datetime]) -> None:
    """Make intents look recorded at these times, past the trigger that forbids it."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE intents DISABLE TRIGGER append_only")
        for id_, time in times.items():
            connection.execute("UPDATE intents SET recorded_at = %s WHERE change_id = %s", (time, id_))
        connection.execute("ALTER TABLE intents ENABLE ALWAYS TRIGGER append_only")


async def all_pages(log: PostgresAuditLog, query: dict[str, Any], page_size: int) -> list[AuditRecord]:
    """Follow the cursors to the end; every page but a bounded one is full."""
    found: list[AuditRecord] = []
    before: UUID | None = None
    while True:
        page, before = await log.search(AuditQuery(**query, page_size=page_size, before=before))
        assert len(page) <= page_size
        found += page
        if before is None:
            return found


async def test_a_record_holds_all_that_was_written(log: PostgresAuditLog) -> None:
    id_ = change_id(START_MS + 5, 1)
    one = intent(
        id_,
        entity("user=alice", "a", "b", version_read=None, czxid_read=None, before={}, after={"a": "ü", "b": '"'}),
        entity("user=alice,client-id", "a", ops=({"key": "a", "value": 1.5}, {"key": "a", "value": True})),
        ticket="OPS-1",
    )
    await log.intend([one])
    open_record = await log.get("payments", id_)
    assert open_record is not None
    assert (open_record.intent, open_record.outcome, open_record.recorded_at) == (one, None, None)
    assert open_record.created_at == at(5)
    await log.conclude([committed(one)])
    record = await log.get("payments", id_)
    assert record is not None
    assert (record.intent, record.outcome) == (one, committed(one))
    assert record.recorded_at is not None
    assert await log.get("other", id_) is None
    assert await log.get("payments", change_id(START_MS, 0)) is None
    assert (await log.search(AuditQuery("payments")))[0] == [record]


@pytest.mark.parametrize(
    ("kind", "observed"),
    [
        ("import", ObservedRange(None, 17, START_MS)),
        ("observed", ObservedRange(2**40, 2**40 + 9, START_MS, exact=True, writes=9)),
    ],
)
async def test_a_change_that_follows_a_cluster_says_where_in_its_log(
    log: PostgresAuditLog, kind: str, observed: ObservedRange
) -> None:
    one = intent(None, kind=kind, observed=observed)
    await log.intend([one])
    await log.conclude([committed(one)])
    [record], _ = await log.search(AuditQuery("payments"))
    assert (record.kind, record.intent) == (kind, one)


async def test_a_change_is_shown_by_its_last_attempt(log: PostgresAuditLog) -> None:
    id_ = change_id(START_MS, 1)
    first = intent(id_, entity("user=a", "x", version_read=3))
    last = intent(id_, entity("user=a", "y", version_read=9), attempt=2)
    await log.intend([first])
    await log.intend([last])
    await log.conclude([committed(last)])
    page, cursor = await log.search(AuditQuery("payments", entity_id="user=a"))
    assert [record.intent for record in page] == [last]
    assert cursor is None
    assert [record.intent for record in (await log.search(AuditQuery("payments", key="y")))[0]] == [last]
    # Only the first attempt would have altered x.
    assert (await log.search(AuditQuery("payments", key="x")))[0] == []


async def test_an_atomic_batch_is_found_by_each_of_its_entities_and_its_key_by_the_one_that_has_it(
    log: PostgresAuditLog,
) -> None:
    batch = intent(None, entity("user=a", "x"), entity("user=b", "y"))
    await log.intend([batch])
    for name in ("user=a", "user=b"):
        assert [one.intent for one in (await log.search(AuditQuery("payments", entity_id=name)))[0]] == [batch]
    assert (await log.search(AuditQuery("payments", entity_id="user=a", key="x")))[0]
    assert not (await log.search(AuditQuery("payments", entity_id="user=a", key="y")))[0]


# A third of the combinations has each value of a filter with each of another.
@pytest.mark.parametrize("one_in", [3, pytest.param(1, marks=pytest.mark.long)], ids=["some filters", "all filters"])
async def test_searches_equal_a_naive_filter_whatever_the_filters_and_the_page(
    log: PostgresAuditLog, migrated: servers.Database, one_in: int
) -> None:
    chance = random.Random(7)  # noqa: S311 - reproducible, not secret
    intents: list[Intent] = []
    outcomes: dict[UUID, Outcome] = {}
    times: dict[UUID, datetime] = {}
    recorded: dict[UUID, datetime] = {}
    for number in range(120):
        # Ten changes in each millisecond: order among them is that of their ids. Some clocks are off, by a little or by
        # days: that of who made the id, or Postgres's.
        off, recorded_off = (chance.choice([0, 0, 0, -50_000, 50_000, -172_800_000, 90_000_000]) for _ in range(2))
        one = intent(
            change_id(START_MS + number // 10 + off, number),
            *(
                entity(f"user={name}", *chance.sample(["x", "y", "z"], chance.randint(1, 3)))
                for name in chance.sample("abc", chance.randint(1, 2))
            ),
            cluster=chance.choice(["payments", "payments", "other"]),
            principal=chance.choice(["User:p", "User:q"]),
            kind=chance.choice(["change", "import", "observed"]),
        )
        intents.append(one)
        ending = chance.choice(["committed", "committed", "rejected", "open"])
        recorded[one.change_id] = at(number // 10 + recorded_off)
        times[one.change_id] = at(number // 10) if ending == "committed" else recorded[one.change_id]
        if ending == "committed":
            outcomes[one.change_id] = committed(one, time_ms=START_MS + number // 10)
        elif ending == "rejected":
            outcomes[one.change_id] = rejected(one)
    chance.shuffle(intents)
    await log.intend(intents)
    await log.conclude(list(outcomes.values()))
    recorded_at(migrated.owner_dsn, recorded)

    def ending_of(one: Intent) -> str:
        outcome = outcomes.get(one.change_id)
        return "open" if outcome is None else "committed" if outcome.committed else "rejected"

    filters = product(
        [None, "user=a"],
        [None, "x"],
        [None, "User:p"],
        [None, "committed", "rejected", "open"],
        [(None, None), (at(3), at(8)), (at(3), None), (None, at(8)), (at(172_000_000), None)],
    )
    for entity_id, key, principal, outcome, span in islice(filters, None, None, one_in):
        since, until = span
        expected = sorted(
            (
                one
                for one in intents
                if one.cluster == "payments"
                and any(entity_id in {None, it.entity_id} and (key is None or key in it.keys) for it in one.entities)
                and principal in {None, one.principal}
                and outcome in {None, ending_of(one)}
                and (since is None or times[one.change_id] >= since)
                and (until is None or times[one.change_id] < until)
            ),
            key=lambda one: one.change_id,
            reverse=True,
        )
        query: dict[str, Any] = {
            "cluster": "payments",
            "entity_id": entity_id,
            "key": key,
            "principal": principal,
            "outcome": outcome,
            "since": since,
            "until": until,
        }
        page_size = chance.choice([1, 3, 7, 100])
        found = await all_pages(log, query, page_size)
        assert [record.intent for record in found] == expected, (query, page_size)
        assert [record.outcome for record in found] == [outcomes.get(one.change_id) for one in expected]
        assert await log.count(AuditQuery(**query), 1_000) == len(expected), query
        assert await log.count(AuditQuery(**query), 1) == min(len(expected), 2), query


@pytest.mark.parametrize(
    "filters", [{}, {"entity_id": "user=alice"}, {"key": "producer_byte_rate"}, {"outcome": "open"}]
)
async def test_the_last_full_page_has_no_cursor(log: PostgresAuditLog, filters: dict[str, Any]) -> None:
    await log.intend([intent(change_id(START_MS, number)) for number in range(6)])
    page, cursor = await log.search(AuditQuery("payments", page_size=3, **filters))
    assert (len(page), cursor) == (3, page[-1].intent.change_id)
    page, cursor = await log.search(AuditQuery("payments", page_size=3, before=cursor, **filters))
    assert (len(page), cursor) == (3, None)


@pytest.mark.parametrize("outcome", ["committed", "open"])
async def test_the_work_of_a_page_is_bounded_and_its_cursor_goes_on(
    log: PostgresAuditLog, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    monkeypatch.setattr(trail_queries, "MAX_EXAMINED", 20)
    monkeypatch.setattr(trail_queries, "OPEN_WINDOW", 20)
    intents = [intent(change_id(START_MS, number)) for number in range(100)]
    await log.intend(intents)
    endings = {"committed": (committed, rejected), "open": (None, committed)}
    wanted, other = endings[outcome]
    await log.conclude([other(one) for one in intents[3:]])
    if wanted is not None:
        await log.conclude([wanted(one) for one in intents[:3]])
    page, cursor = await log.search(AuditQuery("payments", outcome=outcome, page_size=5))
    assert page == []
    assert cursor is not None
    found = await all_pages(log, {"cluster": "payments", "outcome": outcome}, 5)
    assert [record.intent for record in found] == intents[2::-1]


async def test_a_page_ends_where_its_rows_are_large_and_its_cursor_goes_on(log: PostgresAuditLog) -> None:
    text = {"compressed": "x" * 800_000, "as it is": secrets.token_hex(400_000), "small": "1"}
    made = []
    for number in range(24):
        after = {"retention.ms": list(text.values())[number % 3]}
        made.append(intent(change_id(START_MS + number, number), entity(after=after), cluster="large"))
    whole = entity("user=alone", before={"a": text["as it is"] * 6}, after={"a": "1"})
    made.append(intent(change_id(START_MS + 24, 24), whole, cluster="large"))
    for each in made:  # all of them in one statement exceed its time on a busy machine
        await log.intend([each])
    pages: list[list[AuditRecord]] = []
    before: UUID | None = None
    while not pages or before is not None:
        page, before = await log.search(AuditQuery(cluster="large", page_size=100, before=before))
        pages.append(page)
    assert [record.intent.change_id for page in pages for record in page] == [each.change_id for each in made[::-1]]
    assert len(pages[0]) == 1, "larger than a page, and there must be one"
    for page in pages[1:]:
        assert sum(len(str(record.intent.entities)) for record in page) < 1.2 * PAGE_BYTES
    assert 4 <= len(pages) <= 7, [len(page) for page in pages]


@pytest.mark.parametrize("name", ["entity_id", "key", "principal"])
@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
async def test_what_no_row_can_hold_finds_nothing(log: PostgresAuditLog, name: str, value: str) -> None:
    await log.intend([intent()])
    given: dict[str, Any] = {name: value}
    assert await log.search(AuditQuery("payments", **given)) == ([], None)


def test_times_and_ids() -> None:
    moment = datetime(2026, 5, 4, 3, 2, 1, 7000, tzinfo=UTC)
    first = trail_queries.first_id_at(moment)
    assert trail_queries.created_at(first) == moment
    assert trail_queries.created_at(UUID(int=first.int - 1)) == moment - timedelta(milliseconds=1)
    # Between two milliseconds nothing can be: the bound is the next one.
    assert trail_queries.first_id_at(moment - timedelta(microseconds=999)) == first
    assert trail_queries.first_id_at(datetime(1, 1, 1, tzinfo=UTC)) == UUID(int=0)
    assert trail_queries.first_id_at(datetime(9999, 12, 31, tzinfo=UTC)).int >> 80 == 253_402_214_400_000


async def test_the_entities_that_an_author_altered_in_the_last_hour(
    log: PostgresAuditLog, migrated: servers.Database
) -> None:
    now = datetime.now(UTC)
    made = [intent(None, entity(f"user={name}"), principal="User:carol") for name in ("old", "refused", "open")]
    made += [
        intent(None, entity("user=a"), entity("user=b", facet="clients"), principal="User:carol"),
        intent(None, entity("user=a"), principal="User:carol"),
        intent(None, entity("user=for-dave"), principal="User:carol", behalf_of="User:dave"),
        intent(None, entity("user=by-portal"), principal="User:portal", behalf_of="User:carol"),
        intent(None, entity("user=elsewhere"), principal="User:carol", cluster="orders"),
        intent(None, entity("user=followed"), principal="User:carol", kind="observed"),
    ]
    await log.intend(made)
    recorded_at(migrated.owner_dsn, {made[0].change_id: now - timedelta(minutes=61)})
    await log.conclude([rejected(made[1]), *map(committed, made[3:])])
    found = await log.altered("payments", "User:carol")
    assert sorted(found) == [
        ("client-configs", "user=b"),
        *(("client-quotas", f"user={name}") for name in ("a", "b", "by-portal", "open")),
    ]
    assert await log.altered("payments", "User:dave") == [("client-quotas", "user=for-dave")]
    assert await log.altered("payments", "User:nobody") == []
