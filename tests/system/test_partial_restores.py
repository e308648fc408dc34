"""Restores of one store, or of both at different times, with their own tools: ``confplane doctor`` leads out of each."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from typer.testing import CliRunner, Result

from confplane.cli.commands import cli
from confplane.client.errors import RestoredStoreError
from confplane.devstack.postgres import _installation
from confplane.devstack.zookeeper import ZooKeeper
from tests.support.servers import lent, make_database, raw_client
from tests.support.service import Service
from tests.support.stepping import CONSTANTS_VARIABLE
from tests.support.waiting import until, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.devstack.postgres import Postgres
    from tests.support.servers import Database

RATE: Final = "producer_byte_rate"
SOON: Final = {
    "confplane.services.recorder.record.INTERVAL_S": 0.2,
    "confplane.services.upkeep.incarnation.PUBLISH_INTERVAL_S": 0.2,
    "confplane.services.upkeep.incarnation.INTERVAL_S": 0.2,
}
MOMENTS: Final = (1, 2, 3)
"""The moments of the copies; the last one is the present."""
ADOPT: Final = "confplane adopt-store --cluster default --reason TEXT"
CONFIRM: Final = "confplane tokens confirm --reason TEXT"


def postgres_tool(name: str, *arguments: str) -> None:
    subprocess.run([_installation()[0] / name, *arguments], check=True)


def service_on(directory: Path, connect: str, database: Database) -> Service:
    return Service(
        directory,
        connect=connect,
        dsn=database.service_dsn,
        settings={
            CONSTANTS_VARIABLE: json.dumps(SOON),
            "CONFPLANE_HTTP__DRAIN_MS": "2000",
            "CONFPLANE_POSTGRES__MIGRATION_DSN": database.owner_dsn,
        },
        module="tests.support.stepping",
    )


async def change(service: Service, connect: str, value: int) -> None:
    """Change a quota, and wait until ZooKeeper knows the change as the newest one of Postgres."""
    async with service.client() as client:
        change_id = str((await client.put("client-quotas", "user=a", {RATE: value})).change_id)
        for raw in raw_client(connect):
            await until(partial(names, raw, change_id))


def names(raw: KazooClient, change_id: str) -> bool:
    return change_id in raw.get("/confplane/incarnation")[0].decode()


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory, module_database: Database) -> Path:
    """Copies of both stores, made by their own tools, at three moments between changes."""
    directory = tmp_path_factory.mktemp("copies")
    with (
        ZooKeeper(directory / "zookeeper", durable=False) as server,
        service_on(directory / "service", server.hosts, module_database) as service,
    ):
        service.wait_recorded()
        for moment in MOMENTS:
            asyncio.run(change(service, server.hosts, moment))
            shutil.copytree(server.data_dir / "data", directory / f"zookeeper-{moment}")
            dump = f"--file={directory}/postgres-{moment}"
            postgres_tool("pg_dump", "--format=custom", dump, module_database.owner_dsn)
    return directory


class Restored(NamedTuple):
    """Stores that were restored, and the installation on them."""

    service: Service

    def run(self, *arguments: str) -> Result:
        """Run a command in this process."""
        return CliRunner().invoke(cli, arguments, env=self.service._environment, catch_exceptions=False)

    def diagnose(self) -> dict[str, str]:
        """Return the command of each finding by its check, without the Postgres of the tests, which is made to be fast."""
        found: list[dict[str, Any]] = json.loads(self.run("doctor", "--json").stdout)["findings"]
        return {each["check"]: each["command"] for each in found if each["check"] != "postgres-not-durable"}

    def stopped(self) -> dict[str, str]:
        """Return the findings once no process has a session, and none before."""
        found = self.diagnose()
        return found if "no-process" in found else {}

    def follow(self, command: str) -> None:
        """Run a command of a finding."""
        said = self.run(*shlex.split(command.replace("TEXT", "INC-7"))[1:])
        assert said.exit_code == 0, said.output

    def is_healthy(self) -> bool:
        """Return True if there is no finding."""
        return not self.diagnose()

    def agrees(self, file: Path) -> None:
        """Back up, and check that both stores agree."""
        said = self.run("backup", str(file))
        assert said.exit_code == 0, said.output
        said = self.run("verify", str(file), "--json")
        found = json.loads(said.stdout)
        assert (said.exit_code, found["problems"], found["warnings"]) == (0, [], []), found


@pytest.mark.parametrize(
    ("of_zookeeper", "of_postgres", "expected", "value"),
    [
        pytest.param(1, 3, {"store-restored": ADOPT}, 1, id="ZooKeeper"),
        pytest.param(3, 1, {"postgres-restored": CONFIRM}, 3, id="Postgres"),
        pytest.param(1, 2, {"store-restored": ADOPT}, 1, id="both, ZooKeeper to the earlier moment"),
        pytest.param(2, 1, {"postgres-restored": CONFIRM}, 2, id="both, Postgres to the earlier moment"),
        pytest.param(1, 1, {}, 1, id="both to one moment"),
        pytest.param(None, 3, {"store-restored": ADOPT}, None, id="ZooKeeper is empty"),
        pytest.param(3, None, {"postgres-restored": CONFIRM}, 3, id="Postgres is new"),
    ],
)
def test_the_commands_of_the_doctor_lead_out_of_a_partial_restore(
    copies: Path,
    postgres: Postgres,
    tmp_path: Path,
    *,
    of_zookeeper: int | None,
    of_postgres: int | None,
    expected: dict[str, str],
    value: int | None,
) -> None:
    server = ZooKeeper(tmp_path / "zookeeper", durable=False)
    if of_zookeeper is not None:
        shutil.copytree(copies / f"zookeeper-{of_zookeeper}", server.data_dir / "data")
    for database in lent(postgres, make_database(postgres)):
        if of_postgres is not None:
            postgres_tool("pg_restore", f"--dbname={database.owner_dsn}", f"{copies}/postgres-{of_postgres}")
        with server:
            restored = Restored(service_on(tmp_path / "service", server.hosts, database))
            if of_postgres is None:
                assert restored.diagnose()["postgres-unavailable"] == "confplane migrate"
                restored.follow("confplane migrate")
            # The session of the process at the time of the copy ends first.
            found = wait_for(restored.stopped)
            assert {check: found[check] for check in found.keys() - {"no-process", "markers-old"}} == expected
            with restored.service as service:
                for command in expected.values():
                    restored.follow(command)
                wait_for(restored.is_healthy)
                assert asyncio.run(rates(service)) == ([] if value is None else [value])
                service.wait_recorded()
                restored.agrees(tmp_path / "backup.tar")


async def rates(service: Service) -> list[float]:
    """Return the rates of all users, and change one of them."""
    async with service.client() as client:
        found = [item["quotas"][RATE] async for item in client.items("client-quotas")]
        # The process learns of the adoption by itself, within seconds.
        written = await until(lambda: client.put("client-quotas", "user=a", {RATE: 9}), refused=RestoredStoreError)
        assert written.status == 200
    return found
