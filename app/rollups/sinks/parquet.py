"""Parquet on any file system that Hadoop knows: a directory of its own for each run.

The files of a run are written aside, below ``_incomplete``. Once the run is complete in Postgres, one rename puts them
in place, and ``_SUCCESS`` follows last. Where a rename is atomic (local disks, HDFS), a directory in place is whole.
Object stores copy file by file instead, and there only ``_SUCCESS`` says that a directory is whole. No run replaces the
files of another run, whichever way it ends. Times are UTC. The rows are in the order of the job's key, file by file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from py4j.protocol import Py4JError

from app.rollups.errors import SparkFailedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARKER: Final = "_SUCCESS"
"""The empty file that is written last, by the convention of Spark and Hadoop."""
# Names of clusters begin with a letter or a digit. Spark and Hive read no directory whose name begins with '_'.
_ASIDE: Final = "_incomplete"
_ROWS: Final = "rows"
# Spark's committer would mark a directory that is still aside, and a rename by copies could move that mark first.
_UNMARKED: Final = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


class UnfinishedOutputError(ValueError):
    """A directory has no marker: its files may be a part of a run; the message names the remedy."""


def read(spark: SparkSession, path: str) -> DataFrame:
    """Return the rows of a run.

    Args:
        spark: The session.
        path: The directory of a run: ``OUTPUT/CLUSTER/JOB/RUN``.

    Raises:
        UnfinishedOutputError: The run failed, was killed, or is under way.
    """
    files = _Files(spark, path)
    if not files.exists(f"{path.rstrip('/')}/{MARKER}"):
        raise UnfinishedOutputError(
            f"{path} has no {MARKER}: its run failed, was killed, or is under way. Read the directory of another run,"
            " or run the rollup again with the same --output"
        )
    return spark.read.parquet(path)


class Output:
    """The files of one job's runs on one cluster.

    Args:
        spark: The session.
        root: The directory of all clusters' files.
        cluster: The cluster.
        job: The name of the job.
    """

    def __init__(self, spark: SparkSession, root: str, cluster: str, job: str) -> None:
        self._files = _Files(spark, root)
        base = root.rstrip("/")
        self._place = f"{base}/{cluster}/{job}"
        self._aside = f"{base}/{_ASIDE}/{cluster}/{job}"

    def write(self, frame: DataFrame, run_id: UUID) -> None:
        """Write a run's rows aside; an earlier attempt at the same run is replaced."""
        frame.write.mode("overwrite").options(**_UNMARKED).parquet(f"{self._aside}/{run_id}/{_ROWS}")

    def publish(self, run_id: UUID) -> str:
        """Put the files of a complete run in place, as far as this is not done, and return their directory.

        The last name of a path is the latest run, because the ids of runs begin with the time.

        Raises:
            SparkFailedError: The file system refused. The files stay aside, and the next call continues.
        """
        rows, place = f"{self._aside}/{run_id}/{_ROWS}", f"{self._place}/{run_id}"
        try:
            if self._files.exists(rows):
                self._files.rename(rows, place)
            if self._files.exists(place):
                self._files.touch(f"{place}/{MARKER}")
            self.drop(run_id)
        except (Py4JError, OSError) as error:
            raise SparkFailedError(
                f"Run {run_id} is complete, but its files are not in place at {place}; the next run of this rollup with"
                f" the same --output tries again ({_first_line(error)})"
            ) from error
        return place

    def drop(self, run_id: UUID) -> None:
        """Remove the files of a run that are aside."""
        self._files.delete(f"{self._aside}/{run_id}")

    def aside(self) -> list[UUID]:
        """Return the runs with files aside: those under way, and those whose process ended too early."""
        found = []
        for name in self._files.names(self._aside):
            try:
                found.append(UUID(name))
            except ValueError:
                continue
        return found


class _Files:
    """The file system of a path, as Spark itself reaches it: PySpark has no calls of its own."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        context = spark.sparkContext
        jvm: Any = context._jvm  # noqa: SLF001 - see the class
        self._path = jvm.org.apache.hadoop.fs.Path
        self._system = self._path(path).getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001 - see the class

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._path(path)))

    def rename(self, path: str, to: str) -> None:
        if self.exists(to):
            # A rename by copies was interrupted. All files are of one run, so each may be copied again.
            for name in self.names(path):
                self.delete(f"{to}/{name}")
                self._rename(f"{path}/{name}", f"{to}/{name}")
        else:
            self._rename(path, to)

    def _rename(self, path: str, to: str) -> None:
        self._system.mkdirs(self._path(to).getParent())
        if not self._system.rename(self._path(path), self._path(to)):
            raise OSError(f"{path} was not renamed to {to}")

    def touch(self, path: str) -> None:
        self._system.create(self._path(path), True).close()  # noqa: FBT003 - Java's: overwrite

    def delete(self, path: str) -> None:
        self._system.delete(self._path(path), True)  # noqa: FBT003 - Java's: recursive

    def names(self, path: str) -> list[str]:
        if not self.exists(path):
            return []
        return [status.getPath().getName() for status in self._system.listStatus(self._path(path))]


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return str(error if java is None else java.toString()).partition("\n")[0]
