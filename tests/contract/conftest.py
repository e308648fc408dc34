"""One service on real servers for all tests of the contract, which keep apart by their entities' names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.api import run_service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.service import Service


@pytest.fixture(scope="module")
def service(zookeeper: ZooKeeper, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A running service for the tests of a module."""
    yield from run_service(zookeeper, postgres, tmp_path_factory.mktemp("service"))
