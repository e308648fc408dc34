from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from confplane.audit import Database, PostgresAuditLog, revisions
from confplane.domain.errors import UnavailableError
from tests.audit.rows import intent, run

if TYPE_CHECKING:
    from tests.support import servers


async def warnings_of(dsn: str) -> list[str]:
    pool = Database(dsn, 2)
    try:
        return [str(notice) for notice in await PostgresAuditLog(pool).check()]
    finally:
        await pool.close()


async def test_a_database_as_it_should_be_has_no_warnings(migrated: servers.Database) -> None:
    assert await warnings_of(migrated.service_dsn) == []


async def test_an_empty_database_names_the_command_to_run(database: servers.Database) -> None:
    with pytest.raises(UnavailableError, match="run `confplane migrate`"):
        await warnings_of(database.service_dsn)
    pool = Database(database.service_dsn, 2)
    with pytest.raises(UnavailableError, match="run `confplane migrate`"):
        await PostgresAuditLog(pool).intend([intent()])
    await pool.close()


async def test_an_older_schema_names_the_command_to_run(
    migrated: servers.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = revisions.head_revision()
    monkeypatch.setattr(revisions, "head_revision", lambda: "9999")
    with pytest.raises(
        UnavailableError, match=f"at revision {head} and this version needs 9999; run `confplane migrate`"
    ):
        await warnings_of(migrated.service_dsn)


async def test_a_newer_schema_is_a_warning_so_that_replicas_go_on_while_a_version_is_rolled_out(
    migrated: servers.Database,
) -> None:
    run(migrated.owner_dsn, "UPDATE alembic_version SET version_num = '9999'")
    (warning,) = await warnings_of(migrated.service_dsn)
    assert "9999" in warning


@pytest.mark.parametrize("value", ["off", "local"])
async def test_commits_that_a_crash_may_lose_are_a_warning(migrated: servers.Database, value: str) -> None:
    run(migrated.owner_dsn, f"ALTER DATABASE {migrated.name} SET synchronous_commit = {value}")
    (warning,) = await warnings_of(migrated.service_dsn)
    assert f"synchronous_commit is {value}" in warning


async def test_a_service_that_owns_the_tables_is_a_warning(migrated: servers.Database) -> None:
    (warning,) = await warnings_of(migrated.owner_dsn)
    assert (
        "confplane_owner owns access_changes, access_version, applied_entities, applied_keys, applied_reports,"
        " change_keys, change_request_events, change_request_numbers, change_request_revisions, change_requests,"
        in warning
    )


@pytest.mark.parametrize("right", ["UPDATE", "DELETE", "TRUNCATE"])
async def test_a_right_too_many_is_a_warning(migrated: servers.Database, right: str) -> None:
    run(migrated.owner_dsn, f"GRANT {right} ON outcomes TO confplane")
    (warning,) = await warnings_of(migrated.service_dsn)
    assert "may update, delete or truncate outcomes" in warning


@pytest.mark.parametrize(
    ("right", "table"), [("SELECT", "grants"), ("INSERT", "outcomes"), ("UPDATE", "tokens"), ("DELETE", "schedules")]
)
async def test_a_missing_right_is_a_warning(migrated: servers.Database, right: str, table: str) -> None:
    run(migrated.owner_dsn, f"REVOKE {right} ON {table} FROM confplane")
    (warning,) = await warnings_of(migrated.service_dsn)
    assert warning == f"The service's role confplane lacks rights on {table}: run `confplane migrate`."
