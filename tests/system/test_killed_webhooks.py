"""Deliveries of webhooks whose processes are killed: at least once, in order."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confplane.client import AsyncConfplane, ClientError
from tests.integration.test_webhooks import CONSTANTS, RATE, webhook_settings
from tests.support.receiver import OK, ReceivedRequest, receiving
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.receiver import Receiver
    from tests.support.service import Service
    from tests.support.world import World

USER = "user=hook-killed"
CHANGES = 8
"""Changes of a round: more than are delivered before the processes are killed."""


class Killer:
    """Kills all services during the fourth request, and directly after the ninth."""

    def __init__(self, services: Sequence[Service], receiver: Receiver) -> None:
        self.services = services
        self.receiver = receiver
        self.killed = 0

    def respond(self, _: ReceivedRequest) -> bytes | None:
        """Respond to a request."""
        if len(self.receiver.requests) == 4:
            self.kill()
            return None
        if len(self.receiver.requests) == 9:
            asyncio.get_running_loop().call_soon(self.kill)
        return OK

    async def kills(self, count: int) -> None:
        """Wait until the services were killed so often."""
        await until(lambda: self.killed >= count, why=lambda: str(len(self.receiver.requests)))

    def kill(self) -> None:
        """Kill all services."""
        for service in self.services:
            service.stop(kill=True)
        self.killed += 1


def library(service: Service) -> AsyncConfplane:
    return AsyncConfplane(service.url, token=service.token)


async def change(service: Service, start: int) -> None:
    """Make changes, as long as there is a service."""
    with suppress(ClientError):
        async with library(service) as client:
            for value in range(start, start + CHANGES):
                await client.client_quotas.put(USER, {RATE: value})


async def committed(service: Service) -> list[str]:
    async with library(service) as client:
        return [each["changeId"] async for each in client.audit.search(entity=USER, outcome="committed")][::-1]


async def test_every_change_arrives_in_order_although_all_processes_are_killed_during_deliveries(
    world: World, tmp_path: Path
) -> None:
    """Once before the receiver responds, so that nobody knows of the delivery; once after it."""
    settings = webhook_settings(tmp_path)
    services = [world.make_service(settings=settings, constants=CONSTANTS) for _ in range(2)]  # type: ignore[arg-type]  # a list of numbers too
    async with receiving() as receiver:
        killer = Killer(services, receiver)
        receiver.respond = killer.respond

        def sent() -> list[str]:
            return [request.json["id"] for request in receiver.requests]

        async def delivered() -> bool:
            return list(dict.fromkeys(sent())) == await committed(services[0])

        try:
            for round_ in range(3):
                await asyncio.gather(*(asyncio.to_thread(service.start) for service in services))
                if round_ == 0:
                    body: Any = {"url": receiver.url(), "filter": {"entity": USER}}
                    async with library(services[0]) as client:
                        await client.webhooks.put("killed", body)
                await change(services[0], round_ * CHANGES + 1)
                if round_ < 2:
                    await killer.kills(round_ + 1)
            await until(delivered, why=sent)
        finally:
            for service in services:
                if service.running:
                    service.stop(kill=True)
        # What comes again comes directly after itself: nothing goes back further.
        repeated = [len(list(same)) for _, same in itertools.groupby(sent())]
        assert len(repeated) == len(set(sent()))
        assert max(repeated) > 1
