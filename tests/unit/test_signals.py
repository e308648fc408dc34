"""Children of the tests handle signals as programs that a user starts at a terminal."""

from __future__ import annotations

import subprocess
import sys

from tests.support.processes import ROOT

PARENT = """
import signal, subprocess, sys
from tests.support.signals import start_children_with_defaults

def of_child():
    code = "import signal; print(signal.getsignal(signal.SIGINT).__name__, signal.getsignal(signal.SIGTERM).name)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

start_children_with_defaults()
signal.raise_signal(signal.SIGINT)  # is still ignored
print(of_child())
"""


def test_children_start_with_default_handlers_in_the_background_of_a_shell_script() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", "trap '' INT TERM; exec \"$0\" -c \"$1\"", sys.executable, PARENT],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "default_int_handler SIG_DFL\n", "")
