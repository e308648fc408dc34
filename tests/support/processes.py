"""Runs the project's own programs as processes, reads their output, and ensures that none of them remains."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

import psutil

from tests.support import fork_server
from tests.support.signals import ignoring_sigint
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.support.fork_server import Process

ROOT = Path(__file__).parents[2]


def build_wheel(directory: Path) -> Path:
    """Build the project's wheel in a directory without other wheels; return its path."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = directory.glob("*.whl")
    return wheel


class Program:
    """A started program whose output is read as it arrives."""

    def __init__(self, process: Process, output: IO[str]) -> None:
        self.process = process
        self._output = output
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._output:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    @property
    def output(self) -> str:
        """All that was read so far."""
        return "\n".join(self.lines)

    def read_until(self, text: str, seconds: float = PATIENCE_S) -> str:
        """Read up to the next line that contains ``text``, and return that line."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {text!r} within {seconds} s:\n{self.output}") from None
            if line is None:
                raise AssertionError(f"ended without {text!r}, exit code {self.process.wait()}:\n{self.output}")
            self.lines.append(line)
            if text in line:
                return line

    def wait(self, seconds: float = PATIENCE_S) -> int:
        """Read to the end and return the exit code."""
        code = self.process.wait(seconds)
        self._reader.join(seconds)
        while (line := self._queue.get(timeout=seconds)) is not None:
            self.lines.append(line)
        return code

    def children(self) -> list[psutil.Process]:
        """Return all processes that are still its descendants."""
        return psutil.Process(self.process.pid).children(recursive=True)


@contextlib.contextmanager
def program(
    arguments: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    forks: bool = False,
    ignores_sigint: bool = False,
) -> Iterator[Program]:
    """Run a program of this Python in its own process group; at the end, kill it and all of its descendants.

    Args:
        arguments: The arguments of Python.
        environment: More variables.
        cwd: Where it runs.
        forks: True to run a module, in the root, as a fork of the process that has imported it, without its own group.
        ignores_sigint: Start it with SIGINT ignored, as a shell script starts a background job. Not for forks.
    """
    more = environment or {}
    reading, writing = os.pipe()
    process: Process
    with os.fdopen(writing, "wb") as output:
        if forks:
            _, module, *rest = map(str, arguments)
            process = fork_server.start(module, rest, environment={**os.environ, **more}, stdout=output, stderr=output)
        else:
            with ignoring_sigint() if ignores_sigint else contextlib.nullcontext():
                process = subprocess.Popen(
                    [sys.executable, *arguments],
                    stdout=output,
                    stderr=output,
                    cwd=cwd,
                    env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **more},
                    start_new_session=True,
                )
    running = Program(process, os.fdopen(reading, encoding="utf-8"))
    try:
        yield running
    finally:
        if process.poll() is None:
            started = running.children()
            process.send_signal(signal.SIGKILL)
            for child in started:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            process.wait()
        running._reader.join(10)
        running._output.close()


def wait_gone(processes: Sequence[psutil.Process], seconds: float = PATIENCE_S) -> None:
    """Wait until none of the processes is left."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    assert not alive, f"still there: {[process.cmdline() for process in alive]}"


def stopped(pid: int) -> bool:
    """True while a process is stopped by a signal."""
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - no file of ours
        return stat.read().rpartition(")")[2].split()[0] == "T"
