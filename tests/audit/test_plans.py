"""On tables of some size every search goes by an index: what holds here holds on a thousand times as many rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio
from sqlalchemy import event

from confplane.audit import (
    Database,
    PostgresAuditLog,
    PostgresOpenChanges,
    PostgresRegistrationLog,
    PostgresTrailHistory,
    later_changes,
    trail_queries,
)
from confplane.domain.access.ranges import EVERYTHING, NameRanges
from confplane.domain.facets import Tree
from confplane.services.ports.history import TouchedKeys, Znode
from confplane.services.ports.trail import AuditQuery
from tests.audit.rows import run
from tests.support import servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from confplane.devstack.postgres import Postgres

# 60,000 changes, one each 10 ms, of two clusters, 1,000 principals, 5,000 entities; one in twenty has a second attempt,
# one in a hundred each a rare key, a rejection, no outcome; one in five hundred an id of a clock that is two days behind. And three days of 20,000 entities' registrations.
FILL = """
CREATE TEMPORARY TABLE made AS
SELECT
  (lpad(to_hex(1763682000000 + i * 10 - CASE WHEN i % 500 = 0 THEN 172800000 ELSE 0 END), 12, '0')
    || '70008' || substr(md5(i::text), 1, 15))::uuid AS change_id,
  to_timestamp(1763682000 + i / 100.0) AS at,
  i, CASE WHEN i % 3 = 0 THEN 'payments' ELSE 'other' END AS cluster
FROM generate_series(1, 60000) AS i;
INSERT INTO intents (change_id, attempt, cluster, principal, writer, source, request_id, recorded_at)
SELECT change_id, attempt, cluster, 'User:p' || i % 1000, 'w', 's', 'r' || i % 1000, at
FROM made CROSS JOIN generate_series(1, 2) AS attempt WHERE attempt = 1 OR i % 20 = 0;
INSERT INTO intent_entities
SELECT change_id, attempt, 0, made.cluster, 'user=u' || i % 5000, 'client-quotas', '/config/users/u' || i % 5000, 1, 1,
  ARRAY[CASE WHEN i % 100 = 0 THEN 'rare' ELSE 'common' END], '[]', '{}', '{}'
FROM made JOIN intents USING (change_id);
INSERT INTO change_keys SELECT DISTINCT cluster, unnest(keys), change_id FROM intent_entities;
INSERT INTO outcomes (change_id, attempt, cluster, committed, revision, time, versions)
SELECT change_id, 1, cluster, i % 100 <> 3, i, CASE WHEN i % 100 <> 3 THEN at END, '{}' FROM made WHERE i % 100 <> 6;
INSERT INTO registrations (
  event, cluster, entity_id, software_name, software_version, supported_configs, seen_at, seen_on)
