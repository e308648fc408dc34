"""Java programs that tests start."""

from __future__ import annotations

import os
from typing import Final

# Optimized compilation takes longer than it saves in a test, and concurrent collection costs more.
_QUICK: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SPARK_OPTIONS: Final = " ".join(
    [
        *_QUICK,
        # The quick compiler alone is given 48 MB for its code, which a session of many tests fills: Java would drop
        # code, and compile it again.
        "-XX:ReservedCodeCacheSize=240m",
        # Java and Python give each other 15 seconds to connect, which a busy machine may need.
        "-Dspark.python.authenticate.socketTimeout=120s",
    ]
)
"""Options of a driver of Spark, for ``SPARK_SUBMIT_OPTS``."""

_OTHERS_OPTIONS: Final = frozenset(
    {"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH", "KAFKA_OPTS"}
)


def quick_java(heap: str = "256m") -> list[str]:
    """Return the options for a fast start with little memory; ``heap`` is the maximum size of the heap."""
    return [f"-Xmx{heap}", *_QUICK]


def java_environment() -> dict[str, str]:
    """This process's environment without the options that are meant for other Java programs."""
    return {name: value for name, value in os.environ.items() if name not in _OTHERS_OPTIONS}
