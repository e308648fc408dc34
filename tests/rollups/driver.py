"""A driver of its own: runs jobs on a Spark master, and writes their rows to a file.

``python -m tests.rollups.driver MASTER STORES RESULT``: ``STORES`` is a file with ``zookeeper`` and ``dsn``,
``RESULT`` gets job -> rows as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from confplane.rollups import stores
from confplane.rollups.jobs import activity, compatibility, integrity, quotas
from confplane.rollups.origin import Origin
from confplane.rollups.session import session
from confplane.rollups.sources import trail
from confplane.settings import ClusterSettings
from tests.rollups.trail import CLUSTER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from confplane.rollups.job import Job
    from confplane.rollups.reading import Reading

JOBS = {job.name: job for job in (activity.JOB, compatibility.JOB, integrity.JOB, quotas.JOB)}
"""Together they read all frames."""


def rows_of(reading: Reading, job: Job) -> list[str]:
    """A job's rows, in order."""
    frames, since = reading.frames(job)
    known = {"capacity": {}, "teams": None, **reading.options}
    given: dict[str, Any] = {name: known.get(name) for name in job.options}
    if job.incremental:
        given |= {"previous": None, "since": since}
    return sorted(repr(row.asDict(recursive=True)) for row in job(**frames, **given).collect())


def results(spark: SparkSession, origin: Origin) -> dict[str, list[str]]:
    """The rows of the jobs, each in two parts or more."""
    with stores.read(spark, origin, jobs=[*JOBS.values()]) as (reading, _):
        return {name: rows_of(reading, job) for name, job in JOBS.items()}


def main(master: str, given: str, result: str) -> None:
    """Run them."""
    directory = Path(result).parent
    trail.FEWEST_ROWS = 1  # type: ignore[misc]  # so that a small trail has parts for all workers
    spark = session(
        master,
        settings={
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.cores.max": "2",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.local.dir": str(directory / "scratch"),
        },
    )
    addresses = json.loads(Path(given).read_text())
    origin = Origin(CLUSTER, ClusterSettings(zookeeper=addresses["zookeeper"]), SecretStr(addresses["dsn"]))
    found = results(spark, origin)
    lost = 2 - (spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1)
    Path(result).write_text(json.dumps({"master": spark.sparkContext.master, "lost": lost, "rows": found}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
