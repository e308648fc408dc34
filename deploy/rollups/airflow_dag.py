"""Rollups of a cluster once a day, for Airflow 3: each a task, and integrity a gate before the report.

The workers have `confplane[spark]`, Java and the service's settings. The exit code decides: 1 (a store was away, a task
of Spark failed) is tried again; 2 (settings or options are not valid) and 4 (integrity found mismatches) are not, since
no repetition changes them.
"""

# ruff: noqa: INP001 - Airflow loads this file by its path

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

CLUSTER = "payments"
ROLLUPS = ("compatibility", "drift", "impact", "quotas", "activity")
PAGE = "/var/lib/confplane/rollups.html"
FINAL = {2: "the settings or the options are not valid", 4: "the trail and ZooKeeper differ"}


def confplane(*arguments: str) -> None:
    """Run `confplane rollups`, and fail as its exit code says."""
    command = ["confplane", "rollups", *arguments, "--cluster", CLUSTER]
    code = subprocess.run(command, check=False).returncode  # noqa: S603 - words of this file alone
    if code in FINAL:
        raise AirflowFailException(FINAL[code])
    if code:
        raise AirflowException(f"confplane ended with {code}; its output is in the log")


@dag(
    schedule="17 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
)
def confplane_rollups() -> None:
    """Run all rollups one after the other, then the gate, then the report."""

    @task
    def run(name: str) -> None:
        confplane("run", name)

    @task
    def integrity() -> None:
        confplane("run", "integrity", "--fail-on-mismatch")

    # The page shows the mismatches as well, and is wanted most where there are some.
    @task(trigger_rule="all_done")
    def report() -> None:
        confplane("report", "--output", PAGE)

    before = None
    for name in ROLLUPS:
        one = run.override(task_id=name)(name)
        if before is not None:
            before >> one
        before = one
    before >> integrity() >> report()


confplane_rollups()
