"""An upgrade from an earlier release and the way back, under load: every request succeeds, and no write is lost."""

from __future__ import annotations

import asyncio
import itertools
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from tests.integration.test_idempotency import new_key, opened, quota
from tests.support.kinds import RATE, config
from tests.support.releases import PRESENT, Release, earlier
from tests.support.waiting import until
from tests.support.world import World
from tests.system.test_two_releases import Scene

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.servers import Database
    from tests.support.service import Service

CLIENTS: Final = 4
ROUNDS: Final = 5
"""Rounds of each client with each set of processes."""


@pytest.fixture
async def world(tmp_path: Path, chroot: str, database: Database, raw_zk: KazooClient) -> AsyncIterator[World]:
    """The stores, with a database that nobody has migrated."""
    async with World(tmp_path, chroot, database, raw_zk) as world:
        yield world


class Member:
    """A service that receives requests, with the number of those in progress."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.http = opened(service)
        self.in_progress = 0


class Load:
    """Clients that write and read, each time through the next service. A service that stops receives no new requests.

    Attributes:
        written: By client, the changes that were acknowledged.
    """

    def __init__(self) -> None:
        self._members: list[Member] = []
        self._turns = itertools.count()
        self._ended = False
        self.written: dict[int, list[str]] = {client: [] for client in range(CLIENTS)}

    def add(self, service: Service) -> None:
        """Send requests to a ready service too."""
        self._members.append(Member(service))

    async def replace(self, service: Service) -> None:
        """Stop a service after its requests in progress, while the others receive the new ones."""
        [member] = [each for each in self._members if each.service is service]
        self._members.remove(member)
        await until(lambda: not member.in_progress, why=service.tail)
        await member.http.aclose()
        assert await asyncio.to_thread(service.stop) == -signal.SIGTERM

    async def run(self, client: int) -> None:
        """Change a quota, read it and its trail, and continue until the load ends."""
        path = f"client-quotas/user=load-{client}"
        for value in itertools.count(1):
            if self._ended:
                return
            answer = await self._send("PUT", path, json=quota(value), headers=new_key())
            self.written[client].append(answer.headers["Confplane-Change-Id"])
            read = {"Confplane-Min-Revision": answer.headers["Confplane-Revision"]}
            assert (await self._send("GET", path, headers=read)).json()["quotas"] == {RATE: value}
            trail = await self._send("GET", "audit", params={"entity": f"user=load-{client}", "pageSize": 1})
            assert [item["changeId"] for item in trail.json()["items"]] == self.written[client][-1:]

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        member = self._members[next(self._turns) % len(self._members)]
        member.in_progress += 1
        try:
            answer = await member.http.request(method, path, **options)
        finally:
            member.in_progress -= 1
        assert answer.is_success, (method, path, answer.status_code, answer.text)
        return answer

    async def rounds(self) -> None:
        """Wait until each client has completed further rounds."""
        wanted = {client: len(changes) + ROUNDS for client, changes in self.written.items()}
        await until(lambda: all(len(self.written[client]) > number for client, number in wanted.items()))

    def end(self) -> None:
        """Let the clients complete their rounds."""
        self._ended = True

    async def close(self) -> None:
        """Close the connections."""
        for member in self._members:
            await member.http.aclose()


async def _waits_for_the_migration(service: Service) -> bool:
    async with httpx.AsyncClient(base_url=service.url, trust_env=False, timeout=30) as http:
        answer = await http.get("/readyz")
        return answer.status_code == httpx.codes.SERVICE_UNAVAILABLE and "confplane migrate" in answer.text


async def test_every_request_succeeds_during_an_upgrade_with_its_migrations_and_back(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    earlier_release = await asyncio.to_thread(earlier, tmp_path_factory.mktemp("earlier"))
    scene, load = Scene(world), Load()

    async def started(stack: AsyncExitStack, release: Release, *, ready: bool = True) -> Service:
        service = scene.service(release)
        stack.push(service.__exit__)
        await asyncio.to_thread(service.start, wait_ready=ready)
        return service

    async def migrated(release: Release) -> None:
        await asyncio.to_thread(release.migrate, scene.service(release), world.database.owner_dsn)

    async with AsyncExitStack() as stack:
        stack.push_async_callback(load.close)
        await migrated(earlier_release)
        old = await started(stack, earlier_release)
        load.add(old)
        async with asyncio.TaskGroup() as clients:
            for client in load.written:
                clients.create_task(load.run(client))
            new = await started(stack, PRESENT, ready=False)
            await until(lambda: _waits_for_the_migration(new), refused=httpx.TransportError, why=new.tail)
            await load.rounds()
            await migrated(PRESENT)
            await load.rounds()  # of the earlier release alone, on the new schema
            await asyncio.to_thread(new.wait_ready)
            load.add(new)
            await load.rounds()
            await load.replace(old)
            await load.rounds()
            await migrated(earlier_release)  # as the chart does on a rollback; it changes nothing
            again = await started(stack, earlier_release)
            load.add(again)
            await load.rounds()
            await load.replace(new)
            await load.rounds()
            load.end()
        await until(lambda: not scene.open())
        await scene.recorded()
    for client, changes in load.written.items():
        assert config(scene.zk, f"/config/users/load-{client}") == {RATE: str(len(changes))}
    acknowledged = {change: True for changes in load.written.values() for change in changes}
    external = scene.external()
    assert {change: each for change, each in scene.outcomes().items() if change not in external} == acknowledged
    assert scene.not_ours() == []
    scene.assert_explained()
