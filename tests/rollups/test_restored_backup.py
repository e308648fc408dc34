"""A backup under load, restored to wiped stores: integrity finds nothing, and consumers of the feed recover."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

from confplane.client import GoneError
from tests.audit.rows import fetch
from tests.support.commands import Commands
from tests.support.waiting import until
from tests.system.test_backup import RATE, Installation, Load

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kazoo.client import KazooClient
    from pyspark.sql import SparkSession

    from tests.support.facets import ConfplaneClient
    from tests.support.servers import Database


class RateConsumer:
    """A consumer of the feed as docs/feed.md describes one. It has the rate of each user."""

    def __init__(self) -> None:
        self.rates: dict[str, float | None] = {}
        self.lists = 0
        self._position: str | None = None

    @asynccontextmanager
    async def following(self, client: ConfplaneClient) -> AsyncIterator[None]:
        """Follow the feed until the block ends, from the last position on."""
        task = asyncio.create_task(self._follow(client))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _follow(self, client: ConfplaneClient) -> None:
        while True:
            try:
                async with aclosing(client.changes(after=self._position, snapshot=self._position is None)) as events:
                    async for event in events:
                        self._take(event)
            except GoneError:
                self.rates.clear()
                self._position = None

    def _take(self, event: Any) -> None:
        self._position = event.get("id", self._position)
        self.lists += event["type"] == "bookmark"
        for entity in event.get("entities", ()):
            for key in entity["keys"]:
                if key["key"] == RATE:
                    self.rates[entity["id"]] = key["after"]

    async def agrees(self, client: ConfplaneClient) -> bool:
        """Return True if the consumer has the state that the service lists."""
        listed = {item["id"]: item["quotas"][RATE] async for item in client.items("client-quotas")}
        return {user: rate for user, rate in self.rates.items() if rate is not None} == listed


def wipe(zk: KazooClient, database: Database) -> None:
    """Delete all znodes and all tables."""
    for path in ("/config", "/confplane"):
        zk.delete(path, recursive=True)
    with psycopg.connect(database.owner_dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


def test_integrity_and_consumers_after_a_backup_under_load_and_a_restore_to_wiped_stores(
    spark: SparkSession, chroot: str, migrated: Database, raw_zk: KazooClient, tmp_path: Path
) -> None:
    del spark  # the command takes the session that there is
    asyncio.run(back_up_wipe_and_restore(Installation(tmp_path, chroot, migrated), raw_zk, tmp_path / "backup.tar"))
    commands = Commands(tmp_path / "rollups", connect=chroot, dsn=migrated.service_dsn)
    said = commands.run_here("rollups", "run", "integrity")
    assert said.code == 0, said
    assert fetch(migrated.owner_dsn, "SELECT state, row_count FROM rollup_runs") == [("complete", 0)]


async def back_up_wipe_and_restore(site: Installation, zk: KazooClient, file: Path) -> None:
    """Make a backup under load and restore it, while a consumer follows the feed."""
    consumer = RateConsumer()
    with site.service as service:
        await asyncio.to_thread(service.wait_recorded)
        async with service.client() as client, consumer.following(client):
            async with Load(client, zk):
                said = await site.run("backup", str(file))
                assert said.code == 0, said
            await until(partial(consumer.agrees, client))
            assert consumer.lists == 1

    wipe(zk, site.database)
    said = await site.run("migrate")
    assert said.code == 0, said
    said = await site.restore(file)
    assert said.code == 0, said

    with site.service as service:
        async with service.client() as client, consumer.following(client):
            await until(partial(consumer.agrees, client))
            assert len(consumer.rates) > 100
            assert (await client.put("client-quotas", "user=new", {RATE: 1})).status == 200
            await until(partial(consumer.agrees, client))
            assert consumer.lists == 2
        await asyncio.to_thread(service.wait_recorded)
