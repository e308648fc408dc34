"""Requests of several clusters that are sent to Postgres as one statement."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

Q = TypeVar("Q")
R = TypeVar("R")


class Batcher(Generic[Q, R]):
    """Collects the requests that are made in one iteration of the event loop, and sends them together.

    Args:
        send: Sends requests, and returns the results in their order. Its error is that of all of them.
    """

    def __init__(self, send: Callable[[Sequence[Q]], Awaitable[Sequence[R]]]) -> None:
        self._send = send
        self._requests: list[Q] = []
        self._batch: asyncio.Task[Sequence[R]] | None = None

    async def request(self, request: Q) -> R:
        """Send a request with those of the same iteration, and return its result."""
        if self._batch is None:
            self._batch = asyncio.create_task(self._send_all())
            # Retrieves the error, because every caller may be gone.
            self._batch.add_done_callback(lambda batch: batch.cancelled() or batch.exception())
        number = len(self._requests)
        self._requests.append(request)
        return (await asyncio.shield(self._batch))[number]

    async def _send_all(self) -> Sequence[R]:
        requests, self._requests, self._batch = self._requests, [], None
        return await self._send(requests)
