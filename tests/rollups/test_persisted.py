"""Rows that a run persists take about the memory that Spark counts: Spark moves them to its disk by its own count."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.java import java_environment
from tests.support.processes import ROOT


def test_persisted_rows_take_the_memory_that_spark_counts_in_a_small_heap_too() -> None:
    command = [sys.executable, "-m", "tests.rollups.persisting"]
    environment = {**java_environment(), "SPARK_SUBMIT_OPTS": "-Xmx1g -XX:+UseG1GC -XX:TieredStopAtLevel=1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["counted"] > 10_000_000
    assert found["used"] < 1.3 * found["counted"]
