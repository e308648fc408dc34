"""Rows that a run persists take about the memory that Spark counts: Spark moves them to its disk by its own count."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

from confplane.rollups.session import session
from tests.support.java import java_environment
from tests.support.processes import ROOT, start_children_with_defaults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 400_000


def test_persisted_rows_take_the_memory_that_spark_counts_in_a_small_heap_too() -> None:
    command = [sys.executable, "-m", "tests.rollups.test_persisted"]
    environment = {**java_environment(), "SPARK_SUBMIT_OPTS": "-Xmx1g -XX:+UseG1GC -XX:TieredStopAtLevel=1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["counted"] > 10_000_000
    assert found["used"] < 1.3 * found["counted"]


def used(spark: SparkSession) -> int:
    """The bytes of old objects behind a collection of all garbage."""
    java: Any = spark.sparkContext._jvm
    java.System.gc()
    [pool] = [
        each
        for each in java.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
        if each.getName() == "G1 Old Gen"
    ]
    return int(pool.getUsage().getUsed())


def main() -> None:
    """Persist rows, and print their bytes as Spark counts them, and as Java has them."""
    spark = session("local[1]")
    spark.range(1).select(F.uuid()).persist(StorageLevel.MEMORY_AND_DISK).count()
    before = used(spark)
    spark.range(ROWS).select(F.uuid()).persist(StorageLevel.MEMORY_AND_DISK).count()
    counted = sum(each.memSize() for each in spark.sparkContext._jsc.sc().getRDDStorageInfo())
    sys.stdout.write(json.dumps({"counted": counted, "used": used(spark) - before}))
    spark.stop()


if __name__ == "__main__":
    start_children_with_defaults()
    main()
