"""The trail, the registrations and the rollups within ranges of entities, against plain filters of everything."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from sqlalchemy import Text as SqlText
from sqlalchemy import column, select, values

from confplane.audit import PostgresRegistrationLog, PostgresRollups, trail_queries, visible
from confplane.domain.access.ranges import EVERYTHING, NOTHING, NameRanges
from confplane.services.ports.rollups import RowQuery
from confplane.services.ports.trail import AuditQuery
from tests.audit.rows import change_id, committed, entity, intent, rejected, run

if TYPE_CHECKING:
    from uuid import UUID

    import pytest

    from confplane.audit import Database, PostgresAuditLog
    from confplane.services.ports.rollups import Place
    from confplane.services.ports.trail import AuditRecord, Intent
    from tests.support import servers

START_MS = 1_763_682_000_000
OF_A = NameRanges.of([("user=a", "user=a-")])
MANY = [NOTHING, OF_A, NameRanges.of([("user", "user=b"), ("user=c", "user=c-"), ("cluster", "cluster>")]), EVERYTHING]


async def test_the_condition_is_the_search_in_ranges(pool: Database) -> None:
    chance = random.Random(7)  # noqa: S311 - reproducible, not secret
    names = sorted({"".join(chance.choices("ab,-~=.Z0", k=chance.randint(0, 3))) for _ in range(200)})
    for _ in range(30):
        within = NameRanges.of(tuple(sorted(chance.sample(names, 2))) for _ in range(chance.randint(1, 6)))  # type: ignore[misc]  # two of them
        table = values(column("name", SqlText(collation="C")), name="given").data([(name,) for name in names])
        for hidden in (False, True):
            statement = select(table.c.name).where(visible.clause('given.name COLLATE "C"', hidden=hidden))
            given = visible.parameters(within)

            assert sorted(await pool.scalars(statement, **given)) == [
                name for name in names if (name in within) is not hidden
            ], within


async def all_changes(log: PostgresAuditLog, page_size: int, **query: Any) -> list[AuditRecord]:
    found: list[AuditRecord] = []
    before: UUID | None = None
    while True:
        page, before = await log.search(AuditQuery("payments", page_size=page_size, before=before, **query))
        found += page
        if before is None:
            return found


async def test_the_trail_within_ranges_equals_a_naive_filter(
    log: PostgresAuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail_queries, "MAX_EXAMINED", 30)
    chance = random.Random(11)  # noqa: S311 - as above
    intents: list[Intent] = []
    for number in range(80):
        names = chance.sample(["user=a", "user=a,client-id=x", "user=b", "user=c", "cluster"], chance.randint(1, 3))
        keys = [chance.sample("xyz", chance.randint(1, 2)) for _ in names]
        entities = [entity(name, *of) for name, of in zip(names, keys, strict=True)]
        intents.append(intent(change_id(START_MS + number // 10, number), *entities))
    await log.intend(intents)
    outcomes = {each.change_id: (rejected if chance.random() < 0.3 else committed)(each) for each in intents}
    await log.conclude(list(outcomes.values()))
    for within, key, entity_id in product(MANY, [None, "x"], [None, "user=a", "user=b"]):
        expected = []
        for one in sorted(intents, key=lambda each: each.change_id, reverse=True):
            shown = tuple(each for each in one.entities if each.entity_id in within)
            if any(entity_id in {None, each.entity_id} and (key is None or key in each.keys) for each in shown):
                expected.append((replace(one, entities=shown), len(shown) < len(one.entities)))
        records = await all_changes(log, chance.choice([1, 3, 100]), within=within, key=key, entity_id=entity_id)
        assert [(record.intent, record.partial) for record in records] == expected, (within, key, entity_id)
        for record in records:
            outcome = outcomes[record.intent.change_id]
            # The text of an error may name what is left out.
            assert record.outcome == (replace(outcome, error=None) if record.partial else outcome)
        for one in intents[:10]:
            single = await log.get("payments", one.change_id, within=within)
            seen = tuple(each for each in one.entities if each.entity_id in within)
            assert (() if single is None else single.intent.entities) == seen


async def test_registrations_within_ranges_equal_a_naive_filter(pool: Database, migrated: servers.Database) -> None:
    ids = [f"user={user}{pair}" for user in "abcdefgh" for pair in ("", ",client-id", ",client-id=x")]
    rows = ", ".join(
        f"('seen', 'payments', '{each}', 's', '{version}', ARRAY['acks'], now(), current_date)"
        for each in ids
        for version in ("1", "2")
    )
    columns = "event, cluster, entity_id, software_name, software_version, supported_configs, seen_at, seen_on"
    run(migrated.owner_dsn, f"INSERT INTO registrations ({columns}) VALUES {rows}")  # noqa: S608 - of this test alone
    run(
        migrated.owner_dsn,
        "INSERT INTO registrations (event, cluster, entity_id, principal, request_id)"
        " VALUES ('cleared', 'payments', 'user=c', 'p', 'r')",
    )
    log = PostgresRegistrationLog(pool, ranges_per_read=2)
    few = [
        NameRanges.of((f"user={user}", f"user={user}-") for user in users)
        for users in ("", "c", "h", "aceg", "abcdxyz")
    ]
    for within, page_size in product([*MANY, *few], (1, 3, 50)):
        found: list[tuple[str, str]] = []
        after = None
        while True:
            page, after = await log.search("payments", entity_id=None, page_size=page_size, after=after, within=within)
            assert len(page) <= page_size
            found += [(each.entity_id, each.software_version) for each, _, _ in page]
            if after is None:
                break
        assert found == [
            (each, version) for each in ids if each in within and each != "user=c" for version in ("1", "2")
        ], (within, page_size)
    page, _ = await log.search("payments", entity_id="user=a", page_size=9, after=None, within=few[1])
    assert page == []


async def test_rows_of_rollups_within_ranges_equal_a_naive_filter(pool: Database, migrated: servers.Database) -> None:
    run_id = uuid.uuid4()
    ids = ["", *(f"user={user}" for user in "abcabcabc")]
    run(
        migrated.owner_dsn,
        "INSERT INTO rollup_runs (id, cluster, job, state, as_of, position, principal, finished_at, row_count)"  # noqa: S608 - as above
        f" VALUES ('{run_id}', 'payments', 'quotas', 'complete', now(), '{{}}', 'p', now(), {len(ids)})",
    )
    run(migrated.owner_dsn, f"INSERT INTO rollup_parts VALUES ('{run_id}', 0, {len(ids)})")  # noqa: S608 - as above
    for ordinal, each in enumerate(ids):
        run(
            migrated.owner_dsn,
            "INSERT INTO rollup_rows (run_id, part, ordinal, entity_id, item)"  # noqa: S608 - as above
            f" VALUES ('{run_id}', 0, {ordinal}, '{each}', '{{\"n\": {ordinal}, \"odd\": {ordinal % 2}}}')",
        )
    rollups = PostgresRollups(pool, window=2)
    odd: dict[str, Any] = {"odd": 1}
    for within, members, entity_id in product(MANY, [None, odd], [None, "user=a", "user=b"]):
        found: list[int] = []
        after: Place | None = None
        while True:
            query = RowQuery(run_id, 2, entity_id, members, after, within)
            page = await rollups.rows(query)
            assert page is not None
            found += [item["n"] for item in page[0]]
            after = page[1]
            if after is None:
                break
        assert found == [
            number
            for number, each in enumerate(ids)
            if each in within and entity_id in {None, each} and (members is None or number % 2)
        ], (within, members, entity_id)
