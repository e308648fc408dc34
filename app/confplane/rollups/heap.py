"""The heap of a local session's Java: all of Spark is in it, and Spark's own limit is 1 GB on any machine."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_MIB: Final = 2**20
_LEAST: Final = 1024 * _MIB
"""Spark's own limit, in bytes."""
_MOST: Final = 31 * 1024 * _MIB
"""The largest heap, in bytes, in which Java's references take four bytes; above it they take eight."""
_SHARE: Final = "-XX:MaxRAMPercentage=50"
_LIMIT: Final = re.compile(r"\bMaxHeapSize\s*=\s*(\d+)")


def set_limit(java: Path) -> None:
    """Let the Java that Spark starts next use half of the memory of this machine or container.

    Every other way to set a limit takes precedence: options of spark-submit, ``spark-defaults.conf``, the variable
    itself.

    Args:
        java: The program, which knows the limits of containers on every system.
    """
    os.environ.setdefault("SPARK_DRIVER_MEMORY", f"{limit(java) // _MIB}m")


def limit(java: Path) -> int:
    """Return half of the memory, in bytes, between Spark's own limit and 31 GB.

    A limit in Java's own options takes precedence. If Java does not answer, the limit is Spark's own.
    """
    asked = [str(java), _SHARE, "-XX:+PrintFlagsFinal", "-version"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True).stdout  # noqa: S603 - the user's own java
    except (OSError, subprocess.SubprocessError):
        return _LEAST
    found = _LIMIT.search(said)
    return _LEAST if found is None else min(max(int(found[1]), _LEAST), _MOST)
