"""Programs that tests start: their signal handlers, and their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

import psutil
import pytest

from tests.support.processes import ROOT, program, start, wait_gone
from tests.support.waiting import PATIENCE_S, wait_for

PARENT = """
import signal, subprocess, sys
from tests.support.processes import start_children_with_defaults

def of_child():
    code = "import signal; print(signal.getsignal(signal.SIGINT).__name__, signal.getsignal(signal.SIGTERM).name)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

start_children_with_defaults()
signal.raise_signal(signal.SIGINT)  # is still ignored
print(of_child())
"""
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends programs with their parent")
WAITS = "import signal; print('waits', flush=True); signal.pause()"
STARTS_AND_WAITS = f"""
import os, signal, sys
from tests.support.processes import start
process = start(['-c', {WAITS!r}], environment=os.environ, stdout=sys.stdout.buffer, stderr=sys.stderr.buffer)
print("started", process.pid, flush=True)
signal.pause()
"""


def test_children_start_with_default_handlers_in_the_background_of_a_shell_script() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", "trap '' INT TERM; exec \"$0\" -c \"$1\"", sys.executable, PARENT],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "default_int_handler SIG_DFL\n", "")


@ON_LINUX
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_no_program_outlives_the_process_that_started_it(number: signal.Signals) -> None:
    with program(["-c", STARTS_AND_WAITS]) as running:
        started = psutil.Process(int(running.read_until("started").split()[1]))
        if "waits" not in running.output:  # setpriv has done its part by then
            running.read_until("waits")
        running.process.send_signal(number)
        running.process.wait(PATIENCE_S)
        wait_gone([started])


@ON_LINUX
def test_a_program_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    said, started = tmp_path / "said", []

    def run() -> None:
        with said.open("wb") as file:
            started.append(start(["-c", WAITS], environment=os.environ, stdout=file, stderr=file))
        wait_for(lambda: said.read_text() == "waits\n")

    thread = Thread(target=run)
    thread.start()
    thread.join()
    wait_for(lambda: not Path(f"/proc/self/task/{thread.native_id}").exists())
    [process] = started
    process.terminate()
    assert process.wait(PATIENCE_S) == -signal.SIGTERM
