"""An archive of the Java classes that Spark loads, with which a driver starts in half of the processor time.

It is made as that of small clusters (app/confplane/rollups/class_archive.py), once in a checkout: ``tests.support.tools`` has it
made, and ``python -m tests.support.spark_classes`` runs what loads the classes.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import tempfile
from typing import TYPE_CHECKING, Final

from confplane.devstack.errors import DevStackError
from confplane.devstack.java import find_java
from confplane.rollups import class_archive

if TYPE_CHECKING:
    from pathlib import Path

# Optimized compilation takes longer than it saves on the few rows of a test, and concurrent collection costs more.
_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# The quick compiler alone is given 48 MB for its code, which a session of many tests fills: Java would drop code, and
# compile it again.
_ROOM: Final = ("-XX:ReservedCodeCacheSize=240m",)
# Java and Python give each other 15 seconds to connect, which a busy machine may need.
_PATIENT: Final = ("-Dspark.python.authenticate.socketTimeout=120s",)


@functools.cache
def name() -> str:
    """Return the archive's file name."""
    with contextlib.suppress(DevStackError):  # the code that needs Java reports its absence
        return f"{class_archive.archive_name(find_java())}.jsa"
    return "spark.jsa"


def options(directory: Path) -> str:
    """Return Java's options for a driver of the tests.

    Args:
        directory: The directory of the archive. Without an archive, Java loads from the jars.
    """
    archive = directory / name()
    return " ".join(
        [*_QUICK, *_ROOM, *_PATIENT, *(class_archive.options_to_read(archive) if archive.is_file() else ())]
    )


def archiving(archive: Path) -> str:
    """Return Java's options for the driver of :func:`main`, which writes the archive when it ends."""
    return " ".join([*_QUICK, *class_archive.options_to_write(archive)])


def main() -> None:
    """Do a little of what the rollups do, and wait until Java has ended."""
    from confplane.rollups.session import session  # noqa: PLC0415 - where archives are used, nobody needs Spark's Python
    from confplane.rollups.small_clusters import SETTINGS  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as directory:
        spark = session("local[1]", settings={**SETTINGS, "spark.sql.warehouse.dir": f"{directory}/warehouse"})
        rows = spark.sql("SELECT id % 3 AS third, count(*) AS rows FROM range(100) GROUP BY 1 ORDER BY 1")
        rows.write.parquet(f"{directory}/rows")
        spark.read.parquet(f"{directory}/rows").collect()
        code = class_archive.end(spark)
    sys.exit(code)


if __name__ == "__main__":
    main()
