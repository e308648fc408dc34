from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import NullPool, create_engine, make_url

from confplane.audit import migrate, revisions
from confplane.audit.tables import FUNCTIONS, metadata
from confplane.cli.migrate import upgrade_database
from tests.audit.rows import CURRENT, EXPIRING, POSITIONS, TABLES, TRANSIENT, committed, count, fetch, intent, run

if TYPE_CHECKING:
    from confplane.audit import PostgresAuditLog
    from confplane.devstack.postgres import Postgres
    from tests.support import servers


def test_an_empty_database_is_brought_to_the_head_and_a_second_run_changes_nothing(database: servers.Database) -> None:
    told: list[str] = []
    migrate.upgrade(database.owner_dsn, "confplane", progress=told.append)
    assert told[0] == f"The schema went from nothing to revision {revisions.head_revision()}."
    told.clear()
    migrate.upgrade(database.owner_dsn, "confplane", progress=told.append)
    assert told[0] == f"The schema is at revision {revisions.head_revision()} already."
    tables = [
        row[0]
        for row in fetch(database.owner_dsn, "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
    ]
    assert tables == sorted([*TABLES, *EXPIRING, *TRANSIENT, *POSITIONS, *CURRENT, "alembic_version", "rollup_rows_0"])


def test_the_revisions_by_the_names_of_files_are_those_of_alembic() -> None:
    scripts = ScriptDirectory.from_config(migrate._config())
    assert revisions.head_revision() == scripts.get_current_head()
    assert revisions.known_revisions() == {script.revision for script in scripts.walk_revisions()}


def test_two_migrations_at_once_take_turns(database: servers.Database) -> None:
    told: list[str] = []
    with ThreadPoolExecutor(4) as threads:
        runs = [
            threads.submit(migrate.upgrade, database.owner_dsn, "confplane", progress=told.append) for _ in range(4)
        ]
        for one in runs:
            one.result()
    assert sum("from nothing" in line for line in told) == 1
    assert sum("already" in line for line in told) == 3


def test_a_migration_waits_for_another_and_says_so(database: servers.Database) -> None:
    told: list[str] = []
    with psycopg.connect(database.owner_dsn, autocommit=True) as other, ThreadPoolExecutor(1) as threads:
        other.execute("SELECT pg_advisory_lock(%s)", [migrate._ADVISORY_LOCK])
        waiting = threads.submit(migrate.upgrade, database.owner_dsn, "confplane", progress=told.append)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=1)
        assert told == ["Another migration is running; waiting for it."]
        other.execute("SELECT pg_advisory_unlock_all()")
        waiting.result(timeout=60)


def test_the_tables_in_code_are_those_of_the_migrations(migrated: servers.Database) -> None:
    engine = create_engine(make_url(migrated.owner_dsn).set(drivername="postgresql+psycopg"), poolclass=NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_type": True,
                "compare_server_default": True,
                "include_name": lambda name, *_: name != "rollup_rows_0",
            },
        )
        assert compare_metadata(context, metadata) == []
        checks = {
            constraint.name
            for table in metadata.tables.values()
            for constraint in table.constraints
            if constraint is not table.primary_key or table.primary_key.columns
        }
        found = connection.exec_driver_sql(
            "SELECT conname FROM pg_constraint WHERE contype IN ('p', 'c', 'u') AND conrelid::regclass::text = ANY(%s)",
            ([*TABLES, *EXPIRING, *TRANSIENT, *POSITIONS, *CURRENT],),
        )
        assert {row.conname for row in found} == checks
    engine.dispose()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("statement", ["UPDATE {} SET {} = 'x'", "DELETE FROM {}", "TRUNCATE {}"])
def test_nobody_alters_what_was_recorded(
    migrated: servers.Database, postgres: Postgres, table: str, statement: str
) -> None:
    column = {
        "access_changes": "kind",
        "change_request_events": "state",
        "change_request_revisions": "digest",
    }.get(table, "cluster")
    statement = statement.format(table, column)
    if table == "registrations":  # some of its rows expire, so each row is checked
        run(
            migrated.service_dsn,
            "INSERT INTO registrations (event, cluster, principal, request_id) VALUES ('cleared', 'c', 'User:a', 'r')",
        )
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(migrated.service_dsn, statement)
    with pytest.raises(
        psycopg.errors.RestrictViolation, match=f"{table} is append-only: {statement.split(maxsplit=1)[0]}"
    ):
        run(migrated.owner_dsn, statement)
    superuser = postgres.dsn("postgres", migrated.name)
    with pytest.raises(psycopg.errors.RestrictViolation):
        run(superuser, "SET session_replication_role = replica; " + statement)


