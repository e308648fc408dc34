"""A ZooKeeper that is put back to a copy of its files: the values of running clients, and what is counted of them."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any

from confplane.client import RestoredStoreError
from confplane.client.dynamic import CONFLUENT_KAFKA, AsyncDynamicProducerConfig
from confplane.client.dynamic import Service as Reached
from confplane.devstack.zookeeper import ZooKeeper
from tests.audit.rows import fetch
from tests.support.commands import Commands
from tests.support.servers import raw_client
from tests.support.service import Service
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.facets import ConfplaneClient
    from tests.support.servers import Database

_USER = "user=restored"
_LOST = 500
"""Transactions of the store that its copy lacks: far more than a start makes."""


async def test_clients_go_back_with_the_store_and_reports_on_what_it_lost_count_as_not_applied(
    migrated: Database, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    with ZooKeeper(tmp_path / "zookeeper", durable=False) as zookeeper:
        service = Service(tmp_path / "service", connect=zookeeper.hosts, dsn=migrated.service_dsn)
        reached = Reached(service.url, "restored", service.token)
        own = {"client.id": "billing", "metadata.max.age.ms": 200}
        dynamic = AsyncDynamicProducerConfig(own, library=CONFLUENT_KAFKA, service=reached)
        with service:
            async with service.client() as client, dynamic:

                async def status() -> Any:
                    return (await client.request("GET", f"client-configs/{_USER}/status")).body

                async def applied(count: int) -> Any:
                    found = await status()
                    return found if (found["instances"], found["applied"]) == (2, count) else None

                kept = (await client.put("client-configs", _USER, {"acks": "1"})).etag
                shutil.copytree(zookeeper.data_dir / "data", copy)
                for raw in raw_client(zookeeper.hosts):
                    for number in range(_LOST):
                        raw.create(f"/lost-{number}")
                lost = await client.put("client-configs", _USER, {"acks": "all"})
                report = {"softwareName": "other", "softwareVersion": "1", "appliedRevision": str(lost.revision)}
                await client.request("PUT", f"client-configs/{_USER}/instances/gone", json=report)
                await until(lambda: dynamic.settings.get("acks") == "all")
                await until(lambda: applied(2))
                await until(lambda: _written(migrated) == [lost.revision] * 2)

                await asyncio.to_thread(service.stop)
                await asyncio.to_thread(zookeeper.stop)
                shutil.rmtree(zookeeper.data_dir / "data")
                shutil.copytree(copy, zookeeper.data_dir / "data")
                await asyncio.to_thread(zookeeper.start)
                await asyncio.to_thread(service.start)

                await until(lambda: dynamic.settings.get("acks") == "1")
                found = await until(lambda: applied(1))
                revision = int(found["revision"])
                assert revision < (lost.revision or 0)
                counted = {each["softwareName"]: int(each["appliedRevision"]) for each in found["appliedBy"]}
                assert counted == {CONFLUENT_KAFKA.name: revision, "other": lost.revision}
                listed = [item["id"] async for item in client.items("client-configs", applied="false")]
                assert listed == [_USER]
                commands = Commands(tmp_path, connect=zookeeper.hosts, dsn=migrated.service_dsn)
                said = await asyncio.to_thread(commands.run_here, "adopt-store", "--reason", "restored")
                assert said.code == 0, said
                await until(lambda: _writable(client))
                # Equal content has an equal ETag in either history, and each ETag has the content that it had.
                assert (await client.get("client-configs", _USER)).etag == kept
                assert (await client.put("client-configs", _USER, {"acks": "all"})).etag == lost.etag
                await until(lambda: dynamic.settings.get("acks") == "all")


async def _writable(client: ConfplaneClient) -> bool:
    try:
        await client.put("client-quotas", _USER, {"producer_byte_rate": 1})
    except RestoredStoreError:
        return False
    return True


def _written(database: Database) -> list[int]:
    return [row[0] for row in fetch(database.owner_dsn, "SELECT applied_revision FROM applied_reports")]
