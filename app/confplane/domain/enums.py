"""``enum.StrEnum``, also for Python 3.10, which the base package supports."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """Members that are equal to their values and print as them."""

        __str__ = str.__str__
        __format__ = str.__format__


__all__ = ["StrEnum"]
