"""Clients of Kafka 4 clusters that are always closed, because open connections would fail the next test."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from confplane.kraft.client import KraftClient
from confplane.kraft.wire.options import Address, Options
from tests.support.stores import soon
from tests.support.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def client_of(
    *addresses: str | Address, options: Options | None = None, cluster_id: str | None = None
) -> AsyncIterator[KraftClient]:
    """Make a client of the brokers at some addresses, written ``host:port`` or parsed; close it at the end."""
    parsed = [Address.parse(each) if isinstance(each, str) else each for each in addresses]
    client = KraftClient(parsed, options or Options(), cluster_id=cluster_id)
    try:
        yield client
    finally:
        await client.close()


async def settle(client: KraftClient) -> None:
    """Wait until the broker describes all acknowledged configs: those of brokers and groups follow its metadata."""
    deadline = soon(PATIENCE_S)
    reached = await client.barrier(deadline)

    async def passed() -> bool:
        found = await client.features(deadline)
        return found.offset > reached

    await until(passed)
