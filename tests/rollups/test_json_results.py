"""``rollups run`` and ``rollups export`` with ``--json``: standard output has JSON alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from confplane.cli.commands import cli
from tests.rollups.trail import fill
from tests.support.commands import Commands

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

    from tests.support import servers


def result(*arguments: str) -> list[dict[str, Any]]:
    """Run a command in the Spark session of this process, and return the lines of its output."""
    done = CliRunner().invoke(cli, ["rollups", *arguments, "--cluster", "default", "--json"])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_results_are_json(
    spark: SparkSession, chroot: str, migrated: servers.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del spark  # the commands take the session that there is
    for name, value in Commands(tmp_path, connect=chroot, dsn=migrated.service_dsn).environment.items():
        monkeypatch.setenv(name, value)
    fill(migrated.service_dsn)
    [run] = result("run", "activity")
    assert (run["rollup"], run["state"], run["isCurrent"], run["path"]) == ("activity", "complete", True, None)
    lake = str(tmp_path / "lake")
    exported = {each["name"]: each for each in result("export", "all", "--output", lake)}
    assert {"trail", "registrations", "znodes"} <= exported.keys()
    assert exported["trail"]["written"] == exported["trail"]["rows"]
    again = {each["name"]: each for each in result("export", "trail", "--output", lake)}
    assert (again["trail"]["rows"], again["trail"]["written"]) == (exported["trail"]["rows"], 0)
