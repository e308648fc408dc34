"""A ZooKeeper whose own logs can be read, and scenes on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from confplane.devstack.zookeeper import ZooKeeper
from tests.faults.scenes import Scene, set_up_scene

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.support.servers import Database


@pytest.fixture(scope="module")
def logged_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A ZooKeeper whose logs are here to be read, whichever the other tests use."""
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper"), durable=False) as server:
        yield server


@pytest.fixture
async def scene(tmp_path: Path, logged_zookeeper: ZooKeeper, migrated: Database) -> AsyncIterator[Scene]:
    """A scene on a chroot and a database of the test's own."""
    async with set_up_scene(tmp_path, logged_zookeeper, migrated) as found:
        yield found
