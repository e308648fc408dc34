"""Thresholds of Python's garbage collector for commands and the service."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def tune_gc() -> None:
    """Collect less often than by default.

    Imports, requests and changes create almost no cycles. With the default thresholds the collector uses a tenth of the
    startup time, a twelfth of each write, and a third of a large import. A collection stops the event loop while it
    walks objects: in the two young generations at most some 15,000, in a few milliseconds.
    """
    gc.set_threshold(5_000, 1, 1_000)


def tune_gc_for_batch() -> None:
    """Collect even less often: pauses do not matter in a batch command."""
    gc.set_threshold(100_000, 1, 1_000)


@contextmanager
def imports_frozen() -> Iterator[None]:
    """Import modules without a collection, and keep what they create out of all later ones: it stays until the end."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
