"""Durations in options, such as ``90m``."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_FORM: Final = re.compile(r"(\d{1,9})([smhd])", re.ASCII)


def seconds(text: str) -> int | None:
    """Read a duration such as ``90m``. Returns None for any other text."""
    match = _FORM.fullmatch(text)
    return None if match is None else int(match[1]) * _UNITS[match[2]]
