"""The steps of swaps that threads and tasks share.

A generator yields each call of the library's client: its result, or an awaitable of it. :func:`run` and
:func:`run_async` send the result back; a failure is raised inside.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confplane.client.dynamic.config import DynamicConfig

C = TypeVar("C")
Steps = Generator[Any, Any, None]

_log: Final = logging.getLogger(__name__)

MIN_SWAP_INTERVAL_S: Final = 30.0
"""Minimum seconds between two swaps of a consumer: several times as long as joining a group on a slow broker. Polls at
the default ``metadata.max.age.ms`` are at least four minutes apart."""


def run(steps: Steps) -> None:
    """Run the steps; their calls have returned results."""
    try:
        result = next(steps)
        while True:
            result = steps.send(result)
    except StopIteration:
        return


async def run_async(steps: Steps) -> None:
    """Run the steps; their calls have returned awaitables."""
    try:
        step = next(steps)
        while True:
            try:
                result = await step
            except BaseException as error:  # noqa: BLE001 - including cancellation, because the steps clean up after it
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration:
        return


def _quietly(close: Callable[[C], Any], client: C) -> Steps:
    """Close a client that is no longer used. A failure is only logged, because another client has replaced it."""
    try:
        yield close(client)
    except Exception:  # noqa: BLE001 - an error of the library
        _log.exception("a client that was swapped could not be closed")


class ProducerSteps(Generic[C]):
    """A producer's swap. Subclasses wait in their own ways."""

    _current: C

    def __init__(
        self,
        dynamic: DynamicConfig,
        *,
        build: Callable[[dict[str, Any]], Any],
        flush: Callable[[C], Any],
        close: Callable[[C], Any],
    ) -> None:
        self._dynamic: Final = dynamic
        self._build: Final = build
        self._flush: Final = flush
        self._close: Final = close
        self._users = 0
        self._closed = False

    def validate_reconfiguration(self, settings: Mapping[str, Any]) -> None:
        """Accept every setting, because building the producer checks them."""

    def reconfigure(self, settings: Mapping[str, Any]) -> object:
        """Swap."""
        raise NotImplementedError

    def _hold(self) -> Any:
        """Block new uses, except those of callbacks, and wait for the end of current uses."""
        raise NotImplementedError

    def _release(self) -> Any:
        """Unblock uses, if this thread or task blocks them."""
        raise NotImplementedError

    def _start(self) -> Steps:
        settings = self._dynamic.settings
        self._current = yield self._build(dict(settings))
        self._dynamic.add(self, settings)

    def _swap(self, settings: Mapping[str, Any]) -> Steps:
        made = unused = yield self._build(dict(settings))
        try:
            while unused is made:
                yield self._hold()
                if self._closed:
                    return
                yield self._flush(self._current)
                unused = self._switch(made)
        finally:
            yield self._release()
            yield from _quietly(self._close, unused)

    def _switch(self, made: C) -> C:
        """Switch, unless the old producer must be flushed again. Return the producer that is no longer used."""
        old, self._current = self._current, made
        return old

    def _end(self) -> Steps:
        yield self._hold()
        try:
            self._closed = True
            yield self._flush(self._current)
        finally:
            yield self._release()
            yield self._close(self._current)


class ConsumerSteps(Generic[C]):
    """A consumer's swap, and the start of the first consumer.

    Args:
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        dynamic: DynamicConfig,
        *,
        build: Callable[[dict[str, Any]], C],
        join: Callable[[C], Any],
        close: Callable[[C], Any],
        commit: Callable[[C], Any] | None,
        clock: Callable[[], float],
    ) -> None:
        self._dynamic: Final = dynamic
        self._build: Final = build
        self._join: Final = join
        self._close: Final = close
        self._commit: Final = commit
        self._clock: Final = clock
        self._next_swap_at = -math.inf
        self._lock: Final = threading.Lock()
        self._current: C | None = None
        self._settings: dict[str, Any] = {}
        self._made: C | None = None
        self._closed = False

    @property
    def waiting(self) -> bool:
        """True while a consumer is ready to replace the old one."""
        return self._made is not None or self._current is None

    def validate_reconfiguration(self, settings: Mapping[str, Any]) -> None:
        """Accept every setting, because building the consumer checks them."""

    def reconfigure(self, settings: Mapping[str, Any]) -> object:
        """Build the next consumer."""
        raise NotImplementedError

    def _start(self) -> Steps:
        self._settings = self._dynamic.settings
        yield from self._joined()
        self._dynamic.add(self, self._settings)

    def _prepare(self, settings: Mapping[str, Any]) -> Steps:
        """Build the next consumer."""
        made = self._build(dict(settings))
        with self._lock:
            unused, self._made, self._settings = self._made, made, dict(settings)
            if self._closed:
                unused, self._made = made, None
        if unused is not None:
            yield from _quietly(self._close, unused)

    def _swap(self) -> Steps:
        """Replace the old consumer by the next one, if it is time to."""
        if self._current is not None:
            if self._made is None or self._clock() < self._next_swap_at:
                return
            if self._commit is not None:
                try:
                    yield self._commit(self._current)
                except Exception:  # noqa: BLE001 - for example a rebalance; polls of the old consumer end it
                    _log.exception("the commit before a swap failed, the next try is in %g s", MIN_SWAP_INTERVAL_S)
                    self._next_swap_at = self._clock() + MIN_SWAP_INTERVAL_S
                    return
            old, self._current = self._current, None
            yield from _quietly(self._close, old)
        yield from self._joined()
        self._next_swap_at = self._clock() + MIN_SWAP_INTERVAL_S
        self._dynamic.taken_over()

    def _joined(self) -> Steps:
        """Make the prepared consumer join, or a new one after a failure. A consumer that fails is closed."""
        with self._lock:
            made, self._made = self._made, None
            settings = self._settings
        if made is None:
            made = self._build(dict(settings))
        try:
            yield self._join(made)
        except BaseException:
            yield from _quietly(self._close, made)
            raise
        self._current = made

    def _end(self) -> Steps:
        with self._lock:
            self._closed = True
            made, self._made = self._made, None
        try:
            if self._commit is not None and self._current is not None:
                yield self._commit(self._current)
        finally:
            try:
                if self._current is not None:
                    yield self._close(self._current)
            finally:
                if made is not None:
                    yield from _quietly(self._close, made)
