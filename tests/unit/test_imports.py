"""The modules that the service and its command load when they start."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

from confplane.cli import remote
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


def modules_with(modules: str) -> set[str]:
    """Import modules in a process of its own; return all modules that it has loaded then."""
    code = f"import sys, {modules}; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(answer.stdout.split())


def loaded_with(modules: str) -> set[str]:
    """Return the packages of these modules."""
    return {name.partition(".")[0] for name in modules_with(modules)}


NOT_AT_START = {"alembic", "httpx", "jwt"}
"""Packages for migrations and for issuers of access tokens: a fifth of the time of a start."""


def test_the_service_starts_with_no_more_than_it_needs() -> None:
    modules = modules_with("confplane.serving, confplane.cli.commands, confplane.__main__")
    loaded = {name.partition(".")[0] for name in modules}
    assert {"confplane", "fastapi", "kazoo"} <= loaded
    assert loaded & (HEAVY | NOT_AT_START) == set()
    # FastAPI loads the API of OpenTelemetry.
    traces = {"confplane.tracing", "google.protobuf", *(f"opentelemetry.{each}" for each in ("sdk", "exporter"))}
    assert modules & {*traces, "opentelemetry.instrumentation"} == set()


def test_the_commands_on_the_stores_start_without_the_api() -> None:
    loaded = loaded_with(
        "confplane.wiring, confplane.cli.target, confplane.cli.upkeep, confplane.cli.access, confplane.cli.store"
    )
    assert {"confplane", "kazoo", "sqlalchemy"} <= loaded
    assert loaded & {"fastapi", "jinja2", "prometheus_client", "starlette", "uvicorn"} == set()


def test_a_task_of_a_rollup_starts_with_no_more_than_it_needs() -> None:
    """Spark starts several processes of these for each run."""
    loaded = loaded_with(
        "confplane.rollups.sources.trail, confplane.rollups.sources.znodes, confplane.rollups.sinks.postgres"
    )
    assert {"confplane", "pyspark", "adbc_driver_postgresql", "kazoo", "psycopg"} <= loaded
    assert loaded & {"alembic", "altair", "duckdb", "fastapi", "pandas", "rich", "sqlalchemy", "typer"} == set()


SERVER = {
    *("adbc_driver_postgresql", "alembic", "cryptography", "fastapi", "jinja2", "jwt", "kazoo", "orjson"),
    *(
        "prometheus_client",
        "psycopg",
        "pydantic_settings",
        "pyspark",
        "sortedcontainers",
        "sqlalchemy",
        "starlette",
        "uvicorn",
    ),
}
"""Packages of the extras: a command over the API runs without them."""


def test_commands_over_the_api_need_the_base_package_alone() -> None:
    found = pkgutil.walk_packages(remote.__path__, f"{remote.__name__}.")
    loaded = loaded_with(", ".join(["confplane.cli.commands", *(module.name for module in found)]))
    assert {"confplane", "typer"} <= loaded
    assert loaded & SERVER == set()


def test_the_help_of_commands_over_the_api_is_shown_without_httpx() -> None:
    named = ("read", "change", "audit", "revert", "load", "drift", "about", "profile", "schedule")
    loaded = loaded_with(
        ", ".join(["confplane.cli.commands", *(f"{remote.__name__}.{each}_commands" for each in named)])
    )
    assert {"confplane", "typer"} <= loaded
    assert loaded & {"asyncio", "httpx", "ssl"} == set()


def test_dynamic_configs_need_the_base_package_alone() -> None:
    loaded = loaded_with("confplane.client.dynamic, confplane.client.dynamic.swap, confplane.client.dynamic.swap_async")
    assert {"confplane", "httpx"} <= loaded
    assert loaded & (SERVER | {"aiokafka", "confluent_kafka", "kafka"}) == set()


def test_help_needs_the_base_package_alone() -> None:
    code = (
        "import sys; from confplane.cli.commands import cli; cli(['--help'], prog_name='confplane', standalone_mode=False);"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "rollups" in answer.stdout
    assert set(answer.stdout.splitlines()[-1].split()) & SERVER == set()


@pytest.mark.parametrize(
    ("command", "package"), [("serve", "pydantic_settings"), ("tokens confirm", "pydantic_settings")]
)
def test_a_command_of_an_absent_extra_names_the_extra(command: str, package: str) -> None:
    code = f"import sys; sys.modules['{package}'] = None; from confplane.cli.commands import main; main()"
    answer = subprocess.run(
        [sys.executable, "-c", code, *command.split()], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == f"This command needs {package}: pip install 'confplane[server]'\n"


def test_an_absent_module_of_confplane_itself_names_no_extra() -> None:
    absent = "confplane.cli.service_commands"
    code = f"import sys; sys.modules['{absent}'] = None; from confplane.cli.commands import main; main()"
    answer = subprocess.run(
        [sys.executable, "-c", code, "serve"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert answer.returncode == 1
    assert "pip install" not in answer.stderr
    assert f"ModuleNotFoundError: import of {absent} halted" in answer.stderr
