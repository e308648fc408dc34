"""Pages of a cluster while its ZooKeeper is not connected."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.console.visitor import Visitor, console_key
from tests.support.waiting import wait_for
from tests.support.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.proxy import Proxy
    from tests.support.servers import Database
    from tests.support.service import Service

PAGE = "/console/clusters/default/entities/user=outage"
NOTE = "default: this process is not connected to ZooKeeper."


async def test_each_page_shows_that_zookeeper_is_not_connected(
    tmp_path: Path, module_chroot: str, module_database: Database, zk: KazooClient, zk_proxy: Proxy
) -> None:
    def shows_note(service: Service, *, expected: bool) -> None:
        with Visitor(service) as visitor:
            visitor.signed_in()
            wait_for(lambda: (NOTE in visitor.page(PAGE)) is expected)

    world = World(tmp_path, module_chroot, module_database, zk)
    async with world.service(through=zk_proxy, settings=console_key(tmp_path)) as service:
        await asyncio.to_thread(shows_note, service, expected=False)
        zk_proxy.accepting = False
        zk_proxy.cut()
        await asyncio.to_thread(shows_note, service, expected=True)
        zk_proxy.accepting = True
        await asyncio.to_thread(shows_note, service, expected=False)
