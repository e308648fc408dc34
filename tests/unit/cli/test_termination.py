"""SIGTERM stops commands as Ctrl-C does, also if they ignore SIGINT; tests/integration stops commands on real stores."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Final

import pytest

from confplane.cli import termination
from tests.support.processes import ROOT, Program, ignoring_sigint, program
from tests.support.waiting import PATIENCE_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STARTED: Final = "started"
WAITING: Final = """
import asyncio, os, signal, sys, time
from confplane.cli import callers, termination
from confplane.domain.errors import OutcomeUnknownError

async def cleaned_up():
    try:
        print("started", flush=True)
        await asyncio.sleep(600)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)  # as timeout does, which signals the process and then its group
        await asyncio.sleep(0)
        print("cleaned up", flush=True)
    return 0

async def unknown():
    try:
        print("started", flush=True)
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        raise OutcomeUnknownError("The connection was lost", change_id="1") from None
    return 0

def jobs():
    def cancel(number, frame):
        print("jobs cancelled", flush=True)
        raise KeyboardInterrupt
    signal.signal(signal.SIGINT, cancel)
    print("started", flush=True)
    time.sleep(600)

with termination.sigterm_handled():
    {work}
"""
_FILE: Final = "- id: user=alice\n  client-configs: {acks: all}\n"


@contextmanager
def _silent_service() -> Iterator[socket.socket]:
    """A server that answers no request."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        yield server


def _url(server: socket.socket) -> str:
    return f"http://127.0.0.1:{server.getsockname()[1]}"


COMMANDS: Final = {
    "read": ("get", "user=alice"),
    "read for a program": ("get", "user=alice", "--json"),
    "write": ("set", "user=alice", "acks=all"),
    "list": ("get",),
    "export": ("export", "--format", "yaml"),
    "load": ("load", "FILE"),
    "kafka-configs": ("configs", "--describe", "--user", "alice"),
    "login": ("login",),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("number", "ignores_sigint", "code"),
    [
        pytest.param(signal.SIGTERM, True, 143, id="SIGTERM with SIGINT ignored"),
        pytest.param(signal.SIGTERM, False, 143, id="SIGTERM", marks=pytest.mark.long),
        pytest.param(signal.SIGINT, False, 130, id="Ctrl-C", marks=pytest.mark.long),
    ],
)
def test_a_command_that_waits_for_the_service_is_interrupted(
    tmp_path: Path, command: str, number: signal.Signals, *, ignores_sigint: bool, code: int
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(_FILE)
    with _silent_service() as server:
        profiles = tmp_path / "profiles.yaml"
        credential = "client_id: people" if command == "login" else f"token_file: {tmp_path / 'token'}"
        profiles.write_text(f"current: trial\nprofiles:\n  trial:\n    url: {_url(server)}\n    {credential}\n")
        environment = {"CONFPLANE_PROFILES": str(profiles)}
        (tmp_path / "token").write_text("a-token")
        arguments = [str(file) if word == "FILE" else word for word in COMMANDS[command]]
        words = ["-m", "confplane", *arguments]
        with (
            program(words, environment=environment, ignores_sigint=ignores_sigint) as running,
            _accepted(server, running),
        ):
            running.process.send_signal(number)
            assert running.wait() == code, running.output
        error = json.dumps({"detail": "Interrupted", "exitCode": code})
        assert running.lines[-1] == (error if "--json" in arguments else "Interrupted")


def _accepted(server: socket.socket, running: Program) -> socket.socket:
    """Wait for a request, and return its connection."""
    wait_for(lambda: select.select([server], [], [], 0)[0] or running.process.poll() is not None)
    assert running.process.poll() is None, (running.wait(), running.output)
    connection, _ = server.accept()
    connection.settimeout(PATIENCE_S)
    assert connection.recv(4096)
    return connection


@pytest.mark.parametrize("ignores_sigint", [True, False])
@pytest.mark.parametrize(
    ("work", "code", "said"),
    [
        pytest.param('sys.exit(callers.run(cleaned_up(), "Not done"))', 143, "cleaned up", id="a coroutine"),
        pytest.param(
            'sys.exit(callers.run(unknown(), "Not done"))',
            3,
            "It is unknown whether the change was made. The connection was lost",
            id="an unknown outcome",
        ),
        pytest.param("jobs()", 143, "jobs cancelled", id="a handler of Ctrl-C"),
    ],
)
def test_work_ends_in_order(work: str, code: int, said: str, *, ignores_sigint: bool) -> None:
    with program(["-c", WAITING.format(work=work)], ignores_sigint=ignores_sigint) as running:
        running.read_until(STARTED)
        running.process.send_signal(signal.SIGTERM)
        assert running.wait() == code
    assert running.lines == [STARTED, said]


@pytest.mark.parametrize("ignores_sigint", [True, False])
def test_a_shell_ends(tmp_path: Path, *, ignores_sigint: bool) -> None:
    """At its prompt, where Ctrl-C only clears the line, and during a command."""
    (tmp_path / "token").write_text("a-token")
    with _silent_service() as server:
        environment = os.environ | {
            "CONFPLANE_URL": _url(server),
            "CONFPLANE_TOKEN_FILE": str(tmp_path / "token"),
            "INPUTRC": str(tmp_path / "none"),
            "PYTHONPATH": str(ROOT / "app"),
            "TERM": "dumb",
        }
        for line in (b"", b"--describe --user alice\n"):
            with _shell(environment, ignores_sigint=ignores_sigint) as (process, master):
                _shown(master, "confplane> ")
                if line:
                    os.write(master, line)
                    connection, _ = server.accept()
                    with connection:
                        process.send_signal(signal.SIGTERM)
                        assert process.wait(PATIENCE_S) == 143
                else:
                    # A signal between the prompt and readline's wait for a key is noted, and handled with the next one.
                    while process.poll() is None:
                        process.send_signal(signal.SIGTERM)
                        with suppress(subprocess.TimeoutExpired):
                            process.wait(PATIENCE_S / 20)
                    assert process.returncode == 143
                _shown(master, "Interrupted")


@contextmanager
def _shell(environment: dict[str, str], *, ignores_sigint: bool) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a shell at a terminal."""
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "confplane", "shell"]
    ignoring = ignoring_sigint() if ignores_sigint else nullcontext()
    with ignoring:
        process = subprocess.Popen(
            command, env=environment, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
        )
    os.close(terminal)
    try:
        yield process, master
    finally:
        process.kill()
        process.wait()
        os.close(master)


def _shown(master: int, text: str) -> None:
    """Read what a terminal shows, up to a text."""
    shown = ""
    while text not in shown:
        readable, _, _ = select.select([master], [], [], PATIENCE_S)
        assert readable, shown
        shown += os.read(master, 4096).decode()


@pytest.mark.parametrize("ignored", [signal.SIG_IGN, signal.SIG_DFL])
def test_an_ignored_sigterm_stays_ignored(ignored: signal.Handlers) -> None:
    before = signal.signal(signal.SIGTERM, ignored)
    try:
        with termination.sigterm_handled():
            assert (signal.getsignal(signal.SIGTERM) == signal.SIG_IGN) == (ignored == signal.SIG_IGN)
        assert signal.getsignal(signal.SIGTERM) == ignored
    finally:
        signal.signal(signal.SIGTERM, before)
