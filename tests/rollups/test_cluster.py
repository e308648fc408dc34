"""The same jobs on a real Spark cluster: the same rows, though a worker is lost in the middle."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import psycopg
import pytest
from pydantic import SecretStr

from confplane.rollups.origin import Origin
from confplane.settings import ClusterSettings
from tests.rollups.driver import results
from tests.rollups.trail import CLUSTER, fill
from tests.support.processes import program
from tests.support.spark import cluster
from tests.support.stores import rate
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient
    from pyspark.sql import SparkSession

    from tests.support.servers import Database

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

SECONDS: Final = 1200.0
"""The time within which a driver and two executors that start on a busy machine come to an end."""
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'intents'::regclass"


@pytest.fixture
def origin(raw_zk: KazooClient, chroot: str, migrated: Database) -> Origin:
    """A cluster whose trail and znodes every job has rows of."""
    fill(migrated.service_dsn)
    for number in range(20):
        raw_zk.create(f"/config/users/u{number}", rate(number), makepath=True)
    return Origin(CLUSTER, ClusterSettings(zookeeper=chroot), SecretStr(migrated.service_dsn))


def arguments(master: str, origin: Origin, directory: Path) -> list[str | Path]:
    stores = {"zookeeper": origin.cluster.zookeeper, "dsn": origin.dsn.get_secret_value()}
    (directory / "stores.json").write_text(json.dumps(stores))
    return ["-m", "tests.rollups.driver", master, directory / "stores.json", directory / "result.json"]


def test_on_a_cluster_that_loses_a_worker_in_the_middle_the_rows_are_the_same(
    spark: SparkSession, origin: Origin, migrated: Database, tmp_path: Path
) -> None:
    wanted = results(spark, origin)
    assert all(wanted.values())
    with (
        cluster(tmp_path) as (master, workers),
        psycopg.connect(migrated.owner_dsn) as blocker,
        psycopg.connect(migrated.owner_dsn, autocommit=True) as watch,
    ):
        # The driver reads this table of all the least: nothing of it.
        blocker.execute("LOCK TABLE intents IN ACCESS EXCLUSIVE MODE")
        with program(arguments(master.url, origin, tmp_path)) as driver:
            # Each worker has a task.
            wait_for(lambda: watch.execute(WAITING).fetchone() == (2,), SECONDS)
            workers[0].lose()
            wait_for(lambda: master.state()["aliveworkers"] == 1)
            blocker.rollback()
            assert driver.wait(SECONDS) == 0, driver.output
            assert "Lost executor" in driver.output
    assert json.loads((tmp_path / "result.json").read_text()) == {"master": master.url, "lost": 1, "rows": wanted}
