"""All jobs at full size equal their references: on the stores and on a lake, in process, as commands, on a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest
from pydantic import SecretStr

from confplane.devstack.zookeeper import ZooKeeper
from confplane.rollups import stores
from confplane.rollups.exports.alterations import ExportAlterations
from confplane.rollups.exports.exporter import NAMES, Exporter, exclusive_export
from confplane.rollups.exports.reading import read_lake
from confplane.rollups.jobs import JOBS
from confplane.rollups.origin import Origin
from confplane.rollups.runner import RunOptions, runner
from confplane.rollups.sources.usage import Measurements, read_usage
from confplane.settings import ClusterSettings
from tests.audit.rows import fetch
from tests.bench.sample.trail import Plan
from tests.rollups import samples
from tests.rollups.at_size import CAPACITY, CLUSTER, OF_THE_TRAIL, AtSize
from tests.rollups.lake import pointer
from tests.rollups.limited import limited
from tests.support import servers
from tests.support.commands import Commands
from tests.support.processes import ROOT
from tests.support.spark import cluster

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


def run_here(
    spark: SparkSession, made: AtSize, origin: tuple[Origin, servers.Database], reading: Any, names: Any, output: Path
) -> None:
    options = RunOptions("User:olga@cli", capacity=CAPACITY, teams=samples.TEAMS, output=str(output))
    with runner(spark, reading, origin[0].dsn) as found:
        for name in names:
            found.run(JOBS[name], options)
    check(made, output, names)


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


def test_in_process_on_the_stores(
    spark: SparkSession, made: AtSize, origin: tuple[Origin, servers.Database], tmp_path: Path
) -> None:
    usage = read_usage(spark, Measurements.of(str(made.usage)))
    with stores.read(spark, origin[0], other=made.earlier, usage=usage) as (reading, _):
        run_here(spark, made, origin, reading, JOBS, tmp_path / "output")


def test_in_process_on_the_lake(
    spark: SparkSession, made: AtSize, origin: tuple[Origin, servers.Database], lake: Path, tmp_path: Path
) -> None:
    reading = read_lake(spark, str(lake), CLUSTER, [JOBS[name] for name in OF_THE_TRAIL])
    run_here(spark, made, origin, reading, OF_THE_TRAIL, tmp_path / "output")


@pytest.fixture
def commands(origin: tuple[Origin, servers.Database], tmp_path: Path) -> Commands:
    stored, database = origin
    return Commands(tmp_path, connect=stored.cluster.zookeeper, dsn=database.service_dsn)


def options(made: AtSize, output: Path) -> list[str]:
    return ["--capacity", str(made.capacity), "--teams", str(made.teams), "--output", str(output)]


def of_the_stores(made: AtSize) -> list[str]:
    return ["--with", made.earlier.isoformat(), "--usage", str(made.usage)]


def test_as_a_command_on_the_stores(made: AtSize, commands: Commands, tmp_path: Path) -> None:
    given = (*of_the_stores(made), *options(made, tmp_path / "output"))
    said = commands.run("rollups", "run", "all", *given, seconds=SECONDS)
    assert said.code == 0, f"{said.out}\n{said.err}"
    check(made, tmp_path / "output", JOBS)


@pytest.mark.parametrize("source", ["stores", "lake"])
def test_by_spark_submit_on_a_cluster(
    request: pytest.FixtureRequest,
    made: AtSize,
    origin: tuple[Origin, servers.Database],
    commands: Commands,
    tmp_path: Path,
    source: str,
) -> None:
    given = of_the_stores(made) if source == "stores" else ["--source", str(request.getfixturevalue("lake"))]
    [(begin,)] = fetch(origin[1].owner_dsn, "SELECT now()")
    settings = (
        "spark.ui.enabled=false", "spark.driver.bindAddress=127.0.0.1", "spark.driver.host=127.0.0.1",
        f"spark.driver.memory={MEMORY}", f"spark.executor.memory={MEMORY}", "spark.sql.shuffle.partitions=8",
    )  # fmt: skip
    with cluster(tmp_path) as (master, workers):
        done = subprocess.run(
            [
                f"{os.path.dirname(sys.executable)}/spark-submit",  # noqa: PTH120 - links are not to be followed
                *("--master", master.url),
                *(part for setting in settings for part in ("--conf", setting)),
                *(
                    str(ROOT / "app" / "confplane" / "rollups" / "__main__.py"),
                    "run",
                    "all",
                    "--full",
                    "--cluster",
                    CLUSTER,
                ),
                *given,
                *options(made, tmp_path / "output"),
            ],
            env={**commands.environment, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        for worker in workers:
            worker.wait_ended(executors=1)
    check(made, tmp_path / "output", JOBS if source == "stores" else OF_THE_TRAIL)
    states = fetch(origin[1].owner_dsn, "SELECT DISTINCT state FROM rollup_runs WHERE started_at > %s", begin)
    assert states == [("complete",)]
