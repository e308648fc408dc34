"""Programs forked by the tests against programs started by a user: the same words, exit codes and signals, and no
shared random numbers."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support import commands, fork_server
from tests.support.processes import program, wait_gone
from tests.support.service import Service
from tests.support.signals import ignoring_sigint
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.servers import Database

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks end with their parent on Linux alone")

# Each ends without a change, so that it can be run twice. A start as shipped takes seconds of a processor.
COMMANDS = (
    ("thaw", "--cluster", "default", "--reason", "none"),
    ("layout", "--help"),
)
MORE_COMMANDS = (
    ("--version",),
    ("migrate",),
    ("export", "--format", "properties", "--cluster", "default", "--broker", "1"),
    ("import", "kip5", "--cluster", "default"),
    ("rollups", "show", "quotas", "--cluster", "default"),
)
# timeit is a module of Python that runs what it is given.
ONCE = ("--number=1", "--repeat=1")
STARTS_AND_WAITS = f"""
import os, psutil, time
from tests.support import fork_server
with fork_server.enabled(), open(os.devnull, "wb") as none:
    process = fork_server.start(
        "timeit", [*{ONCE}, "import time; time.sleep(600)"], environment=os.environ, stdout=none, stderr=none
    )
    print("started", *(child.pid for child in psutil.Process().children(recursive=True)), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def service(tmp_path: Path, chroot: str, migrated: Database) -> Service:
    """One that is not started."""
    settings = {"CONFPLANE_POSTGRES__MIGRATION_DSN": migrated.owner_dsn, "COLUMNS": "200"}
    return Service(tmp_path, connect=chroot, dsn=migrated.service_dsn, settings=settings)


@pytest.mark.parametrize("tried", [COMMANDS, pytest.param(MORE_COMMANDS, marks=pytest.mark.long)], ids=["few", "more"])
def test_commands_say_what_they_say_as_shipped(
    service: Service, raw_zk: KazooClient, tried: tuple[tuple[str, ...], ...]
) -> None:
    raw_zk.ensure_path("/config/changes")
    for arguments in tried:
        forked, shipped = (commands.run(arguments, service._environment, shipped=each) for each in (False, True))
        assert forked == shipped, arguments
        assert forked.out or forked.err, arguments


def test_a_service_ends_as_one_that_was_shipped(service: Service) -> None:
    for shipped in (False, True):
        service.shipped = shipped
        service.start()
        assert service.stop() == -signal.SIGTERM
        service.start()
        os.kill(service.pid, signal.SIGSTOP)
        assert service.running
        assert service.stop(kill=True) == -signal.SIGKILL


def test_a_service_that_ignores_sigint_ends_by_sigterm(service: Service) -> None:
    service.shipped = True
    with ignoring_sigint():
        service.start()
    assert service.stop() == -signal.SIGTERM


def evaluated(tmp_path: Path, expression: str, **environment: str) -> str:
    """Evaluate an expression in a fork and return its text."""
    names = "import os, random, secrets, sys, uuid_utils; from confplane.store.session.clock import ZooKeeperClock"
    code = f"{names}; sys.stdout.write(str({expression}) + chr(10))"
    with (tmp_path / "out").open("w+b") as out:
        process = fork_server.start("timeit", [*ONCE, code], environment=environment, stdout=out, stderr=out)
        assert process.wait(PATIENCE_S) == 0
        out.seek(0)
        return out.read().decode().splitlines()[0]


def test_a_fork_has_the_environment_that_it_was_given_and_no_other_open_files(tmp_path: Path, service: Service) -> None:
    known = {name: value for name, value in os.environ.items() if name.startswith(fork_server._AT_START)}
    with service:  # whose own files are open meanwhile
        assert evaluated(tmp_path, "sorted(os.environ)", A="b", **known) == str(sorted(["A", *known]))
        # The last is that of the listing itself.
        assert evaluated(tmp_path, "sorted(os.listdir('/proc/self/fd'))", **known) == str(["0", "1", "2", "3"])


@pytest.mark.parametrize(
    "source",
    [
        "uuid_utils.uuid7().bytes[9:]",
        "random.random()",
        "secrets.token_hex()",
        pytest.param("ZooKeeperClock('default').new_id().bytes[9:]", id="ids of changes"),
    ],
)
def test_forks_share_no_chance(tmp_path: Path, source: str) -> None:
    known = {name: value for name, value in os.environ.items() if name.startswith(fork_server._AT_START)}
    assert len({evaluated(tmp_path, source, **known) for _ in range(5)}) == 5


@pytest.mark.parametrize("killed", [True, pytest.param(False, marks=pytest.mark.long)], ids=["killed", "interrupted"])
def test_no_process_outlives_the_one_that_started_it(*, killed: bool) -> None:
    with program(["-c", STARTS_AND_WAITS]) as running:
        started = [psutil.Process(int(pid)) for pid in running.read_until("started").split()[1:]]
        assert len(started) == 2  # the fork server and its fork
        if killed:
            running.process.kill()
        else:
            os.killpg(running.process.pid, signal.SIGINT)
        running.process.wait(PATIENCE_S)
        wait_gone(started)
