"""Exports by the command that end by SIGKILL at each of their steps, and are made again: each row is there once."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Final

import psutil
import psycopg
import pytest
from typer.testing import CliRunner

from confplane.cli.commands import cli
from tests.audit.rows import committed
from tests.rollups.lake import exported
from tests.rollups.stopping import STOPPED
from tests.rollups.test_exports import assert_is_the_tables, export, origin_of
from tests.rollups.trail import CLUSTER, fill, own, write
from tests.support.commands import Commands
from tests.support.processes import Program, program, wait_gone
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support import servers

ARGUMENTS: Final = ("rollups", "export", "trail", "--cluster", CLUSTER, "--output")
WAITING: Final = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'entity_states'::regclass"


class Killed:
    """A lake with an export, rows that are new since, and a command that is killed while it exports them."""

    def __init__(self, spark: SparkSession, database: servers.Database, directory: Path) -> None:
        self.lake = directory / "lake"
        self._database = database
        made = Commands(directory, connect="127.0.0.1:1", dsn=database.service_dsn).environment
        # Nothing listens there: the trail alone is exported.
        self.environment = {**made, "CONFPLANE_CLUSTERS": json.dumps({CLUSTER: {"zookeeper": "127.0.0.1:1"}})}
        fill(database.service_dsn)
        export(spark, origin_of(database), self.lake, "trail")
        self._before = self._shown()
        write(database.service_dsn, [own(60)], [committed(own(60))])

    def _shown(self) -> dict[str, list[dict[str, object]]]:
        return {name: exported(self.lake, name, CLUSTER) for name in ("trail", "states")}

    def files(self) -> set[str]:
        """The directories of files, by export and id."""
        found = self.lake.glob("export=*/cluster=*/day=*/export_id=*")
        return {f"{path.parents[2].name}/{path.name}" for path in found if list(path.glob("*.parquet"))}

    def kill(self, running: Program) -> None:
        killed = [psutil.Process(running.process.pid), *running.children()]
        os.killpg(running.process.pid, signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL
        # Spark's Python processes are a group of their own, and end by themselves.
        wait_gone(killed)

    def assert_nothing_is_new(self) -> None:
        assert self._shown() == self._before

    def assert_is_whole(self) -> None:
        """Assert that readers see each row of the tables once."""
        assert_is_the_tables(self.lake, self._database, "trail", "states")

    def assert_mended_by_the_next(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Export again, and assert that no file is there that the manifest does not name."""
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        done = CliRunner().invoke(cli, [*ARGUMENTS, str(self.lake)])
        assert done.exit_code == 0, done.output
        self.assert_is_whole()
        manifest = json.loads((self.lake / "_exports" / f"{CLUSTER}.json").read_text())
        named = {(name, day["export_id"]) for name, each in manifest["datasets"].items() for day in each["days"]}
        named |= {(each["name"], each["export_id"]) for each in manifest["superseded"]}
        assert self.files() == {f"export={name}/export_id={export_id}" for name, export_id in named}
        assert [path.name for path in (self.lake / "_exports").iterdir()] == [f"{CLUSTER}.json"]
        assert not list(self.lake.glob("export=*/cluster=*/_*"))


@pytest.mark.parametrize(
    ("place", "new_files"),
    [
        pytest.param(
            "confplane.rollups.exports.exporter:Exporter._trail", set(), marks=pytest.mark.long, id="before all"
        ),
        pytest.param(
            "confplane.rollups.exports.exporter:Exporter._whole",
            {"trail"},
            marks=pytest.mark.long,
            id="between two frames",
        ),
        pytest.param("confplane.rollups.exports.manifest:write", {"trail", "states"}, id="before the manifest"),
        pytest.param(
            "confplane.rollups.sinks.files:Files.delete",
            {"trail", "states"},
            marks=pytest.mark.long,
            id="after the manifest",
        ),
    ],
)
def test_a_command_killed_at_a_step_shows_all_or_nothing_and_the_next_has_each_row_once(
    spark: SparkSession,
    migrated: servers.Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    new_files: set[str],
) -> None:
    killed = Killed(spark, migrated, tmp_path)
    before = killed.files()
    arguments: list[str | Path] = ["-m", "tests.rollups.stopping", place, *ARGUMENTS, killed.lake]
    with program(arguments, environment=killed.environment) as running:
        running.read_until(STOPPED, 400)
        killed.kill(running)
    assert {each.partition("/")[0].removeprefix("export=") for each in killed.files() - before} == new_files
    if place.endswith("delete"):
        killed.assert_is_whole()
    else:
        killed.assert_nothing_is_new()
    killed.assert_mended_by_the_next(monkeypatch)


@pytest.mark.long
def test_a_command_killed_while_tasks_write_a_frame(
    spark: SparkSession, migrated: servers.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Killed(spark, migrated, tmp_path)
    arguments: list[str | Path] = ["-m", "confplane", *ARGUMENTS, killed.lake]
    with (
        psycopg.connect(migrated.owner_dsn) as blocker,
        psycopg.connect(migrated.owner_dsn, autocommit=True) as watch,
    ):
        # The states are written after the trail, and read while they are written.
        blocker.execute("LOCK TABLE entity_states IN ACCESS EXCLUSIVE MODE")
        with program(arguments, environment=killed.environment) as running:
            wait_for(lambda: watch.execute(WAITING).fetchone() != (0,), 400)
            killed.kill(running)
        blocker.rollback()
    killed.assert_nothing_is_new()
    killed.assert_mended_by_the_next(monkeypatch)
