"""A migrated database, and the two logs on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from confplane.audit import Database, PostgresAuditLog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support import servers


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
