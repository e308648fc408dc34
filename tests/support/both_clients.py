"""Both clients as one: a test that is written once runs with the blocking and with the asynchronous client.

Also a fake service for their retries.
"""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import httpx

from confplane.client import AsyncConfplane, AsyncPages, Confplane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KINDS: Final = (Confplane, AsyncConfplane)
Kind = type[Confplane] | type[AsyncConfplane]


class Flaky:
    """A service that fails several times before it answers."""

    def __init__(self, *failures: httpx.Response | Exception) -> None:
        self.failures = list(failures)
        self.keys: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.keys.append(request.headers.get("Idempotency-Key"))
        if not self.failures:
            return httpx.Response(200, json={"ok": True})
        failure = self.failures.pop(0)
        if isinstance(failure, Exception):
            raise failure
        return failure

    @property
    def transport(self) -> httpx.MockTransport:
        """The service as the transport of a client."""
        return httpx.MockTransport(self)


@asynccontextmanager
async def connected(kind: Kind, url: str = "http://confplane.test", **options: Any) -> AsyncIterator[Any]:
    """Make a client, and close it."""
    client = kind(url, **({"token": None} | options))
    try:
        yield client
    finally:
        await done(client.close())


async def done(result: Any) -> Any:
    """Return the result of a method of either client."""
    return await result if inspect.isawaitable(result) else result


async def items(pages: Any) -> list[Any]:
    """Read a list of either client to its end."""
    return [item async for item in pages] if isinstance(pages, AsyncPages) else list(pages)


async def bodies(pages: Any) -> list[Any]:
    """Read the pages of a list of either client."""
    return [page async for page in pages.pages()] if isinstance(pages, AsyncPages) else list(pages.pages())
