"""A flag that a signal handler may set."""

from __future__ import annotations

import time
from typing import Final

_STEP_S: Final = 0.05


class Cancellation:
    """A flag that is set once, from any thread or signal handler, and can be waited for.

    This is not a ``threading.Event``, because a handler runs in the middle of the main thread. A handler that
    interrupts the event's own wait would find the event's lock held by its own thread, and would wait forever.
    """

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """Set the flag."""
        self._set = True

    def is_set(self) -> bool:
        """Return True once the flag is set."""
        return self._set

    def wait(self, seconds: float) -> bool:
        """Wait until the flag is set, or at most for the given seconds. Return whether it is set."""
        end = time.monotonic() + seconds
        while not self._set and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _STEP_S))
        return self._set
