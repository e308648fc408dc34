"""``confplane`` commands, in this process or as processes, with the settings of a service that need not run.

``python -m tests.support.commands JSON`` runs several, given by their arguments, and exits with the highest of their codes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from typer.testing import CliRunner

from confplane.cli.commands import cli
from tests.support.processes import start
from tests.support.service import Service

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SECONDS: Final = 420.0
"""The time within which a command ends, even on a busy machine."""


class Said(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


def target(service: Service, *arguments: str) -> str:
    """Run ``confplane target`` with a service's settings, which must succeed; return its output."""
    said = run_target(service, *arguments)
    assert said.code == 0, said
    return said.out


def run_target(service: Service, *arguments: str) -> Said:
    """Run ``confplane target`` with a service's settings."""
    environment = service._environment | {"LOGNAME": "olga"}
    return run_here("target", *arguments, "--cluster", "default", environment=environment)


class Commands:
    """Runs commands on one cluster, named ``default``."""

    def __init__(self, directory: Path, *, connect: str, dsn: str, cluster: dict[str, Any] | None = None) -> None:
        service = Service(directory / "settings", connect=connect, dsn=dsn, cluster=cluster)
        self.environment = service._environment | {"LOGNAME": "olga", "COLUMNS": "200"}

    def run(self, *arguments: str, seconds: float = SECONDS) -> Said:
        """Run a command to its end, as a process."""
        return run([*arguments, "--cluster", "default"], self.environment, seconds=seconds)

    def run_here(self, *arguments: str) -> Said:
        """Run a command to its end in this process, and in its Spark session."""
        return run_here(*arguments, "--cluster", "default", environment=self.environment)

    def run_sequentially(self, *commands: Sequence[str]) -> Said:
        """Run several commands in one process, in which those that start Spark share it."""
        given = [[*arguments, "--cluster", "default"] for arguments in commands]
        return run([json.dumps(given)], self.environment, module=__name__, seconds=SECONDS * len(given))


def run_here(*arguments: str, environment: Mapping[str, str] | None = None) -> Said:
    """Run ``confplane`` to its end in this process, with its environment and more variables.

    In a coroutine it runs in a thread, because it starts an event loop.
    """
    env = {"COLUMNS": "200", **(environment or {})}
    invoke = partial(CliRunner().invoke, cli, arguments, env=env, catch_exceptions=False)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        answer = invoke()
    else:
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(invoke).result()
    return Said(answer.exit_code, answer.stdout, answer.stderr)


def run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    module: str = "confplane",
    seconds: float = SECONDS,
) -> Said:
    """Run ``confplane``, or another module of this checkout, to its end, as a process.

    Args:
        arguments: The subcommand and its options.
        environment: The complete environment.
        module: The module.
        seconds: The time within which it ends.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start(["-m", module, *arguments], environment=environment, stdout=out, stderr=err)
        try:
            code = process.wait(seconds)
        finally:
            process.kill()
        said = Said(code, *(_text(file) for file in (out, err)))
    assert "Traceback" not in said.err, said.err
    return said


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def main(commands: list[list[str]]) -> int:
    """Run commands one after another."""
    return max(cli(arguments, prog_name="confplane", standalone_mode=False) or 0 for arguments in commands)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
