"""Swaps for coroutines: :mod:`app.client.dynamic.swap` has their steps."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from app.client.dynamic.swap import Rest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from app.client.dynamic.config import AsyncDynamicConsumerConfig, AsyncDynamicProducerConfig

C = TypeVar("C")


class AsyncSwappedProducer(Generic[C]):
    """A producer that follows its dynamic configs, for the tasks of one event loop.

    Example::

        async with swapped.use() as producer:
            await producer.send_and_wait("orders", value)

    A use lies in no other use of the same task: it would wait for itself.

    Args:
        dynamic: The settings.
        build: Makes a producer and starts it.
        flush: Returns once each record was delivered, or reported as failed.
        close: Closes a producer.
    """

    def __init__(
        self,
        dynamic: AsyncDynamicProducerConfig,
        *,
        build: Callable[[dict[str, Any]], Awaitable[C]],
        flush: Callable[[C], Awaitable[object]],
        close: Callable[[C], Awaitable[object]],
    ) -> None:
        self._dynamic: Final = dynamic
        self._build: Final = build
        self._flush: Final = flush
        self._close: Final = close
        self._free: Final = asyncio.Condition()
        self._users = 0
        self._swapping = False
        self._current: C

    async def start(self) -> None:
        """Make the first producer."""
        self._current = await self._build(self._dynamic.add(self))

    @asynccontextmanager
    async def use(self) -> AsyncIterator[C]:
        """Borrow the producer. Waits while it is swapped."""
        async with self._free:
            await self._free.wait_for(lambda: not self._swapping)
            self._users += 1
        try:
            yield self._current
        finally:
            async with self._free:
                self._users -= 1
                self._free.notify_all()

    def validate_reconfiguration(self, settings: Mapping[str, Any]) -> None:
        """Accept every setting; building the producer shows whether the library does."""

    async def reconfigure(self, settings: Mapping[str, Any]) -> None:
        """Swap."""
        made = await self._build(dict(settings))
        unused = made
        try:
            async with self._free:
                self._swapping = True
                await self._free.wait_for(lambda: not self._users)
            await self._flush(self._current)
            unused, self._current = self._current, made
        finally:
            async with self._free:
                self._swapping = False
                self._free.notify_all()
            await self._close(unused)

    async def close(self) -> None:
        """Flush and close the producer. Stop its settings first."""
        await self._flush(self._current)
        await self._close(self._current)


class AsyncSwappedConsumer(Generic[C]):
    """A consumer that follows its dynamic configs. One task polls; the swap takes place there.

    Example::

        while running:
            batch = await (await swapped.current()).getmany(timeout_ms=1000)

    Records that a poll returned count as processed when the consumer is asked for again. Under
    ``enable_auto_commit`` the close commits them; an application that commits by itself gives ``commit``.

    Args:
        dynamic: The settings.
        build: Makes a consumer that has not joined its group.
        join: Starts it.
        close: Closes a consumer, started or not; commits under ``enable_auto_commit``.
        commit: Commits before a close.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        dynamic: AsyncDynamicConsumerConfig,
        *,
        build: Callable[[dict[str, Any]], C],
        join: Callable[[C], Awaitable[object]],
        close: Callable[[C], Awaitable[object]],
        commit: Callable[[C], Awaitable[object]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dynamic: Final = dynamic
        self._build: Final = build
        self._join: Final = join
        self._close: Final = close
        self._commit: Final = commit
        self._rest: Final = Rest(clock)
        self._made: C | None = None
        self.waiting = False
        """True while a consumer is built that :meth:`current` has not put in place of the old one."""
        self._current: C

    async def start(self) -> None:
        """Make the first consumer."""
        self._current = self._build(self._dynamic.add(self))
        await self._join(self._current)

    async def current(self) -> C:
        """Return the consumer, a new one where its settings have changed and the last change was some time ago."""
        if self._made is not None and self._rest.over:
            if self._commit is not None:
                await self._commit(self._current)  # where this fails, the next call tries again
            old, self._current, self._made = self._current, self._made, None
            try:
                await self._close(old)
            finally:
                await self._join(self._current)
                self._rest.begin()
            self.waiting = self._made is not None
            self._dynamic.taken_over()
        return self._current

    def validate_reconfiguration(self, settings: Mapping[str, Any]) -> None:
        """Accept every setting; building the consumer shows whether the library does."""

    async def reconfigure(self, settings: Mapping[str, Any]) -> None:
        """Build the next consumer, to be taken by :meth:`current`."""
        unused, self._made, self.waiting = self._made, self._build(dict(settings)), True
        if unused is not None:
            await self._close(unused)

    async def close(self) -> None:
        """Commit and close. Stop the settings first."""
        if self._commit is not None:
            await self._commit(self._current)
        await self._close(self._current)
        if self._made is not None:
            await self._close(self._made)
