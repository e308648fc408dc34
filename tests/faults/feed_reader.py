"""A consumer of the feed that reconnects at random, to any process, after any number of events."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import httpx

from tests.faults.history import FeedEvent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

_PATIENCE_S: Final = 20.0
_PATH: Final = "/v1/clusters/default/changes"
_CUT_AFTER: Final = (1, 1, 2, 5, 50)
"""Events after which a stream is cut off."""
_POLLS: Final = 0.2
"""The part of the reads that are long polls."""


class FeedReader:
    """Reads the feed from now on, until it is stopped.

    Args:
        targets: The URL and the token of each process.
        seed: Of its choices.
    """

    def __init__(self, targets: Sequence[tuple[str, str]], *, seed: int) -> None:
        self.events: list[FeedEvent] = []
        self.refusals: list[str] = []
        self._targets = targets
        # Each request has a connection of its own.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.AsyncClient(trust_env=False, timeout=_PATIENCE_S, limits=limits)
        self._chooser = random.Random(f"{seed} feed")  # noqa: S311 - a seed gives the same run again
        self._position = ""
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Ask for a position that every process continues from, and begin.

        In the first seconds of a new store the trail has no beginning yet. A position of that time is documented to be
        refused with 410 by the other processes; the promise to consumers begins with the trail.
        """
        while True:
            while not self._position:
                await self._poll(0)
            answers = [await self._poll(number) for number in range(len(self._targets))]
            if None not in answers:
                break
            self._position = ""
            self.events.clear()
            self.refusals.clear()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Read what is left, at each process, and end. Nothing must be written any more."""
        self._stop.set()
        if self._task is not None:
            await self._task
        for number in range(len(self._targets)):
            while await self._poll(number) is not False:
                pass
        await self._http.aclose()

    async def _run(self) -> None:
        while not self._stop.is_set():
            number = self._chooser.randrange(len(self._targets))
            if self._chooser.random() < _POLLS:
                await self._poll(number)
            else:
                await self._stream(number, self._chooser.choice(_CUT_AFTER))

    async def _poll(self, number: int) -> bool | None:
        """Send one long poll; return whether it had events that move the position, or None without an answer."""
        url, token = self._targets[number]
        params = {"after": self._position} if self._position else {}
        try:
            answer = await self._http.get(url + _PATH, params=params, headers={"Authorization": f"Bearer {token}"})
        except httpx.HTTPError:
            return None
        if answer.status_code != httpx.codes.OK:
            self._refused(answer.status_code, answer.text)
            return None
        page = answer.json()
        self._position = page["position"]
        self.events += map(FeedEvent.of, page["events"])
        return any("id" in event for event in page["events"])

    async def _stream(self, number: int, most: int) -> None:
        """Read a stream until it has had so many events, or has been idle for a second."""
        try:
            async with asyncio.timeout(_PATIENCE_S), aclosing(self._lines(number)) as lines:
                async for event in lines:
                    if event["type"] not in {"change", "reset"}:
                        continue
                    self.events.append(FeedEvent.of(event))
                    if "id" in event:
                        self._position = event["id"]
                        most -= 1
                    if not most or self._stop.is_set():
                        return
        except (httpx.HTTPError, TimeoutError, ValueError):
            pass  # cut off, also within a line

    async def _lines(self, number: int) -> AsyncGenerator[dict[str, Any], None]:
        url, token = self._targets[number]
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/x-ndjson",
            "Last-Event-ID": self._position,
        }
        timeout = httpx.Timeout(_PATIENCE_S, read=1.0)
        async with self._http.stream("GET", url + _PATH, headers=headers, timeout=timeout) as response:
            if response.status_code != httpx.codes.OK:
                self._refused(response.status_code, (await response.aread()).decode())
                return
            async for line in response.aiter_lines():
                if line:
                    yield json.loads(line)

    def _refused(self, status: int, text: str) -> None:
        if status not in {401, 429, 503}:  # while Postgres is away no token can be read
            self.refusals.append(f"{status}: {text}")
