"""Backups while clients and Kafka's tools write, and what is done with the archives."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Final, Self

import pytest

from tests.support.commands import Commands, Said, run
from tests.support.servers import raw_client
from tests.support.service import Service
from tests.support.stepping import CONSTANTS_VARIABLE
from tests.support.stores import kafka_writes, rate
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient
    from tests.support.servers import Database

RATE: Final = "producer_byte_rate"
USERS: Final = 200
SOON: Final = {
    "confplane.services.recorder.record.INTERVAL_S": 0.2,
    "confplane.services.upkeep.incarnation.PUBLISH_INTERVAL_S": 0.2,
}


class Operator:
    """Runs commands on all clusters of the settings."""

    def __init__(self, directory: Path, connect: str, database: Database) -> None:
        self.environment: Mapping[str, str] = {
            **Commands(directory, connect=connect, dsn=database.service_dsn).environment,
            "CONFPLANE_POSTGRES__MIGRATION_DSN": database.owner_dsn,
        }

    async def run(self, *arguments: str) -> Said:
        return await asyncio.to_thread(run, arguments, self.environment)


@pytest.fixture
def operator(tmp_path: Path, chroot: str, migrated: Database) -> Operator:
    return Operator(tmp_path / "operator", chroot, migrated)


@pytest.fixture
def serving(tmp_path: Path, chroot: str, migrated: Database) -> Iterator[Service]:
    with Service(
        tmp_path / "service",
        connect=chroot,
        dsn=migrated.service_dsn,
        settings={CONSTANTS_VARIABLE: json.dumps(SOON)},
        module="tests.support.stepping",
    ) as service:
        yield service


class Load:
    """Writes by several clients and by an external tool, until the block ends."""

    def __init__(self, client: ConfplaneClient, raw: KazooClient) -> None:
        self._client = client
        self._raw = raw
        self.writes = 0
        self._ending = False

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._write(number)) for number in range(4)]
        self._tasks.append(asyncio.create_task(asyncio.to_thread(self._write_externally)))
        await until(lambda: self.writes > 100)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ending = True
        await asyncio.gather(*self._tasks)

    async def _write(self, number: int) -> None:
        for value in itertools.count(1):
            if self._ending:
                return
            user = f"user=load-{number}-{value % USERS}"
            if value % 7:
                await self._client.put("client-quotas", user, {RATE: value})
            else:
                await self._client.delete("client-quotas", user)
            self.writes += 1

    def _write_externally(self) -> None:
        for value in itertools.count(1):
            if self._ending:
                return
            kafka_writes(self._raw, f"users/external-{value % USERS}", rate(value))


async def test_a_backup_under_load_is_of_one_revision_in_both_stores(
    operator: Operator, serving: Service, chroot: str, tmp_path: Path
) -> None:
    file = tmp_path / "backup.tar"
    async with serving.client() as client:
        for raw in raw_client(chroot):
            await asyncio.to_thread(serving.wait_recorded)
            async with Load(client, raw) as load:
                said = await operator.run("backup", str(file), "--json")
                assert said.code == 0, said
                assert load.writes > 100
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(said.out)["clusters"]["default"]["trailComplete"] is True
    said = await operator.run("verify", str(file), "--json")
    found = json.loads(said.out)
    assert (said.code, found["problems"], found["warnings"]) == (0, [], []), said
    assert found["tables"]["outcomes"] == found["tables"]["intents"] > 100
