"""A service on real ZooKeeper and Postgres, and a client that speaks to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from confplane.audit.migrate import upgrade
from confplane.devstack.postgres import OWNER, SERVICE
from tests.support import servers
from tests.support.forgetful import Forgetful
from tests.support.service import Service
from tests.support.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.facets import ConfplaneClient


@pytest.fixture(scope="session")
def migrated_server(tmp_path_factory: pytest.TempPathFactory) -> Forgetful:
    """A server with a migrated database ``trail``, stopped, to be copied."""
    with Forgetful(tmp_path_factory.mktemp("migrated")) as server:
        server.create_database("trail")
        upgrade(server.dsn(OWNER, "trail"), SERVICE)
    return server


@pytest.fixture
def own_postgres(migrated_server: Forgetful, tmp_path: Path) -> Iterator[Postgres]:
    """A server of the test's own, to be stopped and started, with a migrated database ``trail``."""
    with migrated_server.copy(tmp_path / "postgres") as server:
        yield server


@pytest.fixture(scope="module")
def module_chroot(zookeeper: ZooKeeper) -> str:
    """One chroot for the tests of a module, which keep apart by their entities' names."""
    return servers.make_chroot(zookeeper.hosts)


@pytest.fixture(scope="module")
def module_database(postgres: Postgres) -> Iterator[servers.Database]:
    """One migrated database for the tests of a module."""
    yield from servers.lent(postgres, servers.make_migrated(postgres))


@pytest.fixture(scope="module")
def service(
    module_chroot: str, module_database: servers.Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """One service for the tests of a module."""
    with Service(tmp_path_factory.mktemp("service"), connect=module_chroot, dsn=module_database.service_dsn) as running:
        yield running


@pytest_asyncio.fixture
async def client(service: Service) -> AsyncIterator[ConfplaneClient]:
    """A client of that service."""
    async with service.client() as connected:
        yield connected


@pytest.fixture(scope="module")
def zk(module_chroot: str) -> Iterator[KazooClient]:
    """A plain kazoo client on the service's chroot: what a broker sees."""
    yield from servers.raw_client(module_chroot)


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """The directory for the files of a test's own processes."""
    return tmp_path


@pytest.fixture
async def world(tmp_path: Path, chroot: str, migrated: servers.Database, raw_zk: KazooClient) -> AsyncIterator[World]:
    """Services and replicas on stores of the test's own."""
    async with World(tmp_path, chroot, migrated, raw_zk) as world:
        yield world


@pytest.fixture(scope="module")
def pair(
    module_chroot: str, module_database: servers.Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Service, Service]]:
    """Two services for the tests of a module."""
    directory = tmp_path_factory.mktemp("pair")
    options: dict[str, Any] = {"connect": module_chroot, "dsn": module_database.service_dsn}
    with Service(directory, **options) as one, Service(directory, **options) as two:
        yield one, two
