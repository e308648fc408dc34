"""A migrated database, and the two logs on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from confplane.audit import Database, PostgresAuditLog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

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
