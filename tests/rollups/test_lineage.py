"""OpenLineage's listener reports a run on a lake: the Parquet that it reads, and the Parquet that it writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.rollups.test_exports import export, origin_of
from tests.rollups.trail import CLUSTER, fill
from tests.support import tools
from tests.support.commands import Commands
from tests.support.spark import submit

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support import servers


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_run_on_a_lake_names_its_inputs_and_outputs(
    spark: SparkSession, migrated: servers.Database, tmp_path: Path
) -> None:
    jar = tools.obtain(tools.openlineage)
    fill(migrated.service_dsn)
    lake, output, events = tmp_path / "lake", tmp_path / "output", tmp_path / "events"
    export(spark, origin_of(migrated), lake, "trail")
    # Nothing listens there: a run on a lake asks no ZooKeeper.
    commands = Commands(tmp_path, connect="127.0.0.1:1", dsn=migrated.service_dsn)
    clusters = json.loads(commands.environment["CONFPLANE_CLUSTERS"])
    settings = {
        "spark.jars": str(jar),
        "spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener",
        "spark.openlineage.namespace": "confplane",
        "spark.openlineage.transport.type": "file",
        "spark.openlineage.transport.location": str(events),
    }
    done = submit(
        *("run", "activity", "--cluster", CLUSTER, "--source", str(lake), "--output", str(output)),
        master="local[2]",
        settings=settings,
        environment={**commands.environment, "CONFPLANE_CLUSTERS": json.dumps({CLUSTER: clusters["default"]})},
        seconds=1500,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    told = [json.loads(line) for line in events.read_text().splitlines()]
    assert {each["job"]["namespace"] for each in told} == {"confplane"}
    written = [each for each in told if names(each, "outputs")]
    assert any(
        all(name.startswith(str(lake)) for name in names(each, "inputs"))
        and names(each, "inputs")
        and all(name.startswith(str(output)) for name in names(each, "outputs"))
        for each in written
    ), [(names(each, "inputs"), names(each, "outputs")) for each in told]


def names(event: Any, side: str) -> list[str]:
    return [each["name"] for each in event.get(side, [])]
