"""A class-data archive of Java: the classes that Spark's driver loads, in Java's in-memory form.

Java writes the archive at the end of the first run on a small cluster, and later runs start with its classes. The
archive is in the user's cache directory, and its name identifies the matching Java and Spark. Java compares the archive
with its own version and with the jars, and loads classes from the jars if they differ. A truncated archive would make
Java crash, so the name also includes the size. An archive is written under a temporary name, and renamed once it is
complete: of two concurrent first runs, either archive may be kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_QUIET: Final = ("-Xlog:cds*=off", "-Xlog:class+path=off")
"""Options that suppress Java's messages about an archive that does not fit; other messages are unchanged."""
_MAKING_S: Final = 600
"""Seconds for which a first run waits for Java to write an archive. On an idle machine this takes a few seconds."""
_UNUSED_S: Final = 30 * 86_400
"""Seconds after which an unused archive is removed when another one is written."""
_ROOM: Final = 2**30
"""Minimum free bytes of a disk for an archive: several times its size."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one Java and one Spark.

    Attributes:
        path: The archive, or the file that Java writes to make one if ``is_made`` is false.
        is_made: True if there is an archive.
    """

    path: Path
    is_made: bool

    @classmethod
    def of(cls, java: Path) -> ClassArchive | None:
        """Return the archive of a Java with the installed Spark.

        Args:
            java: The ``java`` that runs Spark.

        Returns:
            None if the user has no cache directory that belongs to the user alone: a user who can write an archive
            decides which code Java runs. Also None if there is neither an archive nor space for one, or if the path has
            a colon, which Java treats as a separator.
        """
        home = os.environ.get("HOME")
        cache = os.environ.get("XDG_CACHE_HOME") or (home and Path(home, ".cache"))
        if not cache or os.pathsep in str(cache):
            return None
        directory, name = Path(cache, "confplane"), archive_name(java)
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not _is_private(directory):
                return None
            made = next((each for each in directory.glob(f"{name}-*.jsa") if _is_whole(each)), None)
            if made is not None:
                with contextlib.suppress(OSError):  # a read-only disk
                    os.utime(made)
                return cls(made, is_made=True)
            if shutil.disk_usage(directory).free < _ROOM or not os.access(directory, os.W_OK):
                return None
        except OSError:
            return None
        return cls(directory / f"{name}.{uuid.uuid4().hex}.making", is_made=False)

    def options(self) -> list[str]:
        """Return the options of Java to use the archive, or to make it of the classes that it has loaded when it ends.

        With a missing archive, Java would not use the archive of its own classes either.
        """
        return [*_QUIET, f"-XX:{'SharedArchiveFile' if self.is_made else 'ArchiveClassesAtExit'}={self.path}"]

    @contextlib.contextmanager
    def kept(self, spark: SparkSession) -> Iterator[None]:
        """Keep a new archive if the block succeeds, and remove its file otherwise.

        In that case, Spark and its Java end with the block. If Java fails to write the archive, the next run tries
        again.
        """
        if self.is_made:
            yield
            return
        java = process_of(spark)
        try:
            yield
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                if end(spark, _MAKING_S) == 0:
                    self._put_into_place()
        except BaseException:
            spark.stop()
            raise
        finally:
            # Java would write its archive after the end of this process.
            java.kill()
            java.wait()
            self.path.unlink(missing_ok=True)

    def _put_into_place(self) -> None:
        name = self.path.name.partition(".")[0]
        kept = self.path.rename(self.path.with_name(f"{name}-{self.path.stat().st_size}.jsa"))
        for each in kept.parent.glob("spark-*"):
            is_other = each != kept and each.match(f"{name}-*.jsa")
            if is_other or each.stat().st_mtime < time.time() - _UNUSED_S:
                each.unlink(missing_ok=True)


def archive_name(java: Path) -> str:
    """Return the archive's name without suffix, which identifies a Java and the installed Spark by paths and times.

    Args:
        java: The ``java`` that runs Spark.
    """
    spark = importlib.util.find_spec("pyspark")
    jars = None if spark is None or spark.origin is None else Path(spark.origin).with_name("jars")
    parts = [f"{each} {each.stat().st_mtime_ns}" for each in (java.resolve(), jars) if each and each.exists()]
    return f"spark-{hashlib.sha256(os.pathsep.join(parts).encode()).hexdigest()[:16]}"


def process_of(spark: SparkSession) -> subprocess.Popen[bytes]:
    """Return Spark's Java, which this process started."""
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - PySpark shows its Java nowhere else
    assert gateway is not None  # noqa: S101 - for the type checker: a session has one
    found: subprocess.Popen[bytes] = gateway.proc
    return found


def end(spark: SparkSession, seconds: float | None = None) -> int:
    """End Spark and its Java, and return Java's exit code.

    Raises:
        subprocess.TimeoutExpired: Java still runs after this time.
    """
    java = process_of(spark)
    spark.stop()
    assert java.stdin is not None  # noqa: S101 - for the type checker: PySpark gives it a pipe
    java.stdin.close()  # the sign to end
    return java.wait(seconds)


def _is_private(directory: Path) -> bool:
    found = directory.stat()
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _is_whole(archive: Path) -> bool:
    return archive.stem.endswith(f"-{archive.stat().st_size}")
