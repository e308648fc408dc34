"""Imports that commands over the API do without, so that they start sooner."""

from __future__ import annotations

import sys

_UNUSED = "httpx._main"
"""httpx's own command line: with click and pygments, where they are installed, two thirds of the import of httpx."""


def lighten() -> None:
    """Let httpx find its own command line absent, as it is without its extra ``cli``."""
    sys.modules.setdefault(_UNUSED, None)  # type: ignore[arg-type]  # None: the import fails
