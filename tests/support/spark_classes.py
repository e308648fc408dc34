"""An archive of the Java classes that Spark loads, with which a driver starts in half of the processor time.

Java checks the archive against its own release and the jars of the class path, and loads classes from the jars where
these differ. ``tests.support.tools`` has it made, once in a checkout; ``python -m tests.support.spark_classes`` runs
what loads the classes.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

# Compiling well takes longer than what it saves on the few rows of a test, and collecting beside the work costs more.
_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""A command's output stays its own also where an archive does not fit."""


@functools.cache
def name() -> str:
    """Return the archive's file name, which differs by the place and the age of Spark's jars and of Java."""
    spec = importlib.util.find_spec("pyspark")
    jars = None if spec is None or spec.origin is None else Path(spec.origin).parent / "jars"
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    used = [each.resolve() for each in (jars, java and Path(java)) if each and each.exists()]
    told = "\n".join(f"{each} {each.stat().st_mtime_ns}" for each in used)
    return f"spark-{hashlib.sha256(told.encode()).hexdigest()[:12]}.jsa"


def options(directory: Path) -> str:
    """Return Java's options for a driver of the tests.

    Args:
        directory: Where the archive is kept. Without one there Java loads from the jars: named in vain, an archive
            would cost Java that of its own classes as well.
    """
    archive = directory / name()
    return " ".join([*_QUICK, *((*_QUIET, f"-XX:SharedArchiveFile={archive}") if archive.is_file() else ())])


def archiving(archive: Path) -> str:
    """Return Java's options for the driver of :func:`main`, which writes the archive when it ends."""
    return " ".join([*_QUICK, *_QUIET, f"-XX:ArchiveClassesAtExit={archive}"])


def main() -> None:
    """Do a little of what the rollups do, and wait until Java has ended."""
    from app.rollups.session import session  # noqa: PLC0415 - where archives are used, nobody needs Spark's Python
    from app.rollups.small import SETTINGS  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as directory:
        spark = session("local[1]", settings={**SETTINGS, "spark.sql.warehouse.dir": f"{directory}/warehouse"})
        rows = spark.sql("SELECT id % 3 AS third, count(*) AS rows FROM range(100) GROUP BY 1 ORDER BY 1")
        rows.write.parquet(f"{directory}/rows")
        spark.read.parquet(f"{directory}/rows").collect()
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        spark.stop()
    java = gateway.proc
    gateway.shutdown()
    java.stdin.close()
    sys.exit(java.wait())


if __name__ == "__main__":
    main()
