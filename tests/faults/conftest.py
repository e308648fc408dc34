"""A ZooKeeper whose logs can be read, and scenarios on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.ensemble import LoggedZooKeeper
from tests.faults.scenario import Scenario, open_scenario

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.support.servers import Database


@pytest.fixture(scope="module")
def logged_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggedZooKeeper]:
    """A ZooKeeper for the module's scenarios."""
    with LoggedZooKeeper(tmp_path_factory.mktemp("zookeeper"), durable=False) as server:
        yield server


@pytest.fixture
async def scenario(tmp_path: Path, logged_zookeeper: LoggedZooKeeper, migrated: Database) -> AsyncIterator[Scenario]:
    """A scenario on a chroot and a database of the test's own."""
    async with open_scenario(tmp_path, logged_zookeeper, migrated) as found:
        yield found
