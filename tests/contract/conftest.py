"""One service on real servers for all tests of the contract, which keep apart by their entities' names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import servers
from tests.support.published import publish_all
from tests.support.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper


@pytest.fixture(scope="module")
def service(zookeeper: ZooKeeper, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A running service for the tests of a module."""
    database = servers.make_migrated(postgres)
    publish_all(database.service_dsn)
    connect = servers.make_chroot(zookeeper.hosts)
    with Service(
        tmp_path_factory.mktemp("service"),
        connect=connect,
        dsn=database.service_dsn,
        settings={
            "CONFPLANE_HTTP__REQUEST_DEADLINE_MS": "3000",
            "CONFPLANE_HTTP__PUBLIC_URL": "https://confplane.example.com",
        },
    ) as running:
        yield running
