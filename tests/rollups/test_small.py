"""Small clusters: how they are known before Java starts, and what they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from confplane.rollups import java_settings, stores
from confplane.rollups.jobs import activity, integrity
from confplane.rollups.origin import Origin
from confplane.settings import ClusterSettings
from tests.rollups.trail import CLUSTER, fill
from tests.support.stores import rate

if TYPE_CHECKING:
    from kazoo.client import KazooClient
    from pyspark.sql import DataFrame, SparkSession

    from confplane.rollups.job import Job
    from tests.support import servers


@pytest.fixture
def origin(chroot: str, migrated: servers.Database) -> Origin:
    return Origin(CLUSTER, ClusterSettings(zookeeper=chroot), SecretStr(migrated.service_dsn))


def test_a_cluster_is_small_by_its_tables_and_its_znodes(
    origin: Origin, raw_zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        raw_zk.create(f"/config/users/u{number}", rate(number), makepath=True)
    raw_zk.create("/confplane/client-configs/clients/c", rate(1), makepath=True)
    assert java_settings.is_small(origin, reads_znodes=True)
    monkeypatch.setattr(java_settings, "ZNODES", 4)
    assert java_settings.is_small(origin, reads_znodes=True)
    monkeypatch.setattr(java_settings, "ZNODES", 3)
    assert not java_settings.is_small(origin, reads_znodes=True)
    assert java_settings.is_small(origin, reads_znodes=False)
    monkeypatch.setattr(java_settings, "BYTES", 8191)  # an empty table has a page of its own beside it
    assert not java_settings.is_small(origin, reads_znodes=False)


def test_a_zookeeper_that_is_away_is_not_asked_for_what_needs_none(migrated: servers.Database) -> None:
    away = Origin(CLUSTER, ClusterSettings(zookeeper="127.0.0.1:1"), SecretStr(migrated.service_dsn))
    assert java_settings.is_small(away, reads_znodes=False)


def test_a_collector_that_the_environment_names_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    assert java_settings.java_options() == ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xss4m -XX:+UseZGC")
    assert java_settings.java_options() == ["-XX:TieredStopAtLevel=1"]


def frames(spark: SparkSession, origin: Origin, *jobs: Job) -> dict[str, tuple[bool, list[str]]]:
    """By job, the trail that a reading gives to it: whether its rows are kept, and the rows."""

    def is_kept(frame: DataFrame) -> bool:
        return "InMemoryRelation" in frame._jdf.queryExecution().withCachedData().toString()

    with stores.read(spark, origin, jobs=jobs) as (reading, _):
        given = {job.name: reading.frames(job)[0]["changes"] for job in jobs}
        found = {name: (is_kept(frame), sorted(map(repr, frame.collect()))) for name, frame in given.items()}
    spark.catalog.clearCache()
    return found


def test_jobs_that_read_the_whole_trail_share_one_pass(
    spark: SparkSession, origin: Origin, migrated: servers.Database
) -> None:
    fill(migrated.service_dsn)
    both = frames(spark, origin, activity.JOB, integrity.JOB)
    alone = {**frames(spark, origin, activity.JOB), **frames(spark, origin, integrity.JOB)}
    assert {name: kept for name, (kept, _) in both.items()} == {"activity": True, "integrity": True}
    assert {name: kept for name, (kept, _) in alone.items()} == {"activity": False, "integrity": False}
    assert {name: rows for name, (_, rows) in both.items()} == {name: rows for name, (_, rows) in alone.items()}
    assert all(rows for _, rows in alone.values())
