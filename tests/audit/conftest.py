"""A migrated database, and the two logs on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from app.audit import Database, PostgresAuditLog, migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support import servers


@pytest.fixture
def migrated(database: servers.Database) -> servers.Database:
    """A fresh database at the schema of this version."""
    migrate.upgrade(database.owner_dsn, "confplane")
    return database


@pytest_asyncio.fixture
async def pool(migrated: servers.Database) -> AsyncIterator[Database]:
    """The service's connections to it."""
    pool = Database(migrated.service_dsn, 4)
    await pool.start()
    yield pool
    await pool.close()


@pytest_asyncio.fixture
async def log(pool: Database) -> AsyncIterator[PostgresAuditLog]:
    """The trail in it."""
    log = PostgresAuditLog(pool)
    yield log
    await log.close()
