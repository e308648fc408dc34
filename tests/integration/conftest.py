"""A Kafka cluster without ZooKeeper, as a double, and the processes that write to it; commands on a real service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from typer.testing import CliRunner

from confplane.cli.commands import cli
from tests.support import servers
from tests.support.adopting import ALICE, OTHER, RATE, opener
from tests.support.commands import Said
from tests.support.configs import clear_brokers
from tests.support.kafka_double import KafkaDouble

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.adopting import Opener
    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service
    from tests.support.world import World


@pytest.fixture
def kafka() -> KafkaDouble:
    made = KafkaDouble()
    made.alter(ALICE, {RATE: "1024", OTHER: "1"})
    return made


@pytest.fixture
def usual_mode() -> str:
    """The mode of the cluster; files and tests may have another."""
    return "adopt"


@pytest.fixture
async def opened(world: World, kafka: KafkaDouble, usual_mode: str) -> AsyncIterator[Opener]:
    """Opens processes of the cluster; the first imports it, and sets the mode."""
    async with opener(world, kafka, usual_mode) as found:
        yield found


@pytest.fixture
async def opened_with_encoder(world: World, kafka: KafkaDouble, tmp_path: Path) -> AsyncIterator[Opener]:
    """Opens processes that adopt the cluster, with a secret for the passwords of brokers."""
    secret = tmp_path / "encoder"
    secret.write_text("encoder secret")
    async with opener(world, kafka, password_encoder={"secret_file": str(secret), "iterations": 1024}) as found:
        yield found


@pytest_asyncio.fixture
async def no_brokers(client: ConfplaneClient) -> AsyncIterator[None]:
    """Leaves no configs of brokers behind."""
    yield
    await clear_brokers(client)


@pytest.fixture
def command_environment(
    service: Service, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment of commands on the service."""
    token = tmp_path_factory.mktemp("commands") / "token"
    token.write_text(service.token)
    monkeypatch.setenv("CONFPLANE_URL", service.url)
    monkeypatch.setenv("CONFPLANE_TOKEN_FILE", str(token))


@pytest.fixture
def run(command_environment: None) -> Callable[..., Said]:  # noqa: ARG001 - for its effect
    """Runs a command to its end."""

    def ran(*words: str, given: str | None = None) -> Said:
        result = CliRunner().invoke(cli, list(words), input=given)
        return Said(result.exit_code, result.stdout, result.stderr)

    return ran


@pytest.fixture(scope="module")
def copy_chroot(zookeeper: ZooKeeper) -> str:
    return servers.make_chroot(zookeeper.hosts)


@pytest.fixture(scope="module")
def copy(copy_chroot: str) -> Iterator[KazooClient]:
    """The cluster ``copy``, which is empty at first."""
    yield from servers.raw_client(copy_chroot)
