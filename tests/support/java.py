"""Java programs that tests start."""

from __future__ import annotations

import os
from typing import Final

_OTHERS_OPTIONS: Final = frozenset(
    {"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH", "KAFKA_OPTS"}
)


def java_environment() -> dict[str, str]:
    """This process's environment without the options that are meant for other Java programs."""
    return {name: value for name, value in os.environ.items() if name not in _OTHERS_OPTIONS}
