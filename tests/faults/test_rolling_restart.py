"""Replicas restarted one after the other under load: with one retry through another replica, no client notices."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import uuid
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import httpx

from tests.faults.checker import check
from tests.faults.scenario import NODE, Scenario, ready
from tests.support.proxy import proxy
from tests.support.waiting import until_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.history import Call
    from tests.support.service import Service

REPLICAS = 3
CLIENTS = 12
DRAIN = {"CONFPLANE_HTTP__DRAIN_MS": "1000"}


class Client:
    """Writes and reads, each time through the next replica; what fails there is sent once more, through another."""

    def __init__(self, scenario: Scenario, services: Sequence[Service], number: int, failed: list[Call]) -> None:
        self._scene = scenario
        self._services = services
        self._user = f"u{number}"
        self._turns = itertools.count(number)
        self._failed = failed
        self.done = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Continue until stopped."""
        while not stop.is_set():
            written = await self._write(next(self._turns) * CLIENTS + 1)
            await self._read(written.revision)
            self.done += 1
            await asyncio.sleep(0.05)

    def _two(self) -> tuple[Service, Service]:
        turn = next(self._turns)
        return self._services[turn % REPLICAS], self._services[(turn + 1) % REPLICAS]

    async def _write(self, value: int) -> Call:
        first, other = self._two()
        key = str(uuid.uuid4())
        call = await self._scene.put(first, value, user=self._user, key=key)
        if not call.acknowledged:
            call = await self._scene.put(other, value, user=self._user, key=key, resend_of=call)
        return self._answered(call)

    async def _read(self, revision: int | None) -> Call:
        first, other = self._two()
        call = await self._scene.get(first, user=self._user, min_revision=revision)
        if call.status is None or call.status >= 500:
            call = await self._scene.get(other, user=self._user, min_revision=revision)
        return self._answered(call)

    def _answered(self, call: Call) -> Call:
        if not call.acknowledged:
            self._failed.append(call)
        return call


async def test_no_read_and_no_write_fails_while_three_replicas_are_restarted(scenario: Scenario) -> None:
    failed: list[Call] = []
    async with AsyncExitStack() as stack:
        services = [await stack.enter_async_context(scenario.service(settings=DRAIN)) for _ in range(REPLICAS)]
        await ready(*services)
        clients = [Client(scenario, services, number, failed) for number in range(CLIENTS)]
        stop = asyncio.Event()
        tasks = [asyncio.create_task(client.run(stop)) for client in clients]
        for service in services:
            before = [client.done for client in clients]
            await until_thread(lambda: all(client.done > known for client, known in zip(clients, before, strict=True)))  # noqa: B023
            assert await asyncio.to_thread(service.stop) == -signal.SIGTERM
            await asyncio.to_thread(service.start)
        before = [client.done for client in clients]
        await until_thread(lambda: all(client.done > known for client, known in zip(clients, before, strict=True)))
        stop.set()
        await asyncio.gather(*tasks)
    assert failed == []
    assert check(scenario.collected()) == []


async def test_a_process_that_is_to_stop_says_so_first_and_serves_on(scenario: Scenario) -> None:
    async with scenario.service(settings={"CONFPLANE_HTTP__DRAIN_MS": "60000"}) as service:
        await ready(service)
        os.kill(service.pid, signal.SIGTERM)

        def unready() -> httpx.Response | None:
            answer = httpx.get(f"{service.url}/readyz", trust_env=False, timeout=60)
            return None if answer.status_code == 200 else answer

        answer = await until_thread(unready)
        assert (answer.status_code, answer.json()["status"]) == (503, "stopping")
        assert answer.headers["Connection"] == "close"
        assert (await scenario.put(service, 1)).status == 200
        assert (await scenario.get(service)).content == {"producer_byte_rate": 1}
        assert await asyncio.to_thread(service.stop, kill=True) == -signal.SIGKILL
    assert check(scenario.collected()) == []


async def test_what_is_under_way_when_the_listener_closes_is_answered(scenario: Scenario) -> None:
    async with proxy(scenario.server.hosts) as line, scenario.service(through=line) as service:
        await ready(service)
        line.replies.clear()
        writing = asyncio.create_task(scenario.put(service, 1))
        await until_thread(lambda: scenario.zk.exists(NODE))
        os.kill(service.pid, signal.SIGTERM)

        def refused() -> bool:
            try:
                httpx.get(f"{service.url}/livez", trust_env=False)
            except httpx.TransportError as error:
                # Any other error is that of a connection that was not accepted before the listener closed.
                return isinstance(error, httpx.ConnectError)
            return False

        await until_thread(refused)
        line.replies.set()
        assert (await writing).status == 200
    assert check(scenario.collected()) == []
