"""What the service and its command load when they start."""

from __future__ import annotations

import subprocess
import sys

from tests.support.processes import ROOT

HEAVY = {
    "adbc_driver_manager",
    "adbc_driver_postgresql",
    "altair",
    "duckdb",
    "pandas",
    "psutil",
    "py4j",
    "pyarrow",
    "pyspark",
}


def test_the_service_starts_without_spark() -> None:
    names = "app.api.app, app.wiring, app.cli.commands, app.__main__"
    code = f"import sys, {names}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(answer.stdout.split())
    assert {"app", "fastapi", "kazoo"} <= loaded
    assert loaded & HEAVY == set()
