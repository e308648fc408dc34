"""The reconciler's search of the trail: every open change, whichever clock made its id, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from uuid_utils.compat import uuid7

from confplane.audit import PostgresOpenChanges, migrate
from tests.audit.rows import change_id, committed, fetch, intent, rejected, run

if TYPE_CHECKING:
    from uuid import UUID

    from confplane.audit import Database, PostgresAuditLog
    from confplane.services.ports.open_changes import OpenChange
    from tests.support import servers

YEARS_AGO = 1_500_000_000_000
"""The time of an id, in milliseconds."""


@pytest.fixture
def changes(pool: Database) -> PostgresOpenChanges:
    return PostgresOpenChanges(pool)


def ids(found: list[OpenChange]) -> set[UUID]:
    return {change.change_id for change in found}


async def test_new_open_changes_are_found_with_what_settling_needs(
    changes: PostgresOpenChanges, log: PostgresAuditLog
) -> None:
    lone, done, refused, tried = intent(writer="w-1"), intent(), intent(), intent(writer="w-2")
    await log.intend([lone, done, refused, tried])
    await log.intend([intent(tried.change_id, attempt=2, writer="w-3"), intent(cluster="other")])
    await log.conclude([committed(done), rejected(refused)])
    found, since = await changes.new("payments", None, ())
    assert ids(found) == {lone.change_id, tried.change_id}
    by_id = {change.change_id: change for change in found}
    assert by_id[lone.change_id].attempt == 1
    assert by_id[lone.change_id].writers == {"w-1"}
    assert by_id[tried.change_id].attempt == 2
    assert by_id[tried.change_id].writers == {"w-2", "w-3"}
    assert 0 <= by_id[lone.change_id].age_s < 60
    again, later = await changes.new("payments", since, ())
    assert ids(again) == ids(found)
    assert later > since
    await log.conclude([committed(lone), rejected(tried)])
    assert (await changes.new("payments", since, tuple(by_id)))[0] == []


async def test_an_id_of_a_clock_that_is_years_behind_is_found_as_new(
    changes: PostgresOpenChanges, log: PostgresAuditLog
) -> None:
    _, since = await changes.new("payments", None, ())
    late = intent(change_id(YEARS_AGO, 1))
    await log.intend([late])
    found, _ = await changes.new("payments", since, ())
    assert ids(found) == {late.change_id}


async def test_what_is_not_new_any_more_is_found_while_it_is_known(pool: Database, log: PostgresAuditLog) -> None:
    one, two = intent(), intent()
    await log.intend([one, two])
    changes = PostgresOpenChanges(pool, overlap_s=0)
    _, since = await changes.new("payments", None, [one.change_id])
    found, since = await changes.new("payments", since, [one.change_id])
    assert ids(found) == {one.change_id}
    await log.conclude([committed(one)])
    assert (await changes.new("payments", since, [one.change_id]))[0] == []


async def test_old_open_changes_are_found_by_the_walk_back_and_the_walk_ends(
    pool: Database, log: PostgresAuditLog
) -> None:
    changes = PostgresOpenChanges(pool, piece=20)
    made = [intent(change_id(YEARS_AGO + number * 60_000, number)) for number in range(50)]
    await log.intend([*made, *(intent(one.change_id, attempt=2) for one in made[::5]), intent(cluster="other")])
    still_open = {one.change_id for one in made[::7]}
    await log.conclude([committed(one) for one in made if one.change_id not in still_open])
    found: set[UUID] = set()
    before: UUID | None = None
    for last in (False, False, True):
        piece, before = await changes.old("payments", before)
        found |= ids(piece)
        assert (before is None) is last
    assert found == still_open
    assert (await changes.old("nobody", None)) == ([], None)


async def test_what_is_known_of_marked_changes(changes: PostgresOpenChanges, log: PostgresAuditLog) -> None:
    done, refused, lone, lost = intent(writer="w-1"), intent(writer="w-2"), intent(writer="w-3"), uuid7()
    orphan = intent()
    await log.intend([done, refused, lone])
    await log.conclude([committed(done), rejected(refused), committed(orphan)])
    asked = [done.change_id, refused.change_id, lone.change_id, lost, orphan.change_id]
    found = {each.change_id: each for each in await changes.marked(asked)}
    assert {key: (each.committed, set(each.writers)) for key, each in found.items()} == {
        done.change_id: (True, {"w-1"}),
        refused.change_id: (False, {"w-2"}),
        lone.change_id: (None, {"w-3"}),
        lost: (None, set()),
        orphan.change_id: (True, set()),
    }
    assert all((each.age_s is None) is (each.committed is None) for each in found.values())
    assert all(each.age_s is None or 0 <= each.age_s < 60 for each in found.values())
    assert await changes.marked([]) == []


async def test_a_different_second_outcome_is_counted_and_an_equal_one_is_not(
    log: PostgresAuditLog, migrated: servers.Database, caplog: pytest.LogCaptureFixture
) -> None:
    one, two, three = intent(), intent(), intent()
    await log.intend([one, two, three])
    await log.conclude([committed(one), rejected(two), committed(three)])
    # The same abort, told by whoever settled it: another attempt, another text.
    settled = rejected(intent(two.change_id, attempt=2))
    await log.conclude([committed(one), settled, committed(three, revision=5)])
    await log.close()
    assert log.differing == 1
    assert f"Change {three.change_id} has a second, different outcome" in caplog.text
    assert any("a second outcome" in str(warning) for warning in await log.check())
    assert fetch(migrated.owner_dsn, "SELECT count(*) FROM outcomes WHERE revision = 5") == [(0,)]


def test_the_index_is_built_while_others_write_and_a_broken_one_is_rebuilt(database: servers.Database) -> None:
    migrate.upgrade(database.owner_dsn, "confplane")
    run(
        database.owner_dsn,
        "UPDATE alembic_version SET version_num = '0001';"
        "DROP TABLE entity_states, watermarks, request_keys, request_changes;"
        "DROP TABLE rollup_partitions, rollup_parts, rollup_rows, rollup_runs;"
        "DROP TABLE access_changes, access_version, applied_entities, applied_keys, applied_reports, deliveries, grants,"
        " target_states, tokens;"
        "ALTER TABLE intents DROP COLUMN kind, DROP COLUMN writes, DROP COLUMN behalf_of;"
        "ALTER TABLE intents DROP COLUMN revert_at, DROP COLUMN ends, DROP COLUMN applies;"
        "DROP TABLE change_requests, change_request_revisions, change_request_events, change_request_numbers;"
        "DROP TABLE observed_topics, schedule_pauses, schedules, topic_polls;"
        "DROP TABLE console_sessions, manifest_runs, store_positions, refused_attempts, webhooks, webhook_deliveries;"
        "ALTER TABLE outcomes DROP COLUMN remade, DROP COLUMN incarnation;"
        "DROP TRIGGER append_only_kept ON registrations",
    )
    with psycopg.connect(database.owner_dsn) as writing:
        writing.execute("LOCK TABLE intents IN ROW EXCLUSIVE MODE")
        writing.execute("SELECT pg_current_xact_id()")
        # It gives up waiting for that writer, and holds up nobody in the meantime.
        with pytest.raises(Exception, match="lock timeout"):
            migrate.upgrade(database.owner_dsn, "confplane")
    migrate.upgrade(database.owner_dsn, "confplane")
    for index in ("ix_intents_cluster_recorded_at", "ix_outcomes_cluster_revision"):
        valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = %s::regclass"
        assert fetch(database.owner_dsn, valid, index) == [(True,)]
