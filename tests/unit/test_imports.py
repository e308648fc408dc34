"""The modules that the service and its command load when they start."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


def loaded_with(modules: str) -> set[str]:
    """Import modules in a process of its own; return the packages that it has loaded then."""
    code = f"import sys, {modules}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(answer.stdout.split())


NOT_AT_START = {"alembic", "httpx", "jwt"}
"""Packages for migrations and for issuers of access tokens: a fifth of the time of a start."""


def test_the_service_starts_with_no_more_than_it_needs() -> None:
    loaded = loaded_with("app.serving, app.cli.commands, app.__main__")
    assert {"app", "fastapi", "kazoo"} <= loaded
    assert loaded & (HEAVY | NOT_AT_START) == set()


def test_the_commands_on_the_stores_start_without_the_api() -> None:
    loaded = loaded_with("app.wiring, app.cli.target_import, app.cli.layout, app.cli.tokens")
    assert {"app", "kazoo", "sqlalchemy"} <= loaded
    assert loaded & {"fastapi", "jinja2", "prometheus_client", "starlette", "uvicorn"} == set()


def test_a_task_of_a_rollup_starts_with_no_more_than_it_needs() -> None:
    """Spark starts several processes of these for each run."""
    loaded = loaded_with("app.rollups.sources.trail, app.rollups.sources.znodes, app.rollups.sinks.postgres")
    assert {"app", "pyspark", "adbc_driver_postgresql", "kazoo", "psycopg"} <= loaded
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
    loaded = loaded_with(
        "app.cli.remote.get, app.cli.remote.session, app.cli.remote.profiles, app.cli.commands,"
        "app.cli.remote.lists, app.cli.remote.past, app.cli.remote.effective, app.cli.remote.alter, app.cli.remote.audit,"
        "app.cli.remote.about, app.cli.remote.login, app.cli.remote.completion,"
        "app.cli.remote.configs.command, app.cli.remote.configs.shell, app.cli.remote.export.command, app.cli.remote.load"
    )
    assert {"app", "httpx", "typer"} <= loaded
    assert loaded & SERVER == set()


def test_dynamic_configs_need_the_base_package_alone() -> None:
    loaded = loaded_with("app.client.dynamic, app.client.dynamic.swap, app.client.dynamic.swap_async")
    assert {"app", "httpx"} <= loaded
    assert loaded & (SERVER | {"aiokafka", "confluent_kafka", "kafka"}) == set()


def test_help_needs_the_base_package_alone() -> None:
    code = (
        "import sys; from app.cli.commands import cli; cli(['--help'], prog_name='confplane', standalone_mode=False);"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "rollups" in answer.stdout
    assert set(answer.stdout.splitlines()[-1].split()) & SERVER == set()


@pytest.mark.parametrize(("command", "package"), [("serve", "pydantic_settings"), ("tokens list", "pydantic_settings")])
def test_a_command_of_an_absent_extra_names_the_extra(command: str, package: str) -> None:
    code = f"import sys; sys.modules['{package}'] = None; from app.cli.commands import main; main()"
    answer = subprocess.run(
        [sys.executable, "-c", code, *command.split()], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == f"This command needs {package}: pip install 'confplane[server]'\n"
