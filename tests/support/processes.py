"""Runs the project's own programs as processes, reads their output, and ensures that none of them remains."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import psutil

from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[2]


def build_wheel(directory: Path) -> Path:
    """Build the project's wheel in a directory without other wheels; return its path."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = directory.glob("*.whl")
    return wheel


def start_children_with_defaults() -> None:
    """Start every later child of this process with the default handlers of SIGINT and SIGTERM.

    A shell script starts its background jobs with SIGINT ignored. Children inherit that, but not a handler: this process
    continues to ignore the signals, by a handler that does nothing.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@contextlib.contextmanager
def ignoring_sigint() -> Iterator[None]:
    """Ignore SIGINT in a block. What the block starts ignores it too, as a background job of a shell script does."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


_STARTER: Final = ThreadPoolExecutor(1, "starter")
"""The kernel ends a program with the thread that started it: this one ends with the tests."""


def start(
    arguments: Sequence[str | Path],
    *,
    environment: Mapping[str, str],
    stdout: IO[bytes],
    stderr: IO[bytes],
    cwd: Path = ROOT,
) -> subprocess.Popen[bytes]:
    """Start a program of this Python in its own process group. On Linux it is killed if the tests are.

    Args:
        arguments: The arguments of Python.
        environment: The complete environment.
        stdout: Receives its output.
        stderr: Receives its errors.
        cwd: Where it runs.
    """
    setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
    dying = () if setpriv is None else (setpriv, "--pdeathsig", "KILL")
    starting = _STARTER.submit(
        subprocess.Popen,
        [*dying, sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env=environment,
        start_new_session=True,
    )
    return starting.result()


def path_with_confplane(directory: Path) -> str:
    """Write the program ``confplane`` into a new directory, and return the PATH on which scripts find it."""
    directory.mkdir()
    program = directory / "confplane"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}/app" exec "{sys.executable}" -m confplane "$@"\n')
    program.chmod(0o755)
    return f"{directory}{os.pathsep}{os.environ['PATH']}"


class Program:
    """A started program whose output is read as it arrives."""

    def __init__(self, process: subprocess.Popen[bytes], output: IO[str]) -> None:
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
    ignores_sigint: bool = False,
) -> Iterator[Program]:
    """Run a program of this Python in its own process group; at the end, kill it and all of its descendants.

    Args:
        arguments: The arguments of Python.
        environment: More variables.
        cwd: Where it runs.
        ignores_sigint: Start it with SIGINT ignored, as a shell script starts a background job.
    """
    more = environment or {}
    reading, writing = os.pipe()
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **more}
    ignoring = ignoring_sigint() if ignores_sigint else contextlib.nullcontext()
    with os.fdopen(writing, "wb") as output, ignoring:
        process = start(arguments, environment=variables, stdout=output, stderr=output, cwd=cwd)
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


def wait_gone(processes: Sequence[psutil.Process]) -> None:
    """Wait until none of the processes is left."""
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_S)
    assert not alive, f"still there: {[process.cmdline() for process in alive]}"


def stopped(pid: int) -> bool:
    """True while a process is stopped by a signal."""
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - no file of ours
        return stat.read().rpartition(")")[2].split()[0] == "T"
