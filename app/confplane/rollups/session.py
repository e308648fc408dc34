"""The Spark session of a run: the settings that every run needs, and the progress of its stages."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID


_ALWAYS: Final = {
    # Times are compared with those of Postgres and shown in UTC.
    "spark.sql.session.timeZone": "UTC",
    # Other readers of Parquet know moments in this form.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # PySpark passes our line of code to Java for each expression, for error messages. With it, the plan of integrity
    # takes 8,000 calls, without it 3,300.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # In a heap below 4 GB, the regions of Java's collector G1 have one megabyte, and an array of half a region or more
    # takes whole regions. Spark's arrays for persisted rows, of one megabyte and a header, take two regions, and Spark
    # counts one: executors with 2 GB ran out of memory at ten million changes. A batch of 10,000 changes has such
    # arrays too.
    "spark.storage.unrollMemoryThreshold": str(256 * 1024),
    "spark.sql.inMemoryColumnarStorage.batchSize": "1000",
}
_ASKED_FOR: Final = (
    "PythonUtils",
    "PythonSQLUtils",
    "functions",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.SparkSession",
)
_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # A laptop's frames are small, and each task costs some milliseconds.
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 1)),
}


def session(
    master: str | None = None,
    *,
    name: str = "confplane-rollups",
    settings: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the Spark session of this process, started if there is none.

    Args:
        master: A Spark master's URL; None for the master of spark-submit, or else ``local[*]``.
        name: The name that the cluster shows.
        settings: Spark settings that take precedence over those of this module.
        defaults: Spark settings for which the options and files of spark-submit take precedence.

    Raises:
        RuntimeError: There is no Java.
    """
    use_this_python()
    if master is None and not submitted():
        master = "local[*]"
    builder = SparkSession.Builder().appName(name)
    given = dict(_ALWAYS)
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            given |= _LOCAL
    if defaults:
        SparkContext._ensure_initialized()  # noqa: SLF001 - Java alone has the options of spark-submit
        submit = SparkConf()
        given |= {key: value for key, value in defaults.items() if not submit.contains(key)}
    for key, value in {**given, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    _keep_classes(spark)
    return spark


def _keep_classes(spark: SparkSession) -> None:
    """Cache the Java classes that PySpark requests with each expression: Java would search all jars every time."""
    java = spark.sparkContext._jvm  # noqa: SLF001 - PySpark offers no other way to Java
    for name in _ASKED_FOR:
        setattr(java, name, getattr(java, name))


def is_running() -> bool:
    """Return True if this process has started Java already."""
    return SparkSession.getActiveSession() is not None


def submitted() -> bool:
    """Return True if spark-submit runs this process, in any deploy mode: it has started Java, and knows the master.

    Java names the port by which Python reaches it.
    """
    return "PYSPARK_GATEWAY_PORT" in os.environ


def use_this_python() -> None:
    """Make Spark's Python workers run this interpreter and this code; settings of the environment take precedence."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    ours = [str(Path(__file__).with_name("workers")), str(Path(__file__).parents[2])]
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join([*(path for path in ours if path not in paths), *paths])


class StageProgress(NamedTuple):
    """The progress of a stage of a run."""

    done: int
    """The number of its tasks that are done."""
    tasks: int
    """The number of all its tasks."""
    is_running: bool


def stages_of(spark: SparkSession, run_id: UUID) -> dict[int, StageProgress]:
    """Return the stages of a run known so far, by number. Later ones become known when earlier ones have ended."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(str(run_id))]
    stages = {number for job in jobs if job is not None for number in job.stageIds}
    found = {number: tracker.getStageInfo(number) for number in sorted(stages)}
    return {
        number: StageProgress(stage.numCompletedTasks, stage.numTasks, stage.numActiveTasks > 0)
        for number, stage in found.items()
        if stage is not None
    }