async def test_a_refused_truncate_leaves_the_rows(migrated: servers.Database, log: PostgresAuditLog) -> None:
    one = intent()
    await log.intend([one])
    await log.conclude([committed(one)])
    with pytest.raises(psycopg.errors.RestrictViolation):
        run(migrated.owner_dsn, "TRUNCATE intents, intent_entities, outcomes, change_keys CASCADE")
    with pytest.raises(psycopg.errors.RestrictViolation):
        run(
            migrated.owner_dsn,
            "INSERT INTO outcomes (change_id, attempt, cluster, committed, versions)"
            " SELECT change_id, attempt, cluster, false, '{}' FROM outcomes"
            " ON CONFLICT (change_id) DO UPDATE SET committed = false",
        )
    assert count(migrated.owner_dsn, "outcomes") == 1


def test_the_service_may_add_drop_keys_and_move_positions_and_nothing_else_however_much_it_was_given(
    migrated: servers.Database,
) -> None:
    rights = """
        SELECT relname, array_agg(privilege ORDER BY privilege)
        FROM pg_class
        CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS privilege
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
          AND has_table_privilege('confplane', pg_class.oid, privilege)
        GROUP BY relname
    """
    expected = {table: ["INSERT", "SELECT"] for table in (*TABLES, *EXPIRING)} | {"alembic_version": ["SELECT"]}
    expected |= {table: ["DELETE", "INSERT", "SELECT", "UPDATE"] for table in TRANSIENT}
    expected |= {table: ["DELETE", "INSERT", "SELECT", "UPDATE"] for table in POSITIONS}
    expected |= {table: ["INSERT", "SELECT", "UPDATE"] for table in CURRENT}
    assert dict(fetch(migrated.owner_dsn, rights)) == expected
    run(migrated.owner_dsn, "GRANT ALL ON ALL TABLES IN SCHEMA public TO confplane; GRANT DELETE ON intents TO PUBLIC")
    assert dict(fetch(migrated.owner_dsn, rights)) != expected
    migrate.upgrade(migrated.owner_dsn, "confplane")
    assert dict(fetch(migrated.owner_dsn, rights)) == expected


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nobody_but_the_service_may_call_what_has_the_rights_of_the_owner(
    migrated: servers.Database, function: str
) -> None:
    callable_by = "SELECT has_function_privilege('confplane', %(of)s, 'EXECUTE'), has_function_privilege('public', %(of)s, 'EXECUTE')"
    run(migrated.owner_dsn, f"GRANT EXECUTE ON FUNCTION {function} TO PUBLIC")
    migrate.upgrade(migrated.owner_dsn, "confplane")
    with psycopg.connect(migrated.owner_dsn) as connection:
        assert connection.execute(callable_by, {"of": function}).fetchone() == (True, False)


def test_an_owner_that_is_the_service_keeps_its_rights_and_is_reported(database: servers.Database) -> None:
    for _ in range(2):
        told: list[str] = []
        migrate.upgrade(database.owner_dsn, "confplane_owner", progress=told.append)
        assert "The service's role confplane_owner owns the tables" in told[-1]
    run(database.owner_dsn, "UPDATE alembic_version SET version_num = version_num")


def test_a_string_that_is_no_dsn_is_refused_without_repeating_it() -> None:
    with pytest.raises(ValueError, match="Not a connection string") as refused:
        migrate.upgrade("postgresql://user:s3cret@host/db?nonsense=1", "confplane")
    assert "s3cret" not in str(refused.value)
    assert refused.value.__suppress_context__


def newer(database: servers.Database, oldest: str | None) -> None:
    """Make the schema look like that of a later release."""
    migrate.upgrade(database.owner_dsn, "confplane")
    run(database.owner_dsn, "UPDATE alembic_version SET version_num = '9999'")
    if oldest is None:
        run(database.owner_dsn, "COMMENT ON TABLE alembic_version IS NULL")
    else:
        sql = "SELECT replace(obj_description('alembic_version'::regclass), %s, %s)"
        [[stated]] = fetch(database.owner_dsn, sql, revisions.OLDEST_RELEASE, oldest)
        assert oldest in stated
        run(database.owner_dsn, f"COMMENT ON TABLE alembic_version IS '{stated}'")


@pytest.mark.parametrize("oldest", [revisions.OLDEST_RELEASE, revisions.head_revision()])
def test_a_schema_of_a_later_release_is_left_as_it_is_if_it_states_so(
    database: servers.Database, oldest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    newer(database, oldest)
    assert upgrade_database(database.owner_dsn, "confplane") == 0
    assert "at revision 9999, of a later release" in capsys.readouterr().out
    assert fetch(database.owner_dsn, "SELECT version_num FROM alembic_version") == [("9999",)]


@pytest.mark.parametrize(
    ("oldest", "reason"), [(None, "does not state that this release"), ("9998", "only releases from revision 9998")]
)
def test_a_schema_of_a_later_release_is_refused_otherwise(
    database: servers.Database, oldest: str | None, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    newer(database, oldest)
    assert upgrade_database(database.owner_dsn, "confplane") == 1
    told = capsys.readouterr().err
    assert reason in told
    assert "Run the later release" in told
    assert fetch(database.owner_dsn, "SELECT version_num FROM alembic_version") == [("9999",)]
