"""Thresholds of Python's garbage collector for commands and the service."""

from __future__ import annotations

import gc


def tune_gc() -> None:
    """Collect less often than by default.

    Imports, requests and changes leave next to no cycles behind. At the default the collector takes a tenth of a start,
    a twelfth of each write, and a third of a large import. A collection stops the event loop for as long as it walks
    objects: of the two young generations it walks some 15,000 at most, in a few milliseconds.
    """
    gc.set_threshold(5_000, 1, 1_000)


def tune_gc_for_batch() -> None:
    """Collect even less often: in a batch command pauses delay nobody."""
    gc.set_threshold(100_000, 1, 1_000)
