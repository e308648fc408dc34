"""One service on real servers for all tests of a module, which keep apart by their entities' names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.api import publish_and_configure

if TYPE_CHECKING:
    from tests.support.servers import Database


@pytest.fixture(scope="module")
def service_options(module_database: Database, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A result of each rollup, and webhooks."""
    return publish_and_configure(module_database, tmp_path_factory.mktemp("webhooks") / "key")
