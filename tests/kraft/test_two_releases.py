"""An earlier release beside this one on a real Kafka 4: each ends what the other began to send, and reads its rows."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.kraft.test_adopting import RATE, applied, kinds, put, until_released
from tests.support.kraft_writer import KraftWriter
from tests.support.releases import earlier_applying
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.kraft.client import KraftClient
    from tests.support.facets import ConfplaneClient
    from tests.support.kraft import KraftCluster
    from tests.support.service import Service
    from tests.support.world import World

NAME = "two-releases"


@pytest.mark.timeout(900)
async def test_each_release_ends_what_the_other_began_to_send_and_reads_its_rows(
    kraft: KraftCluster, client: KraftClient, world: World, tmp_path: Path
) -> None:
    present = await asyncio.to_thread(world.adopting, kraft)
    cluster = {"kafka": {"bootstrap": kraft.bootstrap}}
    earlier = world.make_service(cluster=cluster, deadline_ms=10_000)
    earlier.root = await asyncio.to_thread(earlier_applying, tmp_path / "files")
    rows = ["change"]
    with ExitStack() as stack:
        for service in (earlier, present):
            stack.callback(_stop, service)
        # The first one leads, and the other one whenever that dies.
        await asyncio.to_thread(earlier.start)
        async with earlier.client() as http:
            await until_released(http)
            await put(http, NAME, 1000)
            await applied(client, NAME, 1000.0)
        await asyncio.to_thread(present.start)
        for rate, dies, ends in ((2000, earlier, present), (3000, present, earlier)):
            async with ends.client() as http:
                await until_released(http)
                dies.dies_at("claimed")
                await put(http, NAME, rate)
                await until(partial(_is_gone, dies))
                await until(partial(_shows, http, rate))
                async with KraftWriter(kraft.bootstrap[0]) as writer:
                    await writer.quotas(({"user": NAME}, {RATE: rate + 1.0}))
                await until(partial(_shows, http, rate + 1))
                rows += ["change", "observed"]
                await asyncio.to_thread(dies.start)
                async with dies.client() as again:
                    await until(partial(_shows, again, rate + 1))
                    for each in (http, again):
                        assert await kinds(each, f"user={NAME}") == rows
        async with present.client() as http:
            await http.request("DELETE", f"client-quotas/user={NAME}")
            await applied(client, NAME, None)


def _is_gone(service: Service) -> bool:
    return not service.running


def _stop(service: Service) -> None:
    if service.running:
        service.stop()


async def _shows(http: ConfplaneClient, rate: int) -> bool:
    """Look at the cluster, and say whether the quota is that one, and applied."""
    shown = (await http.request("GET", f"client-quotas/user={NAME}?consistency=strong&view=full")).body
    return bool(shown["quotas"] == {RATE: rate} and shown["status"]["applied"]["state"] == "applied")
