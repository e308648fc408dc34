"""``confplane dev``: the embedded stack, a migration, and the service on top, until a signal."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from confplane.cli import migrate
from confplane.cli.output import echo
from confplane.devstack.errors import DevStackError
from confplane.devstack.java import find_java
from confplane.devstack.postgres import OWNER, SERVICE
from confplane.devstack.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType


_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(data_dir: Path, *, port: int, zookeeper_port: int | None, kafka: Sequence[str] = ()) -> int:
    """Run until a signal, with exit code 0, or until a server ends; return the exit code.

    Args:
        data_dir: The directory of all data.
        port: Port of the API on 127.0.0.1; 0 for a free one.
        zookeeper_port: Port of ZooKeeper on 127.0.0.1; None for a free one.
        kafka: ``host:port`` of brokers of a Kafka cluster to observe; empty for none.
    """
    stack = Stack(data_dir, http_port=port, zookeeper_port=zookeeper_port, kafka=kafka)

    def cancel(_signal: int, _frame: FrameType | None) -> None:
        # Only set a flag: an exception while a process is being started could leave it untracked.
        stack.cancel()

    # A signal that is already ignored stays ignored (nohup).
    heeded = [
        number for number in _STOP_SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    ]
    previous = {number: signal.signal(number, cancel) for number in heeded}
    try:
        code = _run(stack, kafka)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return code


def _run(stack: Stack, kafka: Sequence[str]) -> int:
    try:
        find_java()
        for sentence in stack.acquire():
            echo(sentence)
        stack.service.check_port()
        echo(f"Starting ZooKeeper and Postgres, data in {stack.data_dir}")
        stack.start()
        if not stack.cancelled:
            _serve(stack, kafka)
        stack.wait()
    except DevStackError as error:
        if stack.cancelled:
            return 0
        echo(f"confplane dev: {error}", err=True)
        return 1
    except OSError as error:  # the disk is full, or the directory is not ours
        echo(f"confplane dev: {error}", err=True)
        return 1
    except _StepError as error:
        return 0 if stack.cancelled else error.code
    else:
        return 0
    finally:
        stack.stop(report=lambda name: echo(f"Stopping {name}"))


class _StepError(Exception):
    """A step before the service failed, and its reason was already printed."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _serve(stack: Stack, kafka: Sequence[str]) -> None:
    echo(f"ZooKeeper is at {stack.zookeeper.hosts}, Postgres at 127.0.0.1:{stack.postgres.port}")
    if migrate.upgrade_database(stack.postgres.dsn(OWNER), SERVICE) != 0:
        raise _StepError(1)
    if stack.cancelled:
        return
    if kafka:
        code = _observe(stack)
        if code or stack.cancelled:
            raise _StepError(code)
    echo("Starting the service")
    url = stack.serve()
    echo(f"\nConfplane is ready at {url} (Ctrl-C stops it)")
    echo(f"The admin token is in {stack.token_file}, the log in {stack.service.log}\n")
    if kafka:
        echo(_guide(stack, curl(stack.token_file, url)))
    else:
        echo(f"Try in another shell:\n\n  {curl(stack.token_file, url)}\n")


def curl(token_file: Path, url: str) -> str:
    """Return a command line for a POSIX shell, with correct quoting of any path."""
    return f'curl -sS -H "Authorization: Bearer $(cat {shlex.quote(str(token_file))})" {url}/v1/clusters'


_CLUSTER = "default"


def _observe(stack: Stack) -> int:
    """Check the Kafka cluster and import its configs, or the changes since the last run; return the exit code."""
    echo("Reading the Kafka cluster. Only describe requests are sent to it.")
    for command in (["check"], ["import", "--apply"]):
        code = 0 if stack.cancelled else stack.command("target", *command, "--cluster", _CLUSTER)
        if code:
            return code
    return 0


def own_command() -> str:
    """Return the command of this installation for a POSIX shell, which may not have it on its PATH."""
    own = Path(sys.executable).with_name("confplane")
    return shlex.quote(str(own)) if own.is_file() else f"{shlex.quote(sys.executable)} -m confplane"


def _guide(stack: Stack, clusters: str) -> str:
    """Return commands to try first, for a POSIX shell.

    Args:
        stack: The running stack.
        clusters: A curl line, up to ``/v1/clusters``.
    """
    cluster = f"{clusters}/{_CLUSTER}"
    settings = f"--cluster {_CLUSTER} --settings-file {shlex.quote(str(stack.settings_file))}"
    command = own_command()
    steps = {
        "all client quotas": f"{cluster}/client-quotas",
        "one user's quotas, each with its level": f"{cluster}/client-quotas/user=NAME/effective",
        "a topic's configs, each with its level": f"{cluster}/configs/topic=NAME/effective",
        "the default of all brokers": f"{cluster}/configs/broker",
        "brokers and topics that deviate from most": (
            f"{command} rollups run drift {settings} && {command} rollups show drift {settings}"
        ),
        "external changes, from now on": f"{cluster}/audit",
        "the age of this information": cluster,
    }
    lines = [f"  # {purpose}\n  {line}" for purpose, line in steps.items()]
    return (
        "Confplane follows the Kafka cluster, and has written nothing to it. Try in another shell:\n\n"
        + "\n\n".join(lines)
        + "\n\nClient configs (KIP-649) can be written here. Everything else is changed with Kafka's own tools."
    )
