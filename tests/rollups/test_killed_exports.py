"""Exports that end at each of their steps, and are made again: readers see all or nothing, and then each row once."""

from __future__ import annotations

import json
import os
import signal
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import psutil
import psycopg
import pytest

from confplane.rollups.exports import manifest
from confplane.rollups.exports.exporter import Exporter
from confplane.rollups.sinks.files import Files
from tests.audit.rows import committed
from tests.rollups.lake import exported
from tests.rollups.test_exports import FRAMES, assert_is_the_tables, export, origin_of
from tests.rollups.trail import CLUSTER, fill, own, write
from tests.support.commands import Commands
from tests.support.processes import program, wait_gone
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support import servers

WAITING: Final = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'entity_states'::regclass"
ENDS: Final[dict[str, tuple[Any, str]]] = {
    "amid the files": (Exporter, "_whole"),
    "before the manifest": (manifest, "write"),
    "before the end": (Files, "delete"),
}


@pytest.mark.parametrize(
    "ends", [("before the manifest",), pytest.param((*ENDS,), marks=pytest.mark.long)], ids=["one", "all"]
)
def test_a_killed_export_leaves_the_one_before_and_the_next_removes_its_files(
    spark: SparkSession,
    migrated: servers.Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends: tuple[str, ...],
) -> None:
    fill(migrated.service_dsn)
    origin = origin_of(migrated)
    before = export(spark, origin, tmp_path)
    for number, end in enumerate(ends, 60):
        shown = {name: exported(tmp_path, name, CLUSTER) for name in FRAMES}
        write(migrated.service_dsn, [own(number)], [committed(own(number))])
        with monkeypatch.context() as patch:
            patch.setattr(*ENDS[end], lambda *_: pytest.fail("the end of the process"))
            with pytest.raises(pytest.fail.Exception, match="the end of the process"):
                export(spark, origin, tmp_path)
        if end == "before the end":
            assert_is_the_tables(tmp_path, migrated)
        else:
            assert {name: exported(tmp_path, name, CLUSTER) for name in FRAMES} == shown, end
        # Spark's own writer leaves such a directory, where it is killed.
        (tmp_path / "export=trail" / f"cluster={CLUSTER}" / "_temporary").mkdir()
        after = export(spark, origin, tmp_path)
        assert_is_the_tables(tmp_path, migrated)
        named = {(name, each.export_id) for name, found in after.datasets.items() for each in found.days}
        named |= {(each.name, each.export_id) for each in after.superseded}
        there = {
            (path.parents[2].name.removeprefix("export="), path.name.removeprefix("export_id="))
            for path in tmp_path.glob("export=*/cluster=*/day=*/export_id=*")
        }
        assert there == named, end
        assert ("trail", before.datasets["trail"].export_id) in named
        assert not list(tmp_path.glob("export=*/cluster=*/_*"))
    # Hours later a job may still read what was superseded, and a day later none does.
    for hours in (20, 25):
        found = json.loads((tmp_path / "_exports" / f"{CLUSTER}.json").read_text())
        for each in found["superseded"]:
            each["at"] = (datetime.now(UTC) - timedelta(hours=hours)).isoformat()
        (tmp_path / "_exports" / f"{CLUSTER}.json").write_text(json.dumps(found))
        last = export(spark, origin, tmp_path)
        assert (("trail", before.datasets["trail"].export_id) in {
            (each.name, each.export_id) for each in last.superseded
        }) == (hours == 20)  # fmt: skip
    kept = {each.export_id for found in last.datasets.values() for each in found.days}
    kept |= {each.export_id for each in last.superseded}
    assert {path.name.removeprefix("export_id=") for path in tmp_path.glob("export=*/*/*/*")} == kept
    assert before.datasets["states"].export_id not in {path.name for path in tmp_path.glob("export=states/*/*/*")}


def test_a_command_killed_while_tasks_write_shows_nothing_and_the_next_has_each_row_once(
    spark: SparkSession, migrated: servers.Database, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    # Nothing listens there: the trail alone is exported.
    environment = Commands(tmp_path, connect="127.0.0.1:1", dsn=migrated.service_dsn).environment
    environment |= {"CONFPLANE_CLUSTERS": json.dumps({CLUSTER: {"zookeeper": "127.0.0.1:1"}})}
    fill(migrated.service_dsn)
    export(spark, origin_of(migrated), lake, "trail")
    before = {name: exported(lake, name, CLUSTER) for name in ("trail", "states")}
    write(migrated.service_dsn, [own(60)], [committed(own(60))])
    command: list[str | Path] = [
        "-m",
        "confplane",
        "rollups",
        "export",
        "trail",
        "--cluster",
        CLUSTER,
        "--output",
        lake,
    ]
    with (
        psycopg.connect(migrated.owner_dsn) as blocker,
        psycopg.connect(migrated.owner_dsn, autocommit=True) as watch,
    ):
        # The states are written after the trail, and read while they are written.
        blocker.execute("LOCK TABLE entity_states IN ACCESS EXCLUSIVE MODE")
        with program(command, environment=environment) as running:
            wait_for(lambda: watch.execute(WAITING).fetchone() != (0,), 400)
            killed = [psutil.Process(running.process.pid), *running.children()]
            os.killpg(running.process.pid, signal.SIGKILL)
            assert running.wait() == -signal.SIGKILL
            # Spark's Python processes are a group of their own, and end by themselves.
            wait_gone(killed)
        blocker.rollback()
    assert {name: exported(lake, name, CLUSTER) for name in ("trail", "states")} == before
    found = export(spark, origin_of(migrated), lake, "trail")
    assert_is_the_tables(lake, migrated, "trail", "states")
    named = {(name, day.export_id) for name, each in found.datasets.items() for day in each.days}
    named |= {(each.name, each.export_id) for each in found.superseded}
    files = {path.parent for path in lake.glob("export=*/cluster=*/day=*/export_id=*/*.parquet")}
    assert {path.relative_to(lake).parts[0] + path.name for path in files} == {
        f"export={name}export_id={export_id}" for name, export_id in named
    }
    assert [path.name for path in (lake / "_exports").iterdir()] == [f"{CLUSTER}.json"]
    assert not list(lake.glob("export=*/cluster=*/_*"))
