"""Swaps for coroutines: :mod:`confplane.client.dynamic.swap` describes their steps."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from confplane.client.dynamic.steps import C, ConsumerSteps, ProducerSteps, run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from confplane.client.dynamic.config import AsyncDynamicConsumerConfig, AsyncDynamicProducerConfig


class AsyncSwappedProducer(ProducerSteps[C]):
    """A producer that follows its dynamic configs, for the tasks of one event loop.

    Example::

        async with swapped.use() as producer:
            await producer.send_and_wait("orders", value)

    Uses must not be nested in one task: the inner one would wait for the outer one.

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
        super().__init__(dynamic, build=build, flush=flush, close=close)
        self._holder: asyncio.Task[Any] | None = None
        self._free: Final = asyncio.Event()
        self._free.set()
        self._unused: Final = asyncio.Event()
        self._unused.set()

    async def start(self) -> None:
        """Make the first producer."""
        await run_async(self._start())

    @asynccontextmanager
    async def use(self) -> AsyncIterator[C]:
        """Borrow the producer. Waits during a swap."""
        while self._holder is not None:
            await self._free.wait()
        # No await from here on: a cancellation would leave a use that never ends.
        self._users += 1
        self._unused.clear()
        try:
            yield self._current
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    async def reconfigure(self, settings: Mapping[str, Any]) -> None:
        """Swap."""
        await run_async(self._swap(settings))

    async def close(self) -> None:
        """Flush and close the producer, after any swap in progress. Stop its settings first."""
        await run_async(self._end())

    async def _hold(self) -> None:
        task = asyncio.current_task()
        while self._holder not in {None, task}:
            await self._free.wait()
        self._holder = task
        self._free.clear()
        await self._unused.wait()

    async def _release(self) -> None:
        if self._holder is asyncio.current_task():
            self._holder = None
            self._free.set()


class AsyncSwappedConsumer(ConsumerSteps[C]):
    """A consumer that follows its dynamic configs. One task polls; the swap takes place there.

    Example::

        while running:
            batch = await (await swapped.current()).getmany(timeout_ms=1000)

    Records of a poll count as processed when the consumer is requested again. With ``enable_auto_commit``, the close
    commits them; an application that commits by itself passes ``commit``.

    Args:
        dynamic: The settings.
        build: Makes a consumer that has not joined its group.
        join: Starts it.
        close: Closes a consumer, started or not; commits with ``enable_auto_commit``.
        commit: Commits before a close.
        clock: A monotonic clock, in seconds.
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
        super().__init__(dynamic, build=build, join=join, close=close, commit=commit, clock=clock)

    async def start(self) -> None:
        """Make the first consumer."""
        await run_async(self._start())

    async def current(self) -> C:
        """Return the consumer, a new one if its settings have changed and the last change was some time ago.

        If the new one can't be started, the error is raised, and the next call makes another.
        """
        await run_async(self._swap())
        assert self._current is not None  # noqa: S101 - after a swap, and before it
        return self._current

    async def reconfigure(self, settings: Mapping[str, Any]) -> None:
        """Build the next consumer, which :meth:`current` returns later."""
        await run_async(self._prepare(settings))

    async def close(self) -> None:
        """Commit and close. Stop the settings first."""
        await run_async(self._end())
