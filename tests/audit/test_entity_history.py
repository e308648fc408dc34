"""The history of an entity: sorted by revision, whatever the order of its changes' ids."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.types.json import Jsonb

from confplane.audit import history
from confplane.services.ports.pages import PAGE_BYTES
from tests.audit.rows import change_id, committed, entity, fetch, intent, rejected

if TYPE_CHECKING:
    from uuid import UUID

    from confplane.audit import PostgresAuditLog
    from confplane.services.ports.trail import AuditRecord, HistoryPosition, Intent, Outcome
    from tests.support import servers

START_MS = 1_763_682_000_000
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


def change(
    number: int, id_ms: int, *, revision: int, at_ms: int | None = None, **outcome: Any
) -> tuple[Intent, Outcome]:
    """A committed change of one user; its id and its commit have times of their own."""
    made = intent(change_id(START_MS + id_ms, number))
    return made, committed(made, revision=revision, time_ms=START_MS + (id_ms if at_ms is None else at_ms), **outcome)


async def write(log: PostgresAuditLog, changes: list[tuple[Intent, Outcome]]) -> None:
    await log.intend([made for made, _ in changes])
    await log.conclude([outcome for _, outcome in changes])


async def pages(log: PostgresAuditLog, size: int, entity_id: str = "user=alice") -> list[list[AuditRecord]]:
    found: list[list[AuditRecord]] = []
    position: HistoryPosition | None = None
    while True:
        page, position = await log.history("payments", entity_id, page_size=size, after=position)
        assert len(page) <= size
        found.append(page)
        if position is None:
            return found


def ids(found: list[list[AuditRecord]]) -> list[UUID]:
    return [record.intent.change_id for page in found for record in page]


def in_order(changes: list[tuple[Intent, Outcome]]) -> list[UUID]:
    """The ids as a history lists them."""
    keyed = sorted(
        ((outcome.incarnation, outcome.revision or 0, made.change_id) for made, outcome in changes), reverse=True
    )
    return [id_ for _, _, id_ in keyed]


@pytest.mark.parametrize("seed", range(4))
async def test_pages_of_any_size_are_sorted_by_revision(
    log: PostgresAuditLog, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small bounds, so that few changes pass them as many would pass the real ones.
    monkeypatch.setattr(history, "CONCURRENT", 2)
    monkeypatch.setattr(history, "MOST_OVERTAKING", 30)
    dice = random.Random(seed)  # noqa: S311 - no secret
    changes = []
    revision, at_ms = 1_000, 0
    for number in range(150):
        revision += dice.choice([1, 5])
        at_ms += dice.choice([1, 5, 20 * MINUTE_MS])
        # Ten seconds of waiting; and in one of ten a clock that was wrong by up to three days.
        waited = dice.randrange(10_000) if dice.random() < 0.9 else dice.randrange(-3 * DAY_MS, 3 * DAY_MS)
        changes.append(change(number, at_ms - waited, revision=revision, at_ms=at_ms))
    dice.shuffle(changes)
    await write(log, changes)
    others = [intent(change_id(START_MS + number * MINUTE_MS, 1000 + number)) for number in range(30)]
    await log.intend(others)
    await log.conclude([rejected(one) for one in others[::2]])
    for size in (1, 7, 200):
        assert ids(await pages(log, size)) == in_order(changes)


async def test_a_restored_store_continues_above_the_revisions_that_it_uses_again(log: PostgresAuditLog) -> None:
    before = [change(number, number, revision=100 + number) for number in range(20)]
    again = [change(100 + number, DAY_MS + number, revision=105 + number, incarnation=2) for number in range(10)]
    await write(log, before + again)
    for size in (3, 100):
        found = await pages(log, size)
        assert ids(found) == in_order(before + again)
        assert [record.outcome.incarnation for page in found for record in page if record.outcome] == [2] * 10 + [
            1
        ] * 20


async def test_a_change_that_waited_longer_than_a_window_is_listed_where_its_revision_is(log: PostgresAuditLog) -> None:
    # One change of a busy entity got its id before 400 others, and was committed after them.
    changes = [change(number, 10 + number, revision=1_000 + number) for number in range(400)]
    waited = change(999, 0, revision=2_000, at_ms=5_000)
    await write(log, [*changes, waited])
    [first, *_] = await pages(log, 100)
    assert first[0].intent == waited[0]
    for size in (10, 100):
        assert ids(await pages(log, size)) == in_order([*changes, waited])


async def test_a_change_that_is_committed_between_two_pages_belongs_before_both(log: PostgresAuditLog) -> None:
    changes = [change(number, number, revision=100 + number) for number in range(10)]
    late = change(50, 3, revision=500, at_ms=2_000)
    await log.intend([late[0]])
    await write(log, changes)
    first, position = await log.history("payments", "user=alice", page_size=4, after=None)
    await log.conclude([late[1]])
    second, position = await log.history("payments", "user=alice", page_size=100, after=position)
    assert position is None
    assert ids([first, second]) == in_order(changes)
    assert ids(await pages(log, 4)) == in_order([*changes, late])


async def test_a_page_ends_where_its_rows_are_large(log: PostgresAuditLog) -> None:
    value = "x" * (PAGE_BYTES // 3)
    changes = []
    for number in range(6):
        made = intent(change_id(START_MS - number, number), entity("user=alice", after={"k": value}))
        changes.append((made, committed(made, revision=100 + number, time_ms=START_MS)))
    await write(log, changes)
    found = await pages(log, 100)
    assert [len(page) for page in found] == [2, 2, 2]
    assert ids(found) == in_order(changes)


async def test_an_entity_of_only_an_earlier_attempt_has_no_part_in_the_change(log: PostgresAuditLog) -> None:
    first = intent(change_id(START_MS, 1), entity("user=a"))
    last = intent(first.change_id, entity("user=b"), attempt=2)
    await log.intend([first])
    await log.intend([last])
    await log.conclude([committed(last)])
    assert ids(await pages(log, 10, "user=a")) == []
    assert ids(await pages(log, 10, "user=b")) == [last.change_id]


async def test_the_rows_of_an_earlier_release_are_of_the_first_incarnation(
    log: PostgresAuditLog, migrated: servers.Database
) -> None:
    made, _ = change(1, 0, revision=7)
    await log.intend([made])
    fetch(
        migrated.service_dsn,
        "INSERT INTO outcomes (change_id, attempt, cluster, committed, revision, time, versions)"
        " VALUES (%s, 1, 'payments', true, 7, now(), %s) RETURNING 1",
        made.change_id,
        Jsonb({}),
    )
    [[record]] = await pages(log, 10)
    assert record.outcome is not None
    assert record.outcome.incarnation == 1


async def test_names_that_postgres_can_not_store_have_no_history(log: PostgresAuditLog) -> None:
    assert await pages(log, 10, "user=\0") == [[]]
