"""A flag that a signal handler may set."""

from __future__ import annotations

import time
from typing import Final

_STEP_S: Final = 0.05


class Cancellation:
    """Set once, from any thread or signal handler, and waited for.

    No ``threading.Event``: a handler runs in the midst of the main thread, and where that is just waiting for the event
    it holds the event's lock, so that to set it there would wait for ever.
    """

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """Set the flag."""
        self._set = True

    def is_set(self) -> bool:
        """Say whether it was set."""
        return self._set

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, for so long at most; return whether it is."""
        end = time.monotonic() + seconds
        while not self._set and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _STEP_S))
        return self._set
