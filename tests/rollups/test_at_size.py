"""All jobs at full size equal their references: by the command on the stores, and on a cluster on a lake."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import pytest
from pydantic import SecretStr

from confplane.devstack.zookeeper import ZooKeeper
from confplane.rollups import stores
from confplane.rollups.exports.columns import ExportAlterations
from confplane.rollups.exports.exporter import NAMES, Exporter, exclusive_export
from confplane.rollups.jobs import JOBS
from confplane.rollups.origin import Origin
from confplane.settings import ClusterSettings
from tests.audit.rows import fetch
from tests.bench.sample.trail import Plan
from tests.rollups import samples
from tests.rollups.at_size import CLUSTER, OF_THE_TRAIL, AtSize
from tests.rollups.lake import limited, pointer
from tests.support import servers
from tests.support.commands import Commands
from tests.support.spark import cluster, submit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from confplane.devstack.postgres import Postgres

pytestmark = [pytest.mark.long, pytest.mark.timeout(4 * 3600)]

CHANGES: Final = int(os.environ.get("CONFPLANE_ROLLUP_CHANGES", "1000000"))
"""The number of changes; ten million take some hours, 24 GB of memory and 40 GB of disk."""
MEMORY: Final = "2g"
"""The heap of each Java process of Spark on a cluster."""
SECONDS: Final = 2 * 3600.0
"""The time within which all rollups are done."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> AtSize:
    directory = tmp_path_factory.mktemp("at-size")
    found = AtSize(Plan(entities=CHANGES // 10, events=CHANGES, seed=8), directory / "frames")
    found.make(directory / "zookeeper")
    return found


@pytest.fixture(scope="module")
def origin(made: AtSize, postgres: Postgres) -> Iterator[tuple[Origin, servers.Database]]:
    database = servers.make_migrated(postgres)
    made.fill(database)
    with ZooKeeper(made.directory.parent / "zookeeper", max_heap="3g", durable=False) as zookeeper:
        settings = ClusterSettings(zookeeper=zookeeper.hosts)
        yield Origin(CLUSTER, settings, SecretStr(database.service_dsn)), database


@pytest.fixture(scope="module")
def lake(spark: SparkSession, made: AtSize, origin: tuple[Origin, servers.Database]) -> Path:
    """The exports of the cluster."""
    found = made.directory.parent / "lake"
    stored, _ = origin
    with exclusive_export(stored.dsn, CLUSTER), stores.read(spark, stored) as (reading, frames):
        Exporter(spark, str(found), reading, frames, ExportAlterations()).export(NAMES)
    return found


def check(made: AtSize, output: Path, names: Any) -> None:
    """Compare the current rows in a lake with the references."""
    for name in names:
        found = pointer(output, name, CLUSTER)
        count = made.check(name, f"{output}/{found['path']}/*.parquet")
        assert count == found["rows"] > 0, name


def test_the_stores_have_what_was_made(lake: Path, made: AtSize) -> None:
    with limited() as database:
        for frame, export in (("znodes", "znodes"), ("changes", "trail"), ("states", "states")):
            columns = ", ".join(
                f"list_sort(map_entries({name}))" if kind.dataType.typeName() == "map" else name
                for kind in samples.STORED[frame]
                if (name := kind.name) != "ops"
            )
            wanted = f"SELECT {columns} FROM read_parquet('{made.directory / frame}/*.parquet')"  # noqa: S608 - of a test
            there = f"SELECT {columns} FROM read_parquet('{lake}/export={export}/*/*/*/*.parquet')"  # noqa: S608 - of a test
            # Hashes need little memory; comparing ten million rows needs a lot.
            hashed = "SELECT count(*), sum(hash(row)::HUGEINT), bit_xor(hash(row)) FROM ({}) AS row"
            [ours], [theirs] = (database.execute(hashed.format(rows)).fetchall() for rows in (there, wanted))
            assert ours[0] > CHANGES // 100, frame
            if ours != theirs:
                assert database.execute(f"({wanted}) EXCEPT ALL ({there}) LIMIT 3").fetchall() == [], frame
                assert database.execute(f"({there}) EXCEPT ALL ({wanted}) LIMIT 3").fetchall() == [], frame


@pytest.fixture
def commands(origin: tuple[Origin, servers.Database], tmp_path: Path) -> Commands:
    stored, database = origin
    return Commands(tmp_path, connect=stored.cluster.zookeeper, dsn=database.service_dsn)


def options(made: AtSize, output: Path) -> list[str]:
    return ["--capacity", str(made.capacity), "--teams", str(made.teams), "--output", str(output)]


def test_as_a_command_on_the_stores(made: AtSize, commands: Commands, tmp_path: Path) -> None:
    given = ("--with", made.earlier.isoformat(), "--usage", str(made.usage), *options(made, tmp_path / "output"))
    said = commands.run("rollups", "run", "all", *given, seconds=SECONDS)
    assert said.code == 0, f"{said.out}\n{said.err}"
    check(made, tmp_path / "output", JOBS)


def test_by_spark_submit_on_a_cluster_on_the_lake(
    made: AtSize, origin: tuple[Origin, servers.Database], commands: Commands, lake: Path, tmp_path: Path
) -> None:
    [(begin,)] = fetch(origin[1].owner_dsn, "SELECT now()")
    settings = {
        "spark.driver.memory": MEMORY, "spark.executor.memory": MEMORY, "spark.sql.shuffle.partitions": "8",
    }  # fmt: skip
    with cluster(tmp_path) as (master, workers):
        done = submit(
            *("run", "all", "--full", "--cluster", CLUSTER, "--source", str(lake)),
            *options(made, tmp_path / "output"),
            master=master.url,
            settings=settings,
            environment=commands.environment,
            seconds=SECONDS,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        for worker in workers:
            worker.wait_ended(executors=1)
    check(made, tmp_path / "output", OF_THE_TRAIL)
    states = fetch(origin[1].owner_dsn, "SELECT DISTINCT state FROM rollup_runs WHERE started_at > %s", begin)
    assert states == [("complete",)]
