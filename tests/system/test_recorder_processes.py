"""The recorder in services as they run: what others write appears in the audit API, whoever leads and whoever dies."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.entities import Entity
from tests.support.metrics import Scraped, scrape
from tests.support.stores import kafka_writes, rate
from tests.support.world import RECORDING, World

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient
    from tests.support.servers import Database
    from tests.support.service import Service


@pytest.fixture
def recording(tmp_path: Path, chroot: str, migrated: Database, raw_zk: KazooClient) -> World:
    return World(tmp_path, chroot, migrated, raw_zk, RECORDING)


async def external(client: ConfplaneClient, **filters: str) -> list[dict[str, Any]]:
    return [item async for item in client.items("audit", **filters) if item["kind"] == "external"]


async def recorded(client: ConfplaneClient, entity: str, number: int) -> list[dict[str, Any]]:
    """Wait for so many external changes of an entity."""
    deadline = time.monotonic() + 120
    while len(found := await external(client, entity=entity)) < number:
        assert time.monotonic() < deadline, found
    return found


async def settled(client: ConfplaneClient, zk: KazooClient) -> None:
    """Wait until an entity written now is recorded, so that all before it is."""

    written: set[str] = set()

    async def told() -> bool:
        found = await external(client, entity="user=last")
        return any(item["entities"][0]["after"]["producer_byte_rate"] in written for item in found)

    deadline = time.monotonic() + 120
    while not await told():
        # Again and again: what is there at first contact is taken as it is.
        value = time.time_ns()
        written.add(str(value))
        kafka_writes(zk, "users/last", rate(value))
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)


async def leading(*services: Service) -> Scraped:
    """Wait for the service that records, and return its metrics."""
    deadline = time.monotonic() + 120
    while True:
        for service in services:
            found = await asyncio.to_thread(scrape, service)
            if found.get("recorder_watermark", cluster="default") is not None:
                assert found("recorder_lag_seconds", cluster="default") < 120
                return found
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


async def test_external_changes_appear_in_the_trail_of_both(recording: World, raw_zk: KazooClient) -> None:
    async with (
        recording.service() as one,
        recording.service() as two,
        one.client() as first,
        two.client() as second,
    ):
        await settled(first, raw_zk)
        await first.put("client-quotas", Entity.of(user="alice"), {"producer_byte_rate": 1})
        kafka_writes(raw_zk, "users/alice", rate(2))
        await second.put("client-quotas", Entity.of(user="alice"), {"producer_byte_rate": 3})
        await settled(second, raw_zk)
        changes = [item async for item in second.items("audit", entity="user=alice")]
        told = [(item["kind"], item["writes"], item["entities"][0]["versionRead"]) for item in changes]
        # Newest first; two processes with one clock made ours.
        assert told == [("change", None, 1), ("external", 1, 0), ("change", None, None)]
        [change] = [item for item in changes if item["kind"] == "external"]
        assert change["principal"] == "External:unknown"
        assert change["outcome"] == "committed"
        assert change["entities"][0]["facet"] == "node"
        assert change["entities"][0]["before"] == {"producer_byte_rate": "1"}
        assert change["entities"][0]["after"] == {"producer_byte_rate": "2"}
        assert (await first.request("GET", f"audit/{change['changeId']}")).body == change
        # Without a notification, it takes the look at all znodes.
        raw_zk.set("/config/users/alice", rate(4))
        found = await recorded(first, "user=alice", 2)
        assert found[0]["entities"][0]["after"] == {"producer_byte_rate": "4"}
        metrics = await asyncio.to_thread(lambda: [scrape(one), scrape(two)])
        assert sum(each("external_changes_total", cluster="default") for each in metrics) >= 3
        leader = await leading(one, two)
        assert leader("recorder_watermark", cluster="default") > 0
        assert leader("recorder_refused_entities", cluster="default") == 0


async def test_a_leader_killed_during_external_changes(recording: World, raw_zk: KazooClient) -> None:
    async with recording.service() as one:
        async with one.client() as client:
            await settled(client, raw_zk)
        async with recording.service() as two:
            for number in range(300):
                kafka_writes(raw_zk, f"users/u{number % 60}", rate(number + 1))
                if number == 200:
                    one.stop(kill=True)
            async with two.client() as client:
                await settled(client, raw_zk)
                found = await external(client)
    versions: dict[str, list[tuple[int, int]]] = {}
    for change in found:
        [entity] = change["entities"]
        versions.setdefault(entity["id"], []).append((entity["version"], change["writes"]))
    for number in range(60):
        runs = sorted(versions[f"user=u{number}"])
        # Each run ends where its length says, counted from the end of the one before it.
        reached = -1
        for version, writes in runs:
            assert version == reached + writes
            reached = version
        assert reached == 4
