"""Stores on a chroot of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.stores import opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from confplane.store import ZooKeeperStore


@pytest.fixture
async def open_store(chroot: str) -> AsyncIterator[Callable[..., Awaitable[ZooKeeperStore]]]:
    """Opens stores on the test's chroot, and stops them."""
    stores: list[ZooKeeperStore] = []

    async def open_one(connect: str = chroot, **more: Any) -> ZooKeeperStore:
        stores.append(await opened(connect, **more))
        return stores[-1]

    yield open_one
    for each in stores:
        await each.stop()


@pytest.fixture
async def store(open_store: Callable[..., Awaitable[ZooKeeperStore]]) -> ZooKeeperStore:
    """A store that follows the test's chroot."""
    return await open_store()
