"""Runs a test many times while all processors are busy: ``make stress T=tests/unit/test_ci.py N=30``."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_BUSY: Final = "while True: pass"


def main(test: str, times: int) -> int:
    """Run a test, or all of a file, ``times`` times. Return 1 if a run failed, after which the rest is not run."""
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        return run(test, times)
    finally:
        for process in busy:
            process.kill()
            process.wait()


def run(test: str, times: int, command: Sequence[str] = (sys.executable, "-m", "pytest", "-q")) -> int:
    """Run a test repeatedly. Return 1 if a run failed."""
    for number in range(1, times + 1):
        if subprocess.run([*command, test], check=False).returncode:
            sys.stdout.write(f"Run {number} of {times} failed.\n")
            return 1
        sys.stdout.write(f"Run {number} of {times} passed.\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[1] or not sys.argv[2].isdecimal():
        sys.exit("Name a test and a number of runs: make stress T=tests/unit/test_ci.py N=30")
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
