"""Swaps: a new client in place of the old one whenever its settings change, with no record lost.

The application borrows the producer for each use, and asks for the consumer before each poll. So there is a moment at
which nobody uses the old client:

1. build the new client, with the new settings; if this fails, the old one stays and the settings are offered again,
2. producers: wait until nobody uses the old one, and flush it, so that records keep their order,
3. switch,
4. close the old one. A consumer leaves its group here, after it has committed, and only then the new one joins:
   members that rebalance at leisure see both as one rebalance.

A consumer that took the place of another stays for some time: nothing is read while it joins its group, so consumers
that follow each other faster than they join would read nothing at all.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from app.client.dynamic.config import DynamicConsumerConfig, DynamicProducerConfig

C = TypeVar("C")

REST_S: Final = 30.0
"""Seconds between two swaps of a consumer, at least: several times the join of a group with a slow broker. Polls
at the default ``metadata.max.age.ms`` are four minutes apart."""


class Rest:
    """The time after a swap in which none follows.

    Args:
        clock: Seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._end = -math.inf

    def begin(self) -> None:
        """Begin after a swap."""
        self._end = self._clock() + REST_S

    @property
    def over(self) -> bool:
        """True where a swap may follow."""
        return self._clock() >= self._end


class SwappedProducer(Generic[C]):
    """A producer that follows its dynamic configs, for threads.

    Example::

        with swapped.use() as producer:
            producer.produce("orders", value)

    A transaction lies within one use. Callbacks of the producer may use it too.

    Args:
        dynamic: The settings.
        build: Makes a producer.
        flush: Returns once each record was delivered, or reported as failed.
        close: Closes a producer.
    """

    def __init__(
        self,
        dynamic: DynamicProducerConfig,
        *,
        build: Callable[[dict[str, Any]], C],
        flush: Callable[[C], object],
        close: Callable[[C], object],
    ) -> None:
        self._build: Final = build
        self._flush: Final = flush
        self._close: Final = close
        self._free: Final = threading.Condition()
        self._uses: Final = threading.local()
        self._users = 0
        self._swapper: int | None = None
        self._current = build(dynamic.add(self))

    @contextmanager
    def use(self) -> Iterator[C]:
        """Borrow the producer. Waits while it is swapped."""
        # A thread that holds it already, or flushes it and so calls callbacks, would wait for itself.
        held: int = getattr(self._uses, "held", 0)
        with self._free:
            if not held and self._swapper != threading.get_ident():
                self._free.wait_for(lambda: self._swapper is None)
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

    def validate_reconfiguration(self, settings: Mapping[str, Any]) -> None:
        """Accept every setting; building the producer shows whether the library does."""

    def reconfigure(self, settings: Mapping[str, Any]) -> None:
        """Swap."""
        made = self._build(dict(settings))
        with self._free:
            self._swapper = threading.get_ident()
            self._free.wait_for(lambda: not self._users)
        old = self._current
        try:
            self._flush(old)
            self._current = made
        except BaseException:
            self._close(made)
            raise
        finally:
            with self._free:
                self._swapper = None
                self._free.notify_all()
        self._close(old)

    def close(self) -> None:
        """Flush and close the producer. Stop its settings first."""
        self._flush(self._current)
        self._close(self._current)


class SwappedConsumer(Generic[C]):
    """A consumer that follows its dynamic configs. One thread polls; the swap takes place there.

    Example::

        while running:
            message = swapped.current().poll(1.0)

    Records that a poll returned count as processed when the consumer is asked for again. Under
    ``enable.auto.commit`` the close commits them; an application that commits by itself gives ``commit``.

    Args:
        dynamic: The settings.
        build: Makes a consumer that has not joined its group.
        join: Subscribes it.
        close: Closes a consumer, which commits under ``enable.auto.commit``.
        commit: Commits before a close.
        clock: Seconds that never go back.
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
        self._build: Final = build
        self._join: Final = join
        self._close: Final = close
        self._commit: Final = commit
        self._dynamic: Final = dynamic
        self._lock: Final = threading.Lock()
        self._rest: Final = Rest(clock)
        self._made: C | None = None
        self.waiting = False
        """True while a consumer is built that :meth:`current` has not put in place of the old one."""
        self._current = build(dynamic.add(self))
        join(self._current)

    def current(self) -> C:
        """Return the consumer, a new one where its settings have changed and the last change was some time ago."""
        if self._made is not None and self._rest.over:
            if self._commit is not None:
                self._commit(self._current)  # where this fails, the next call tries again
            old, self._current = self._current, self._taken()
            try:
                self._close(old)
            finally:
                self._join(self._current)
                self._rest.begin()
            with self._lock:
                self.waiting = self._made is not None
            self._dynamic.taken_over()
        return self._current

    def validate_reconfiguration(self, settings: Mapping[str, Any]) -> None:
        """Accept every setting; building the consumer shows whether the library does."""

    def reconfigure(self, settings: Mapping[str, Any]) -> None:
        """Build the next consumer, to be taken by :meth:`current`."""
        made = self._build(dict(settings))
        with self._lock:
            unused, self._made, self.waiting = self._made, made, True
        if unused is not None:
            self._close(unused)

    def close(self) -> None:
        """Commit and close, in the thread that polls. Stop the settings first."""
        if self._commit is not None:
            self._commit(self._current)
        self._close(self._current)
        if self._made is not None:
            self._close(self._made)

    def _taken(self) -> C:
        with self._lock:
            made, self._made = self._made, None
        assert made is not None  # noqa: S101 - only the thread that polls takes it away
        return made
