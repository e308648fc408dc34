"""Settings of Spark's Java: the heap of a local session, and settings for small clusters."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING, Final

from confplane.rollups.sources.postgres import open_transaction
from confplane.rollups.sources.tables import SAMPLED
from confplane.store.scan import Scanner

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from confplane.rollups.origin import Origin


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


# Small clusters: settings with which Java starts, plans and ends faster, for runs with few rows.
#
# On a small cluster, most of a run's time is Java's start and the planning and compiling of queries. In this case the
# JVM's quick compiler and its serial collector suffice, plans are interpreted instead of compiled, and each shuffle has
# one part. The size is queried before Java is started. A wrong guess costs time but does not change rows, because the
# transforms are the same.

BYTES: Final = 32 * 2**20
"""Maximum size of a small cluster's tables in Postgres: about 40,000 changes with as many registrations."""
ZNODES: Final = 20_000
"""Maximum number of a small cluster's znodes, without those of client-ids below users."""
ROWS: Final = 80_000
"""Maximum number of rows of a small cluster's lake."""

SETTINGS: Final = {
    # A shuffle with one part needs no sample of its keys, for which Spark would run the query twice.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings of Spark."""
_QUICK_COMPILER: Final = "-XX:TieredStopAtLevel=1"
_SERIAL_COLLECTOR: Final = "-XX:+UseSerialGC"
_GIVEN: Final = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_ARCHIVE: Final = re.compile(r"-Xshare\b|-XX:(SharedArchiveFile|ArchiveClassesAtExit)\b")


def is_small(origin: Origin, *, reads_znodes: bool) -> bool:
    """Return True if a cluster is small, by the tables of Postgres (of all clusters together) and by its znodes.

    Args:
        origin: The stores.
        reads_znodes: False if znodes are not read, so that ZooKeeper is not queried.

    Raises:
        UnavailableError: Postgres or ZooKeeper is unavailable.
    """
    names = ", ".join(f"('{table}')" for table in SAMPLED)
    with open_transaction(origin.dsn) as postgres:
        query = f"SELECT sum(pg_table_size(name::regclass))::bigint FROM (VALUES {names}) AS tables (name)"  # noqa: S608 - of constants
        [(size,)] = postgres.rows(query)
    return size <= BYTES and (not reads_znodes or Scanner.of(origin.name, origin.cluster).count() <= ZNODES)


def java_options() -> list[str]:
    """Return the options of Java; a collector that the environment names is kept."""
    return [_QUICK_COMPILER] if _COLLECTOR.search(_given()) else [_QUICK_COMPILER, _SERIAL_COLLECTOR]


def join_java_options(options: Sequence[str]) -> str:
    """Return options of Java as one text, which Spark's launcher divides at blanks outside of quotes."""
    return " ".join('"{}"'.format(each.replace("\\", "\\\\").replace('"', '\\"')) for each in options)


def names_archive() -> bool:
    """Return True if the environment names or forbids a class archive for Java. In that case it is left unchanged."""
    return _ARCHIVE.search(_given()) is not None


def _given() -> str:
    return " ".join(os.environ.get(name, "") for name in _GIVEN)
