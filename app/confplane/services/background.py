"""A background task with a start and a stop."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


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
