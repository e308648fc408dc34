"""``asyncio.Runner``, for Python 3.10 as well."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from typing_extensions import Self

T = TypeVar("T")

if sys.version_info >= (3, 11):
    from asyncio import Runner as AsyncioRunner
else:

    class AsyncioRunner:
        """One event loop for several coroutines, run one after the other."""

        def __enter__(self) -> Self:
            self._loop = asyncio.new_event_loop()
            return self

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            try:
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
                self._loop.run_until_complete(self._loop.shutdown_default_executor())
            finally:
                self._loop.close()

        def run(self, work: Coroutine[Any, Any, T]) -> T:
            """Run a coroutine to its end; an interrupt cancels it."""
            task = self._loop.create_task(work)
            try:
                return self._loop.run_until_complete(task)
            except KeyboardInterrupt:
                task.cancel()
                self._loop.run_until_complete(asyncio.wait({task}))
                raise


__all__ = ["AsyncioRunner"]
