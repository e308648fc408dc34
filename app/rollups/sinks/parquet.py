"""Parquet on any file system that Hadoop knows: a directory of its own for each run.

No reader sees half a run: Spark's committer moves the files of successful tasks into the directory, and writes
``_SUCCESS`` last. Times are UTC. The rows are in the order of the job's key, file by file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark.sql import DataFrame


def path_of(output: str, cluster: str, job: str, run_id: UUID) -> str:
    """Return the directory of a run. Ids of runs begin with the time, so that the last name is the latest run."""
    return f"{output.rstrip('/')}/{cluster}/{job}/{run_id}"


def write(frame: DataFrame, path: str) -> None:
    """Write a run's rows; an earlier attempt at the same run is replaced."""
    frame.write.mode("overwrite").parquet(path)
