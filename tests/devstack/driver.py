"""Runs a stack without the service until SIGTERM, as a process that tests may kill: ``driver.py DIRECTORY``."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from confplane.devstack.errors import DevStackError
from confplane.devstack.stack import Stack


def main() -> int:
    stack = Stack(Path(sys.argv[1]), durable=False)
    signal.signal(signal.SIGTERM, lambda _number, _frame: stack.cancel())
    try:
        for sentence in stack.acquire():
            sys.stdout.write(f"{sentence}\n")
        stack.start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        stack.wait()
    except DevStackError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    finally:
        stack.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
