"""A service killed in the middle of its work: nothing acknowledged is lost, and what is open can be told from the marker."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from app.audit.migrate import upgrade
from app.client import ClientError
from app.devstack.postgres import SERVICE
from app.domain.entities import Entity
from tests.support.service import Service

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from app.client import ConfplaneClient
    from tests.support.servers import Database

WRITERS = 16


async def test_kill_and_restart(tmp_path: Path, chroot: str, raw_zk: KazooClient, database: Database) -> None:
    upgrade(database.owner_dsn, SERVICE)
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

    service = Service(tmp_path, connect=chroot, dsn=database.service_dsn)
    for run in range(2):
        with service:
            async with service.client() as client:
                writers = [asyncio.create_task(writer(client, index, 1 + run * 100_000)) for index in range(WRITERS)]
                before = sum(map(len, acknowledged.values()))
                while sum(map(len, acknowledged.values())) < before + 300:  # noqa: ASYNC110 - many tasks feed it
                    await asyncio.sleep(0.01)
                service.stop(kill=True)
                await asyncio.gather(*writers)

    with service:
        async with service.client() as client:
            trail = [item async for item in client.items("audit", pageSize="1000")]
            markers = set(raw_zk.get_children("/confplane/commits"))
            for index in range(WRITERS):
                entity = Entity.of(user=f"k{index}")
                read = await client.get("client-quotas", entity, strong=True)
                stat = raw_zk.get(f"/config/users/k{index}")[1]
                own = [item for item in trail if item["entities"][0]["id"] == entity.id]
                committed = {item["changeId"]: item for item in own if item["outcome"] == "committed"}
                # An open intent was applied exactly if its marker is there.
                applied = [item for item in own if item["outcome"] == "open" and item["changeId"] in markers]
                assert {change_id for _, change_id in acknowledged[index]} <= set(committed)
                assert stat.version + 1 == len(committed) + len(applied)
                versions = sorted(item["entities"][0]["version"] for item in committed.values())
                assert versions == sorted(set(versions))
                possible = {item["entities"][0]["after"]["producer_byte_rate"] for item in applied}
                if acknowledged[index]:
                    possible.add(str(acknowledged[index][-1][0]))
                # An outcome may have become durable without its answer getting out.
                possible |= {
                    item["entities"][0]["after"]["producer_byte_rate"]
                    for change_id, item in committed.items()
                    if change_id not in {acknowledged_id for _, acknowledged_id in acknowledged[index]}
                }
                assert str(read.body["quotas"]["producer_byte_rate"]) in possible
            for item in trail:
                if item["outcome"] == "open" and item["changeId"] in markers:
                    marker = json.loads(raw_zk.get(f"/confplane/commits/{item['changeId']}")[0])
                    assert marker["attempt"] == item["attempt"]