SELECT 'seen', 'payments', 'user=u' || entity, 'librdkafka', '1', ARRAY['acks'], day, day::date
FROM generate_series(1, 20000) AS entity
CROSS JOIN generate_series(TIMESTAMPTZ '2026-05-01', TIMESTAMPTZ '2026-05-03', INTERVAL '1 day') AS day;
INSERT INTO registrations (event, cluster, entity_id, principal, request_id)
SELECT 'cleared', 'payments', 'user=u' || entity * 40, 'p', 'r' FROM generate_series(1, 500) AS entity;
ANALYZE;
"""

TABLES = ("intents", "intent_entities", "change_keys", "outcomes", "registrations")


@pytest.fixture(scope="module")
def large(postgres: Postgres) -> servers.Database:
    database = servers.make_migrated(postgres)
    run(database.owner_dsn, FILL)
    return database


class Plans:
    """Notes the statements of a pool, and asks Postgres how it runs them."""

    def __init__(self, dsn: str) -> None:
        self.pool = Database(dsn, 4)
        self._dsn = dsn
        self._noted: list[tuple[str, Any]] = []
        event.listen(self.pool._engine.sync_engine, "before_cursor_execute", self._note)

    def _note(self, _connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        if any(table in statement for table in TABLES):
            self._noted.append((statement, parameters))

    def explained(self) -> list[str]:
        """Return the plans of the statements since the last call."""
        assert self._noted
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            found = [
                "\n".join(row[0] for row in connection.execute("EXPLAIN " + statement, parameters))
                for statement, parameters in self._noted
            ]
        self._noted.clear()
        return found

    def scanned_whole(self) -> list[str]:
        """Return those of the plans that read a whole table."""
        return [plan for plan in self.explained() if any(f"Seq Scan on {table}" in plan for table in TABLES)]


@pytest_asyncio.fixture
async def plans(large: servers.Database) -> AsyncIterator[Plans]:
    plans = Plans(large.service_dsn)
    yield plans
    await plans.pool.close()


FEW = NameRanges.of((f"user=u{number}", f"user=u{number}-") for number in range(1, 20_000, 50))
"""Four hundred users, by name."""
SEEN = {f"user=u{number}" for number in range(1, 20_000, 50)}


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(1_763_682_000 + seconds, UTC)


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"since": at(100), "until": at(110)},
        {"since": at(590)},
        {"entity_id": "user=u6", "since": at(100)},
        {"entity_id": "user=u6"},
        {"entity_id": "user=u6", "key": "common"},
        {"key": "rare"},
        {"key": "common"},
        {"key": "rare", "since": at(100), "until": at(110)},
        {"key": "never"},
        {"principal": "User:p6"},
        {"principal": "nobody"},
        {"outcome": "committed"},
        {"request_id": "r6"},
        {"request_id": "nobody"},
        {"within": FEW, "request_id": "r6"},
        {"outcome": "rejected"},
        {"outcome": "open"},
        {"outcome": "open", "since": at(590), "until": at(600)},
        {"key": "common", "principal": "User:p9", "outcome": "committed"},
        {"within": FEW},
        {"within": FEW, "key": "common"},
        {"within": FEW, "since": at(100), "until": at(110)},
        {"within": FEW, "outcome": "open"},
    ],
)
async def test_a_search_of_the_trail_goes_by_an_index(
    plans: Plans, filters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As small beside these tables as the real one is beside large ones.
    monkeypatch.setattr(trail_queries, "OPEN_WINDOW", 1_000)
    log = PostgresAuditLog(plans.pool)
    page, cursor = await log.search(AuditQuery("payments", **filters))
    if "within" in filters:
        assert {each.entity_id for record in page for each in record.intent.entities} <= SEEN
        await log.get("payments", UUID(int=0), within=FEW)
    else:
        assert bool(page) is not bool({"never", "nobody"} & set(map(str, filters.values())))
    if cursor is not None:
        await log.search(AuditQuery("payments", before=cursor, **filters))
    assert plans.scanned_whole() == []


async def test_changes_whose_ids_are_far_from_their_time_are_found_by_the_indexes_of_those(plans: Plans) -> None:
    page, _ = await PostgresAuditLog(plans.pool).search(
        AuditQuery("payments", since=at(100), until=at(110), page_size=1000)
    )
    # 1,000 changes begin in these ten seconds, a third of them of this cluster, and the id of one says two days ago.
    assert len(page) == 333
    assert sum(trail_queries.created_at(record.intent.change_id) < at(0) for record in page) == 1
    windows = [plan for plan in plans.explained() if "Append" in plan]
    assert windows
    assert all("using ix_intents_far" in plan and "using ix_outcomes_far" in plan for plan in windows)


async def test_open_changes_are_found_by_indexes(plans: Plans) -> None:
    changes = PostgresOpenChanges(plans.pool, piece=1_000)
    page, _ = await PostgresAuditLog(plans.pool).search(AuditQuery("payments", page_size=100))
    ids = [record.intent.change_id for record in page]
    plans.scanned_whole()
    _, since = await changes.new("payments", None, ids)
    await changes.new("payments", since, [])
    found, before = await changes.old("payments", None)
    assert found
    await changes.old("payments", before)
    assert len(await changes.marked(ids)) == 100
    assert plans.scanned_whole() == []


async def test_one_change_is_found_by_its_id(plans: Plans) -> None:
    log = PostgresAuditLog(plans.pool)
    page, _ = await log.search(AuditQuery("payments", page_size=1))
    assert await log.get("payments", page[0].intent.change_id) == page[0]
    assert plans.scanned_whole() == []


async def test_registrations_are_read_by_an_index(plans: Plans) -> None:
    log = PostgresRegistrationLog(plans.pool)
    page, cursor = await log.search("payments", entity_id=None, page_size=50, after=None)
    assert len(page) == 50
    await log.search("payments", entity_id=None, page_size=50, after=cursor)
    await log.search("payments", entity_id="user=u7", page_size=50, after=None)
    page, _ = await log.search("payments", entity_id=None, page_size=500, after=None, within=FEW)
    assert {each.entity_id for each, _, _ in page} == SEEN
    assert plans.scanned_whole() == []
    await log._load()
    assert len(log.compatibility("payments", "user=u7")) == 1
    assert log.compatibility("payments", "user=u40") == []
    await log._read_new()
    assert plans.scanned_whole() == []


ZNODES = [Znode(Tree.CONFIG, f"user=u{number}") for number in (3, 6, 9, 4_999, 7_777)]


@pytest.mark.parametrize("revision", [0, 300, 30_000, 59_990])
async def test_the_changes_around_a_revision_are_found_by_indexes(plans: Plans, revision: int) -> None:
    history = PostgresTrailHistory(plans.pool)
    found = await history.around("payments", ZNODES, revision)
    assert plans.scanned_whole() == []
    for znode, around in zip(ZNODES, found, strict=True):
        number = int(znode.entity_id.removeprefix("user=u"))
        committed = [i for i in range(1, 60_001) if i % 3 == 0 and i % 100 not in {3, 6} and i % 5_000 == number]
        earlier = max((i for i in committed if i <= revision), default=None)
        later, after_later, *_ = *(i for i in committed if i > revision), None, None
        assert [None if each is None else each.revision for each in (around.earlier, around.later, around.after_later)] == [
            earlier, later, after_later
        ]  # fmt: skip


def touched(revision: int, *, keys: tuple[str, ...] | None, time_ms: int | None) -> list[TouchedKeys]:
    return [TouchedKeys(znode.entity_id, keys, revision, time_ms) for znode in ZNODES]


@pytest.mark.parametrize("revision", [0, 300, 30_000, 59_990])
@pytest.mark.parametrize("timed", [True, False])
async def test_later_changes_of_keys_are_found_by_indexes(plans: Plans, revision: int, *, timed: bool) -> None:
    history = PostgresTrailHistory(plans.pool)
    time_ms = 1_763_682_000_000 + revision * 10 if timed else None
    for keys in (None, ("common",), ("rare", "never")):
        found = await history.later("payments", touched(revision, keys=keys, time_ms=time_ms))
        assert plans.scanned_whole() == []
        for znode, later in zip(ZNODES, found, strict=True):
            number = int(znode.entity_id.removeprefix("user=u"))
            committed = [i for i in range(1, 60_001) if i % 3 == 0 and i % 100 not in {3, 6} and i % 5_000 == number]
            named = [i for i in committed if keys is None or ("rare" if i % 100 == 0 else "common") in keys]
            assert later is not None
            assert [each.change.revision for each in later] == sorted((i for i in named if i > revision), reverse=True)


async def test_a_search_for_later_changes_is_bounded(plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later_changes, "EXAMINED", 3)
    found = await PostgresTrailHistory(plans.pool).later("payments", touched(0, keys=None, time_ms=None))
    assert found[:4] == [None] * 4
    assert found[4] == []


@pytest.mark.parametrize("within", [EVERYTHING, FEW])
async def test_a_list_reads_as_many_entities_as_it_wants_however_many_changes_there_are(
    plans: Plans, within: NameRanges
) -> None:
    history = PostgresTrailHistory(plans.pool)
    entities = sorted({f"user=u{i % 5_000}" for i in range(1, 60_001) if i % 3 == 0})
    for revision in (0, 30_000, 59_900, 60_000):
        found: dict[str, bool] = {}
        after, complete = "user=u49", False
        while not complete:
            page = await history.walked("payments", Tree.CONFIG, revision, after=after, size=400, within=within)
            *_, anchor, plan = plans.explained()
            assert not any(f"Seq Scan on {table}" in part for part in (anchor, plan) for table in TABLES)
            assert "ix_outcomes_cluster_revision" in anchor
            assert "ix_intent_entities_cluster_entity_id_change_id" in plan
            assert "ix_outcomes_cluster_revision" not in plan
            assert list(page) == sorted(page)
            assert min(page, default="~") > after
            found |= page
            after, complete = max(page, default=after), len(page) < 400
        visible = [each for each in entities if each > "user=u49" and each in within]
        assert [each for each in found if each in within] == visible
        # One entity that may not be seen is met between two ranges at most.
        assert len(found) <= len(visible) + len(within.starts)
        # Changes close before the revision may be reported too.
        since = {f"user=u{i % 5_000}" for i in range(revision + 1, 60_001) if i % 3 == 0 and i % 100 not in {3, 6}}
        assert {each for each, changed in found.items() if changed} >= since.intersection(visible)
        assert not any(changed for each, changed in found.items() if each not in within)


async def test_the_first_revision_after_a_time_is_found_by_indexes(plans: Plans) -> None:
    history = PostgresTrailHistory(plans.pool)
    for seconds in (-1_000, 0, 100, 590):
        found = await history.first_after("payments", at(seconds))
        assert plans.scanned_whole() == []
        wanted = next(i for i in range(1, 60_001) if i / 100 > seconds and i % 3 == 0 and i % 100 not in {3, 6})
        assert found == wanted
    assert await history.first_after("payments", at(1_000)) is None


@pytest.mark.parametrize("entity_id", ["user=u6", "user=u3", "user=never"])
async def test_a_page_of_a_history_is_found_by_indexes(plans: Plans, entity_id: str) -> None:
    log = PostgresAuditLog(plans.pool)
    number = int(entity_id.removeprefix("user=u")) if entity_id != "user=never" else 0
    expected = [i for i in range(60_000, 0, -1) if i % 3 == 0 and i % 100 not in {3, 6} and i % 5_000 == number]
    found, position = [], None
    while True:
        page, position = await log.history("payments", entity_id, page_size=1, after=position)
        found += [record.outcome.revision for record in page if record.outcome is not None]
        if position is None:
            break
    assert found == (expected if number else [])
    explained = plans.explained()
    assert not [plan for plan in explained if any(f"Seq Scan on {table}" in plan for table in TABLES)]
    # No page reads more than its window, and the changes with far ids.
    assert any("Limit" in plan and "ix_intent_entities_cluster_entity_id_change_id" in plan for plan in explained)
    assert any("ix_outcomes_far" in plan for plan in explained)
