"""``confplane`` commands as processes of their own: their time, their processor time and their greatest memory."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.bench.rounds import progress
from tests.support.processes import start

if TYPE_CHECKING:
    from collections.abc import Mapping

# The greatest memory of a process includes that of the process that started it. The bench is large, and this one is not.
_LAUNCHER: Final = """
import pathlib, resource, subprocess, sys
status = subprocess.call([sys.executable, "-m", "confplane", *sys.argv[2:]])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
pathlib.Path(sys.argv[1]).write_text(f"{used.ru_utime + used.ru_stime} {used.ru_maxrss}")
sys.exit(status)
"""


class Used(NamedTuple):
    """The time and the memory of a command."""

    seconds: float
    cpu_seconds: float
    megabytes: float
    """Its greatest memory."""


def used_by(*arguments: str, environment: Mapping[str, str], status: int = 0) -> Used:
    """Run a command to its end.

    Args:
        arguments: The subcommand and its options.
        environment: The complete environment.
        status: The exit code of success.

    Raises:
        CalledProcessError: Another exit code; the log of the command is printed.
    """
    with tempfile.TemporaryDirectory() as directory, Path(directory, "log").open("w+b") as log:
        report, begun = Path(directory, "used"), time.monotonic()
        command = ["-c", _LAUNCHER, str(report), *arguments]
        found = start(command, environment=environment, stdout=log, stderr=log).wait()
        seconds = time.monotonic() - begun
        if found != status:
            log.seek(0)
            progress.print(log.read().decode())
            raise subprocess.CalledProcessError(found, arguments[0])
        cpu_seconds, kilobytes = report.read_text().split()
        return Used(seconds, float(cpu_seconds), int(kilobytes) / 2**10)
