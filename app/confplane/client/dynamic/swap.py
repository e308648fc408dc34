"""Swaps: replace a client by a new one whenever its settings change, without losing records.

The application borrows the producer for each use, and requests the consumer before each poll. So there is a moment at
which the old client is not in use:

1. build the new client, with the new settings; if this fails, the old one stays and the settings are offered again,
2. producers: wait until the old one is not in use, and flush it, so that records keep their order,
3. switch,
4. close the old one. A consumer commits and leaves its group here, and only then the new one joins: members that are
   slow to rebalance see both as one rebalance.

A consumer that replaced another stays for some time. Nothing is read while it joins its group, so consumers that are
replaced faster than they join would read nothing at all.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from confplane.client.dynamic.steps import C, ConsumerSteps, ProducerSteps, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from confplane.client.dynamic.config import DynamicConsumerConfig, DynamicProducerConfig


class SwappedProducer(ProducerSteps[C]):
    """A producer that follows its dynamic configs, for threads.

    Example::

        with swapped.use() as producer:
            producer.produce("orders", value)

    A transaction must be within one use. Callbacks of the producer may use it too.

    Args:
        dynamic: The settings.
        build: Makes a producer.
        flush: Returns once each record was delivered, or reported as failed.
        close: Closes a producer.
        calls_back_in: Returns the thread in which a producer calls callbacks, unless that is a thread that uses,
            flushes or closes it.
    """

    def __init__(
        self,
        dynamic: DynamicProducerConfig,
        *,
        build: Callable[[dict[str, Any]], C],
        flush: Callable[[C], object],
        close: Callable[[C], object],
        calls_back_in: Callable[[C], threading.Thread | None] = lambda _: None,
    ) -> None:
        super().__init__(dynamic, build=build, flush=flush, close=close)
        self._calls_back_in: Final = calls_back_in
        self._free: Final = threading.Condition()
        self._uses: Final = threading.local()
        self._holder: threading.Thread | None = None
        self._called_back = False
        """True if a callback has used the producer in the library's thread since uses were blocked."""
        run(self._start())

    @contextmanager
    def use(self) -> Iterator[C]:
        """Borrow the producer. Waits during a swap."""
        held = self._held
        with self._free:
            # A flush waits for callbacks, so callbacks can't wait for the flush. A thread can't wait for itself either.
            if threading.current_thread() is self._calls_back_in(self._current):
                self._called_back = True
            elif not held:
                self._free.wait_for(self._is_free)
            self._users += 1
            producer = self._current
        self._uses.held = held + 1
        try:
            yield producer
        finally:
            self._uses.held = held
            with self._free:
                self._users -= 1
                self._free.notify_all()

    def reconfigure(self, settings: Mapping[str, Any]) -> None:
        """Swap."""
        run(self._swap(settings))

    def close(self) -> None:
        """Flush and close the producer, after any swap in progress. Stop its settings first."""
        run(self._end())

    @property
    def _held(self) -> int:
        """The uses of this thread."""
        return getattr(self._uses, "held", 0)

    def _is_free(self) -> bool:
        return self._holder in {None, threading.current_thread()}

    def _hold(self) -> None:
        with self._free:
            self._free.wait_for(self._is_free)
            self._holder = threading.current_thread()
            self._free.wait_for(lambda: self._users == self._held)
            self._called_back = False

    def _release(self) -> None:
        with self._free:
            if self._is_free():
                self._holder = None
            self._free.notify_all()

    def _switch(self, made: C) -> C:
        with self._free:
            return made if self._called_back else super()._switch(made)


class SwappedConsumer(ConsumerSteps[C]):
    """A consumer that follows its dynamic configs. One thread polls; the swap takes place there.

    Example::

        while running:
            message = swapped.current().poll(1.0)

    Records of a poll count as processed when the consumer is requested again. With ``enable.auto.commit``, the close
    commits them; an application that commits by itself passes ``commit``.

    Args:
        dynamic: The settings.
        build: Makes a consumer that has not joined its group.
        join: Subscribes it.
        close: Closes a consumer, which commits with ``enable.auto.commit``.
        commit: Commits before a close.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        dynamic: DynamicConsumerConfig,
        *,
        build: Callable[[dict[str, Any]], C],
        join: Callable[[C], object],
        close: Callable[[C], object],
        commit: Callable[[C], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(dynamic, build=build, join=join, close=close, commit=commit, clock=clock)
        run(self._start())

    def current(self) -> C:
        """Return the consumer, a new one if its settings have changed and the last change was some time ago.

        If the new one can't subscribe, the error is raised, and the next call makes another.
        """
        run(self._swap())
        assert self._current is not None  # noqa: S101 - after a swap, and before it
        return self._current

    def reconfigure(self, settings: Mapping[str, Any]) -> None:
        """Build the next consumer, which :meth:`current` returns later."""
        run(self._prepare(settings))

    def close(self) -> None:
        """Commit and close, in the thread that polls. Stop the settings first."""
        run(self._end())
