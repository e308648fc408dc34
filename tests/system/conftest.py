"""A trail on a migrated database, as the tests of tests/audit have it."""

from __future__ import annotations

from tests.audit.conftest import log, pool

__all__ = ["log", "pool"]
