"""Runs a test many times while all processors are busy: ``make stress T=tests/unit/test_suites.py N=30``."""

from __future__ import annotations

import os
import subprocess
import sys


def main(test: str, times: int) -> int:
    """Run a test, or all of a file, ``times`` times. Return 1 if a run failed, after which the rest is not run."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        for number in range(1, times + 1):
            failed = subprocess.run([sys.executable, "-m", "pytest", "-q", test], check=False).returncode != 0
            sys.stdout.write(f"Run {number} of {times} {'failed' if failed else 'passed'}.\n")
            sys.stdout.flush()
            if failed:
                return 1
    finally:
        for process in busy:
            process.kill()
            process.wait()
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[1] or not sys.argv[2].isdecimal():
        sys.exit("Name a test and a number of runs: make stress T=tests/unit/test_suites.py N=30")
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
