"""A migrated database, the two logs on it, and the services of tokens and grants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
import pytest
import pytest_asyncio

from confplane.audit import Database, PostgresAccessStore, PostgresAuditLog, PostgresRollups
from confplane.audit.rollup_runs import RollupRuns
from tests.audit.rows import past_the_trigger
from tests.support.access_world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support import servers


@pytest_asyncio.fixture
async def pool(migrated: servers.Database, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """The service's connections to it: four, or as many as the parameter says."""
    pool = Database(migrated.service_dsn, getattr(request, "param", 4))
    await pool.start()
    yield pool
    await pool.close()


@pytest_asyncio.fixture
async def log(pool: Database) -> AsyncIterator[PostgresAuditLog]:
    """The trail in it."""
    log = PostgresAuditLog(pool)
    yield log
    await log.close()


@pytest.fixture
def rollups(pool: Database) -> PostgresRollups:
    """The results of rollups in it."""
    return PostgresRollups(pool)


@pytest.fixture
def runs(migrated: servers.Database) -> RollupRuns:
    """The runs of the rollups of one cluster."""
    return RollupRuns(migrated.service_dsn, "payments")


@pytest_asyncio.fixture(scope="module")
async def access_store(module_database: servers.Database) -> AsyncIterator[PostgresAccessStore]:
    """The tokens and grants of a module."""
    pool = Database(module_database.service_dsn, 4)
    await pool.start()
    yield PostgresAccessStore(pool)
    await pool.close()


@pytest.fixture
def world(access_store: PostgresAccessStore, module_database: servers.Database) -> World:
    """The services of tokens and grants on empty tables: emptying them is quicker than a database for each test."""
    empty = "TRUNCATE access_changes, grants, tokens; UPDATE access_version SET tokens_from = NULL"
    past_the_trigger(module_database.owner_dsn, "access_changes", empty)
    return World(access_store)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The statements sent to Postgres."""
    sent: list[object] = []
    execute = psycopg.AsyncCursor.execute

    async def note(cursor: psycopg.AsyncCursor, query: LiteralString, *args: Any, **options: Any) -> Any:
        sent.append(query)
        return await execute(cursor, query, *args, **options)

    monkeypatch.setattr(psycopg.AsyncCursor, "execute", note)
    return sent
