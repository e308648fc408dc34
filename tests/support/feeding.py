"""Readers of the feed of changes over plain HTTP."""

from __future__ import annotations

import json
import random
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from tests.support.service import Service

PATIENCE_S = 60.0


@asynccontextmanager
async def streaming(
    service: Service,
    *,
    token: str | None = None,
    accept: str = "text/event-stream",
    last_id: str | None = None,
    **query: str,
) -> AsyncIterator[httpx.Response]:
    """Open a stream of changes."""
    headers = {"Authorization": f"Bearer {token or service.token}", "Accept": accept}
    if last_id is not None:
        headers["Last-Event-ID"] = last_id
    timeout = httpx.Timeout(PATIENCE_S)
    async with (
        httpx.AsyncClient(trust_env=False, timeout=timeout) as client,
        client.stream("GET", f"{service.url}/v1/clusters/default/changes", headers=headers, params=query) as response,
    ):
        yield response


async def events(response: httpx.Response) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the events of a stream of server-sent events; ``sse`` is the id of the framing."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
            continue
        if fields:
            found = json.loads(fields["data"])
            assert found["type"] == fields["event"]
            yield found | {"sse": fields.get("id")}
            fields = {}


async def page(service: Service, *, token: str | None = None, **query: str) -> httpx.Response:
    """Send one long poll."""
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
        return await client.get(
            f"{service.url}/v1/clusters/default/changes",
            headers={"Authorization": f"Bearer {token or service.token}"},
            params=query,
        )


async def one_by_one(services: Sequence[Service], position: str | None, seed: int, **query: str) -> Any:
    """Events, each from a new connection to any service, which is cut off after it; bookmarks only with a snapshot."""
    choice = random.Random(seed)  # noqa: S311 - no secret
    while True:
        async with streaming(choice.choice(services), last_id=position, **query) as response:
            if response.status_code == 503:
                await response.aread()
                assert int(response.headers["Retry-After"]) >= 1
                continue
            assert response.status_code == 200, await response.aread()
            async with aclosing(events(response)) as found:
                async for event in found:
                    if event["type"] == "goodbye":
                        break
                    if event["type"] == "bookmark" and "snapshot" not in query:
                        continue
                    yield event
                    if event["sse"] is not None:
                        position = event["sse"]
                        break
