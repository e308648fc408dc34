"""An earlier release, whose states are JSON, next to this one on a real Kafka 4, each killed at each step.

The earlier release applies changes while one of its processes runs. Then this release moves its states, and ends what
it began to send. From then on the earlier release applies nothing.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from confplane.client.errors import ConnectionFailedError, ProblemError
from confplane.store.znodes import TARGET
from tests.kraft.test_adopting import RATE, applied, kinds, put, until_released
from tests.support.kraft_writer import KraftWriter
from tests.support.releases import earlier_applying
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.kraft.client import KraftClient
    from tests.support.facets import ConfplaneClient
    from tests.support.kraft import KraftCluster
    from tests.support.service import Service
    from tests.support.world import World


@pytest.fixture
def present(kraft: KraftCluster, world: World) -> Iterator[Service]:
    """A process of this release, not started."""
    service = world.adopting(kraft)
    yield service
    _stop(service)


@pytest.fixture
def earlier(kraft: KraftCluster, world: World, tmp_path: Path) -> Iterator[Service]:
    """A process of the earlier release, not started."""
    service = world.make_service(cluster={"kafka": {"bootstrap": kraft.bootstrap}}, deadline_ms=10_000)
    service.root = earlier_applying(tmp_path / "files")
    yield service
    _stop(service)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("step", ["claimed", "sent", "ended"])
async def test_this_release_ends_what_the_earlier_one_began(
    present: Service, earlier: Service, kraft: KraftCluster, client: KraftClient, raw_zk: KazooClient, step: str
) -> None:
    name = f"earlier-{step}"
    _mark(raw_zk, 1)
    await asyncio.to_thread(earlier.start)
    async with earlier.client() as http:
        await until_released(http)
        await put(http, name, 1000)
        await applied(client, name, 1000.0)
        await asyncio.to_thread(present.start)
        async with present.client() as other:
            # The earlier one applies the changes of both.
            await put(other, name, 1500)
            await applied(client, name, 1500.0)
            await until(partial(_waits, other))
            assert _version(raw_zk) == 1
            earlier.dies_at(step)
            await put(http, name, 2000)
            await until(partial(_is_gone, earlier))
            await until(partial(_shows, other, name, 2000))
            await until(lambda: _version(raw_zk) == 3)
            # Its values are not external changes, and others are.
            async with KraftWriter(kraft.bootstrap[0]) as writer:
                await writer.quotas(({"user": name}, {RATE: 2001.0}))
            await until(partial(_shows, other, name, 2001))
            assert await kinds(other, f"user={name}") == [*["change"] * 3, "observed"]
            await until(partial(_waits_no_more, other))
            await other.request("DELETE", f"client-quotas/user={name}")
            await applied(client, name, None)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("step", ["marked", "moved", "claimed", "sent"])
async def test_the_earlier_release_applies_nothing_after_this_one_began(
    present: Service, earlier: Service, client: KraftClient, raw_zk: KazooClient, step: str
) -> None:
    name = f"present-{step}"
    _mark(raw_zk, 1)
    await asyncio.to_thread(earlier.start)
    async with earlier.client() as http:
        await until_released(http)
        await put(http, name, 1000)
        await applied(client, name, 1000.0)
        # Its delivery has no outcome.
        earlier.dies_at("claimed")
        await put(http, name, 2000)
        await until(partial(_is_gone, earlier))
    present.dies_at(step)
    await asyncio.to_thread(present.start, wait_ready=False)
    await until(partial(_is_gone, present))
    assert _version(raw_zk) == 3
    await asyncio.to_thread(earlier.start, wait_ready=False)
    async with earlier.client() as http:
        await until(partial(_refuses, http, name))
    await asyncio.to_thread(earlier.stop)
    await asyncio.to_thread(present.start)
    async with present.client() as other:
        await until_released(other)
        await until(partial(_shows, other, name, 2000))
        assert await kinds(other, f"user={name}") == ["change"] * 2
        await other.request("DELETE", f"client-quotas/user={name}")
        await applied(client, name, None)


def _mark(raw: KazooClient, version: int) -> None:
    """Store the target as the release stores it whose form has this version."""
    raw.set(TARGET, json.dumps({**json.loads(raw.get(TARGET)[0]), "version": version}).encode())


def _version(raw: KazooClient) -> int:
    return int(json.loads(raw.get(TARGET)[0])["version"])


def _is_gone(service: Service) -> bool:
    return not service.running


def _stop(service: Service) -> None:
    if service.running:
        service.stop()


async def _waits(http: ConfplaneClient) -> bool:
    """Return whether a process reports that it waits for the end of those of an earlier release."""
    return "Processes of an earlier release are running" in str((await http.request("GET", "/readyz")).body)


async def _waits_no_more(http: ConfplaneClient) -> bool:
    return not await _waits(http)


async def _refuses(http: ConfplaneClient, name: str) -> bool:
    """Return whether a process refuses to write, because it can't read the target."""
    try:
        await put(http, name, 3000)
    except ProblemError as error:
        return TARGET in str(error)
    except ConnectionFailedError:
        return False
    raise AssertionError


async def _shows(http: ConfplaneClient, name: str, rate: int) -> bool:
    """Poll the cluster, and return whether the quota has this value, and is applied."""
    shown = (await http.request("GET", f"client-quotas/user={name}?consistency=strong&view=full")).body
    return bool(shown["quotas"] == {RATE: rate} and shown["status"]["applied"]["state"] == "applied")
