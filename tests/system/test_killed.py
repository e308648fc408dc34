"""A service killed in the middle of its work: nothing acknowledged is lost, and the trail is whole again at once."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest

from confplane.client import ClientError
from confplane.domain.entities import Entity
from tests.support.processes import ignoring_sigint
from tests.support.service import Service
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient
    from tests.support.servers import Database

WRITERS = 16


@pytest.mark.parametrize("acknowledgements", [120, pytest.param(300, marks=pytest.mark.long)])
async def test_kill_and_restart(
    tmp_path: Path, chroot: str, raw_zk: KazooClient, migrated: Database, acknowledgements: int
) -> None:
    acknowledged: dict[int, list[tuple[int, str]]] = {index: [] for index in range(WRITERS)}

    async def writer(client: ConfplaneClient, index: int, first: int) -> None:
        entity = Entity.of(user=f"k{index}")
        for value in range(first, first + 100_000):
            try:
                answer = await client.put("client-quotas", entity, {"producer_byte_rate": value})
            except ClientError:
                return
            assert answer.change_id is not None
            acknowledged[index].append((value, answer.change_id))

    service = Service(tmp_path, connect=chroot, dsn=migrated.service_dsn)
    for run in range(2):
        with service:
            async with service.client() as client:
                writers = [asyncio.create_task(writer(client, index, 1 + run * 100_000)) for index in range(WRITERS)]
                before = sum(map(len, acknowledged.values()))
                while sum(map(len, acknowledged.values())) < before + acknowledgements:  # noqa: ASYNC110 - many feed it
                    await asyncio.sleep(0.01)
                service.stop(kill=True)
                await asyncio.gather(*writers)

    with service:
        async with service.client() as client:
            # What was open is settled within seconds by whoever leads now.
            async def settled() -> bool:
                return not [item async for item in client.items("audit", outcome="open")]

            await until(settled)
            trail = [item async for item in client.items("audit", pageSize="1000")]
            for index in range(WRITERS):
                entity = Entity.of(user=f"k{index}")
                read = await client.get("client-quotas", entity, strong=True)
                stat = raw_zk.get(f"/config/users/k{index}")[1]
                own = [item for item in trail if item["entities"][0]["id"] == entity.id]
                committed = {item["changeId"]: item for item in own if item["outcome"] == "committed"}
                assert {change_id for _, change_id in acknowledged[index]} <= set(committed)
                # Each version has exactly one change, and the last change is what is there.
                ordered = sorted(committed.values(), key=lambda item: int(item["revision"]))
                assert [item["entities"][0]["version"] for item in ordered] == list(range(stat.version + 1))
                last = ordered[-1]
                assert (int(last["revision"]), last["entities"][0]["after"]["producer_byte_rate"]) == (
                    stat.mzxid,
                    str(read.body["quotas"]["producer_byte_rate"]),
                )


def test_a_service_that_ignores_sigint_ends_by_sigterm(tmp_path: Path, chroot: str, migrated: Database) -> None:
    service = Service(tmp_path, connect=chroot, dsn=migrated.service_dsn)
    with ignoring_sigint():
        service.start()
    assert service.stop() == -signal.SIGTERM
