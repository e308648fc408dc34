"""A driver that persists rows: prints their bytes as Spark counts them, and as Java has them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

from confplane.rollups.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 400_000


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
    """Print them."""
    spark = session("local[1]")
    spark.range(1).select(F.uuid()).persist(StorageLevel.MEMORY_AND_DISK).count()
    before = used(spark)
    spark.range(ROWS).select(F.uuid()).persist(StorageLevel.MEMORY_AND_DISK).count()
    counted = sum(each.memSize() for each in spark.sparkContext._jsc.sc().getRDDStorageInfo())
    sys.stdout.write(json.dumps({"counted": counted, "used": used(spark) - before}))
    spark.stop()


if __name__ == "__main__":
    main()
