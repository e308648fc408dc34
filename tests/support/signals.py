"""Signals that the processes of tests ignore, or do not."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def start_children_with_defaults() -> None:
    """Start every later child of this process with the default handlers of SIGINT and SIGTERM.

    A shell script starts its background jobs with SIGINT ignored. Children inherit that, but not a handler: this process
    continues to ignore the signals, by a handler that does nothing.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@contextmanager
def ignoring_sigint() -> Iterator[None]:
    """Ignore SIGINT in a block. What the block starts ignores it too, as a background job of a shell script does."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
