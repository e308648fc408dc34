"""A real cluster whose broker is replaced by one of an older release, and back: nothing is followed from the older one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.kraft.test_by_settings import observing
from tests.support import servers, tools
from tests.support.kraft import kraft_cluster
from tests.support.kraft_writer import KraftWriter
from tests.support.waiting import until, until_warned

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper

OLDEST = {
    "metadata.version": 21,
    **dict.fromkeys(("group.version", "transaction.version", "eligible.leader.replicas.version"), 0),
    **dict.fromkeys(("share.version", "streams.version"), 0),
}
"""The levels of a cluster that was made by Kafka 3.9, and whose brokers alone were replaced by those of 4.4."""


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_cluster_that_was_downgraded_is_not_followed_until_it_is_back(
    kraft_class_path: str, zookeeper: ZooKeeper, postgres: Postgres, tmp_path: Path
) -> None:
    earlier = tools.obtain(tools.kafka_class_path).read_text()
    own = {"connect": servers.make_chroot(zookeeper.hosts), "dsn": servers.make_migrated(postgres).service_dsn}
    with kraft_cluster(tmp_path / "kafka", kraft_class_path, features=OLDEST) as kafka:
        (node,) = kafka.nodes

        async def put(rate: float) -> None:
            async with KraftWriter(kafka.bootstrap[0]) as writer:
                await writer.quotas(({"user": "downgraded"}, {"producer_byte_rate": rate}))

        await put(1.0)
        with observing(tmp_path, own, {"bootstrap": kafka.bootstrap}) as service:
            async with service.client() as client:

                async def rate() -> int:
                    found = await client.request("GET", "client-quotas/user=downgraded")
                    return int(found.body["quotas"]["producer_byte_rate"])

                async def has(wanted: int) -> bool:
                    return await rate() == wanted

                await until(lambda: has(1))
                node.change_release(earlier)
                await asyncio.to_thread(node.stop)
                await asyncio.to_thread(node.start)
                await put(2.0)
                await until_warned(client, "of release 3.9, and had 4.4 before")
                assert await rate() == 1
                node.change_release(kraft_class_path)
                await asyncio.to_thread(node.stop)
                await asyncio.to_thread(node.start)
                await until(lambda: has(2))
