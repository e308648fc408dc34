"""Background tasks: their start and stop, and the errors of loops."""

from __future__ import annotations

import asyncio
import contextlib
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confplane.domain.errors import ConfplaneError, UnavailableError

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
    from datetime import datetime
    from uuid import UUID

_LONGEST_PAUSE_S: Final = 60.0


class BackgroundTask:
    """A background task. A stopped task can be started again."""

    def __init__(self, run: Callable[[], Coroutine[Any, Any, None]], *, name: str) -> None:
        self._run = run
        self._name = name
        self._task: asyncio.Task[None] | None = None

    @property
    def stopping(self) -> bool:
        """True once the task was asked to stop."""
        return self._task is not None and self._task.cancelling() > 0

    def start(self) -> None:
        """Start the task."""
        self._task = asyncio.create_task(self._run(), name=self._name)

    async def stop(self) -> None:
        """Cancel the task and wait for its end.

        Raises:
            Exception: The error of a task that ended by itself before the stop.
        """
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None


class BackgroundService:
    """A part of the process that works in one background task."""

    _background: BackgroundTask

    def start(self) -> None:
        """Start in the background."""
        self._background.start()

    async def stop(self) -> None:
        """Stop. A stopped part can be started again."""
        await self._background.stop()


class ErrorLog:
    """Logs the errors of a loop over rounds, so that it goes on: an unavailable store once, until a round succeeds.

    Args:
        logger: The logger of the loop's module.
        cluster: The cluster.
        waits: The message of an unavailable store, such as ``reconciling has to wait``.
        fails: The message of any other error.
    """

    def __init__(self, logger: logging.Logger, cluster: str, *, waits: str, fails: str) -> None:
        self._logger = logger
        self._cluster = cluster
        self._waits = waits
        self._fails = fails
        self._waiting = False

    @contextlib.contextmanager
    def of_round(self) -> Iterator[None]:
        """Log the error of the round within the context, and suppress it."""
        try:
            yield
        except UnavailableError as error:
            if not self._waiting:
                self._logger.warning("Cluster %s: %s: %s", self._cluster, self._waits, error.detail)
            self._waiting = True
        except Exception:
            self._logger.exception("Cluster %s: %s", self._cluster, self._fails)
        else:
            self._waiting = False


class FailedAttempt(NamedTuple):
    """The last failed attempt at an item."""

    number: int
    next_at: datetime
    error: str


class RetriedItems:
    """The due items of a loop whose attempts failed: each is attempted again, at growing intervals up to a minute.

    Args:
        logger: The logger of the loop's module.
        now: The clock.
        failed: The message of a failed attempt, which takes the item's id.
    """

    def __init__(self, logger: logging.Logger, now: Callable[[], datetime], failed: str) -> None:
        self._logger = logger
        self._now = now
        self._message = failed
        self.failed: dict[UUID, FailedAttempt] = {}

    def ready(self, due: Collection[UUID]) -> list[UUID]:
        """Return the items to attempt now, and forget those that are no longer due."""
        self.failed = {each: failed for each, failed in self.failed.items() if each in due}
        now = self._now()
        return [each for each in due if each not in self.failed or self.failed[each].next_at <= now]

    @contextlib.contextmanager
    def attempt(self, item: UUID) -> Iterator[None]:
        """Log and suppress the error of the attempt within the context; a refusal is logged only once."""
        try:
            yield
        except ConfplaneError as raised:
            error = raised.detail
            if item not in self.failed:
                self._logger.warning("%s: %s", self._message % item, error)
        except Exception as raised:
            error = type(raised).__name__
            self._logger.exception(self._message, item)
        else:
            self.failed.pop(item, None)
            return
        number = self.failed[item].number + 1 if item in self.failed else 1
        pause = timedelta(seconds=_doubled_s(number, 1.0, _LONGEST_PAUSE_S))
        self.failed[item] = FailedAttempt(number, self._now() + pause, error)


def backoff_s(failures: int, first_s: float = 1.0, longest_s: float = 30.0) -> float:
    """Return the seconds to wait after some failures in a row: a random part of a pause that doubles with each."""
    return _doubled_s(failures, first_s, longest_s) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


def _doubled_s(failures: int, first_s: float, longest_s: float) -> float:
    # The exponent has a bound, because a float overflows after a thousand failures.
    return min(longest_s, first_s * 2.0 ** min(failures - 1, 10))


async def poll_repeatedly(
    poll: Callable[[], Awaitable[None]], interval_s: float, logger: logging.Logger, failed: str
) -> None:
    """Poll until cancelled, with about an interval between two polls.

    Args:
        poll: One poll. Other parts report an unavailable store.
        interval_s: Seconds.
        logger: The logger of the caller's module.
        failed: The message of any other error.
    """
    while True:
        try:
            await poll()
        except UnavailableError:
            pass
        except Exception:
            logger.exception(failed)
        # Replicas that were started together should not all query at once.
        await asyncio.sleep(interval_s * random.uniform(0.8, 1.2))  # noqa: S311 - no secret
