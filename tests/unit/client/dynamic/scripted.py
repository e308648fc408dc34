"""A source with given updates, and a service with given answers on a clock of its own."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import httpx

from confplane.client import AsyncConfplane
from confplane.client.dynamic import Service
from confplane.client.dynamic.source import PollingSource, SoftwareRegistration
from confplane.domain.entities import Entity

if TYPE_CHECKING:
    from collections.abc import Callable

    from confplane.client.dynamic.source import Update

SERVICE: Final = Service("http://confplane.test", "alice", "secret")
OWN: Final = {"client.id": "billing"}


class Script:
    """Gives its updates one by one, each when it is asked for, and then nothing more."""

    def __init__(self, *updates: Update) -> None:
        self._updates = list(updates)
        self.exhausted = False

    async def next(self) -> Update:
        await asyncio.sleep(0)
        if not self._updates:
            self.exhausted = True
            await asyncio.Event().wait()
        return self._updates.pop(0)


@dataclass(frozen=True, slots=True)
class Answering(Service):
    """A service that answers what a function answers."""

    answer: Callable[[httpx.Request], httpx.Response] = field(kw_only=True)

    def client(self) -> AsyncConfplane:
        return AsyncConfplane(self.url, token="secret", tries=1, transport=httpx.MockTransport(self.answer))


class Served:
    """A poll of a service that answers what a function answers, at the times of its own clock."""

    def __init__(self, answer: Callable[[httpx.Request], httpx.Response], *, max_age_s: float = 300.0) -> None:
        self.now = 0.0
        self.requests: list[tuple[float, httpx.Request]] = []

        def respond(request: httpx.Request) -> httpx.Response:
            self.requests.append((self.now, request))
            return answer(request)

        self.client = AsyncConfplane(
            "http://confplane.test", token="secret", tries=1, transport=httpx.MockTransport(respond)
        )
        self.poll = PollingSource(
            self.client,
            Entity.of(user="alice", client_id="billing"),
            SoftwareRegistration("kafka-python", "3.0.12", ["acks"]),
            max_age_s=max_age_s,
            sleep=self.sleep,
            share=lambda: 0.5,
            clock=lambda: self.now,
        )

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def updates(self, count: int) -> list[Update]:
        return [await self.poll.next() for _ in range(count)]


def values(request: httpx.Request, etag: str = '"1"', **configs: str) -> httpx.Response:
    """The service's answer with some configs, to a describe or to a read of the effective values."""
    pairs = [{"key": key.replace("_", "."), "value": value} for key, value in configs.items()]
    if request.method == "POST":
        return httpx.Response(200, json={"entries": [{"entity": [], "values": pairs}]})
    if request.headers.get("if-none-match") == etag:
        return httpx.Response(304, headers={"ETag": etag})
    return httpx.Response(200, json={"configs": pairs}, headers={"ETag": etag})


def body(request: httpx.Request) -> Any:
    return json.loads(request.content)
