"""``enum.StrEnum``, for Python 3.10 as well, on which the base package runs."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """Members that are their values, as texts too."""

        __str__ = str.__str__
        __format__ = str.__format__


__all__ = ["StrEnum"]
