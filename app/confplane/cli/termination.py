"""SIGTERM stops a command as Ctrl-C does.

A process that a shell script starts in the background ignores SIGINT, and so do its children. Python and asyncio then
have no handler for Ctrl-C, so SIGTERM does not rely on one.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Iterator
    from types import FrameType

T = TypeVar("T")

EXIT_CODE: Final = 128 + signal.SIGTERM
_AFTER_CTRL_C: Final = (1, 128 + signal.SIGINT)
"""The exit codes of commands that Ctrl-C stopped."""


class _Termination:
    """The handler of SIGTERM, and what it interrupts."""

    def __init__(self) -> None:
        self.requested = False
        self.task: asyncio.Task[Any] | None = None

    def handle(self, _number: int, frame: FrameType | None) -> None:
        """Cancel the running task, or else raise KeyboardInterrupt; once, since `timeout` sends the signal twice."""
        if self.requested:
            return
        self.requested = True
        if self.task is not None:
            self.task.get_loop().call_soon_threadsafe(self.task.cancel)
            return
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):  # the one of Spark cancels its jobs first
            handler(signal.SIGINT, frame)
        raise KeyboardInterrupt


_termination = _Termination()


@contextmanager
def sigterm_handled() -> Iterator[None]:
    """Let SIGTERM interrupt a block that runs a command. The command's exit code becomes 143 unless it has its own."""
    previous = signal.getsignal(signal.SIGTERM)
    if previous is not signal.SIG_DFL:  # a signal that is ignored stays ignored
        yield
        return
    _termination.requested = False
    signal.signal(signal.SIGTERM, _termination.handle)
    try:
        yield
    except SystemExit as end:
        if _termination.requested and end.code in _AFTER_CTRL_C:
            raise SystemExit(EXIT_CODE) from None
        raise
    except KeyboardInterrupt:
        if _termination.requested:
            raise SystemExit(EXIT_CODE) from None
        raise
    finally:
        if not _termination.requested:  # another SIGTERM must not end the process before it has cleaned up
            restore_default()


def restore_default() -> None:
    """Let SIGTERM end the process again. For commands that handle the signal themselves."""
    if signal.getsignal(signal.SIGTERM) == _termination.handle:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def is_requested() -> bool:
    """Return True once SIGTERM was received."""
    return _termination.requested


def run(work: Coroutine[Any, Any, T], runner: Callable[[Coroutine[Any, Any, Any]], Any] | None = None) -> T:
    """Run a coroutine like ``asyncio.run``. SIGTERM cancels it too, also if SIGINT is ignored.

    Args:
        work: The coroutine.
        runner: Runs it; ``asyncio.run`` by default.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM cancelled it.
    """
    import asyncio  # noqa: PLC0415 - help and completion do without it

    cancelled = object()

    async def cancellable() -> Any:
        _termination.task = asyncio.current_task()
        try:
            return await work
        except asyncio.CancelledError:
            if not _termination.requested:
                raise
            return cancelled
        finally:
            _termination.task = None

    result: Any = (runner or asyncio.run)(cancellable())
    if result is cancelled:
        raise KeyboardInterrupt
    found: T = result
    return found
