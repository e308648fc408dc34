"""One broker for all tests of this folder, Kafka's own tools, and Confplane on the broker's ZooKeeper."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Final

import pytest
import pytest_asyncio

from confplane.devstack.java import find_java
from tests.catalog.kafka_jars import SHORT_LIVED
from tests.interop.admin import Admin
from tests.interop.compare import our_alter, same_configs
from tests.interop.notifications import few_notifications
from tests.support import servers, tools
from tests.support.broker import BROKER_ID, ENCODER_SECRET, Broker
from tests.support.java import java_environment
from tests.support.processes import ROOT
from tests.support.service import Service

_JAVA_FILES: Final = (ROOT / "examples/clients/DynamicConfigs.java", ROOT / "tests/interop/Vectors.java")

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from contextlib import ExitStack

    from kazoo.client import KazooClient

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.facets import ConfplaneClient


@pytest.fixture(scope="session")
def kafka_class_path() -> str:
    """Kafka's jars; tests are skipped where there are none."""
    return tools.obtain(tools.kafka_class_path).read_text()


@pytest.fixture(scope="session")
def kafka_chroot(zookeeper: ZooKeeper) -> str:
    """The chroot that the broker and Confplane share."""
    return servers.make_chroot(zookeeper.hosts)


@pytest.fixture(scope="session")
def broker(
    of_work: ExitStack,
    kafka_class_path: str,
    kafka_chroot: str,
    zk: KazooClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Broker:
    """A running broker. Tests keep apart by the names of their entities."""
    directory = tmp_path_factory.mktemp("kafka")
    running = of_work.enter_context(Broker(directory, class_path=kafka_class_path, connect=kafka_chroot))
    of_work.enter_context(few_notifications(zk))
    return running


@pytest.fixture(scope="module", autouse=True)
def _no_errors(request: pytest.FixtureRequest, broker: Broker) -> Iterator[None]:
    """After each module the broker's log has no errors but those that the module explains, by a part of their text."""
    before = len(broker.errors())
    yield
    explained: tuple[str, ...] = getattr(request.module, "EXPLAINED_ERRORS", ())
    new = [text for text in broker.errors()[before:] if not any(known in text for known in explained)]
    assert not new, "\n".join(new)


@pytest.fixture(scope="session")
def admin(of_work: ExitStack, broker: Broker, kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Admin:
    """Kafka's own tools."""
    directory = tmp_path_factory.mktemp("admin")
    return of_work.enter_context(Admin(directory, class_path=kafka_class_path, bootstrap=broker.bootstrap))


@pytest.fixture(scope="session")
def compiled(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path with the example in Java, compiled without a warning, and with the vectors' program."""
    classes = tmp_path_factory.mktemp("classes")
    done = subprocess.run(
        [str(find_java()), *SHORT_LIVED, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-Xlint:all", "-Xlint:-path", "-Werror",
         "-d", str(classes), "-cp", kafka_class_path, *map(str, _JAVA_FILES)],
        capture_output=True, text=True, check=False, timeout=300, env=java_environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    return f"{classes}{os.pathsep}{kafka_class_path}"


@pytest.fixture(scope="session")
def service(
    of_work: ExitStack,
    broker: Broker,
    kafka_chroot: str,
    postgres: Postgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> Service:
    """Confplane, told what the broker's operators would tell it."""
    directory = tmp_path_factory.mktemp("service")
    secret = directory / "encoder-secret"
    secret.write_text(ENCODER_SECRET)
    database = servers.make_migrated(postgres)
    cluster = {
        "client_configs_layout": "separate",
        "record_external_changes": True,
        "password_encoder": {"secret_file": str(secret)},
        "server_properties": {str(BROKER_ID): str(broker.properties_file)},
    }
    running = of_work.enter_context(Service(directory, connect=kafka_chroot, dsn=database.service_dsn, cluster=cluster))
    # A recorder takes what it finds at its first contact as it is, and writes no rows for it.
    running.wait_recorded()
    return running


@pytest_asyncio.fixture
async def client(service: Service) -> AsyncIterator[ConfplaneClient]:
    """A client of Confplane."""
    async with service.client(timeout_s=60) as connected:
        yield connected


@pytest_asyncio.fixture
async def restored(client: ConfplaneClient, admin: Admin) -> AsyncIterator[None]:
    """Takes everything off the broker again, since it would be effective in the next test."""
    yield
    for name, entity in (("", "broker"), (str(BROKER_ID), f"broker={BROKER_ID}")):
        left = [
            key
            async for item in client.items("configs", kind="broker")
            if item["id"] == entity
            for key in item["configs"]
        ]
        # A store goes with its password; what all listeners share can't change together with what one of them has.
        for of_listeners in (True, False):
            keys = [key for key in left if key.startswith("listener.name.") == of_listeners]
            await our_alter(client, "BROKER", name, *((key, "DELETE", None) for key in keys))
    await same_configs(client, admin, "BROKER", str(BROKER_ID))


@pytest.fixture(scope="session")
def zk(kafka_chroot: str) -> Iterator[KazooClient]:
    """A plain kazoo client on the chroot."""
    yield from servers.raw_client(kafka_chroot)
