"""Skips imports that commands over the API do not need, so that they start faster."""

from __future__ import annotations

import sys

_UNUSED = "httpx._main"
"""httpx's own command line. If click and pygments are installed, it takes two thirds of the import time of httpx."""


def lighten() -> None:
    """Make httpx's own command line appear absent, as it is without the extra ``cli``."""
    sys.modules.setdefault(_UNUSED, None)  # type: ignore[arg-type]  # None: the import fails
