"""One question to many brokers concurrently: a broker that hangs does not delay the response of another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

_B = TypeVar("_B")
_T = TypeVar("_T")

_AT_ONCE: Final = 32


async def fan_out(brokers: Iterable[_B], ask: Callable[[_B], Awaitable[_T]]) -> list[_T]:
    """Ask about brokers, some dozens at a time. Return the answers in order, or raise the first error."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(broker: _B) -> _T:
        async with slots:
            return await ask(broker)

    return await asyncio.gather(*map(one, brokers))
