"""Processes that do one task whenever they are told to, so that what takes long to start is measured in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from tests.support.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_END_S = 600.0


@contextmanager
def worker(module: str, **fields: Any) -> Iterator[Callable[[str], float]]:
    """Run one of the bench's modules, which calls :func:`serve`; yields what has it do a task, and returns its answer.

    The first task takes longer than later ones: it waits for the start.
    """
    command = [sys.executable, "-m", f"tests.bench.{module}", json.dumps(fields)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        tasks, replies = process.stdin, process.stdout

        def answer(task: str) -> float:
            tasks.write(f"{task}\n")
            tasks.flush()
            reply = replies.readline()
            if not reply:
                raise RuntimeError(f"{module} with {fields} ended at {task}")
            return float(reply)

        try:
            yield answer
        finally:
            tasks.close()
            process.wait(_END_S)


def own_output() -> IO[str]:
    """Return standard output, for replies alone: what else is written there, by Java say, goes to standard error."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return replies


def serve(run: Callable[[str], float | None], replies: IO[str]) -> None:
    """Do each task that is asked for, until nobody asks any more.

    The answer is the figure that the task returns, or else the seconds that it took.
    """
    for line in sys.stdin:
        begun = time.monotonic()
        figure = run(line.rstrip("\n"))
        replies.write(f"{time.monotonic() - begun if figure is None else figure:.3f}\n")
        replies.flush()
