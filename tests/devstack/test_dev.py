"""``confplane dev`` end to end: what it prints works as printed, and its life on one directory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import Program, program, wait_gone

if TYPE_CHECKING:
    from pathlib import Path

_READY = "Confplane is ready at "
_ELSEWHERE = {
    "CONFPLANE_POSTGRES__DSN": "postgresql://u:p@127.0.0.1:1/production",
    "CONFPLANE_CLUSTERS": '{"production":{"zookeeper":"127.0.0.1:1"}}',
    "CONFPLANE_CLUSTERS__DEFAULT__ZOOKEEPER": "127.0.0.1:1",
    "CONFPLANE_ADMIN_TOKEN_FILE": "/nowhere",
    "CONFPLANE_HTTP__HOST": "0.0.0.0",  # noqa: S104 - shows that it is not taken over
    "CONFPLANE_SETTINGS_FILE": "/nowhere",
}
"""Variables of another system, which must not lead there."""


def _dev(directory: Path, *arguments: str) -> list[str | Path]:
    return ["-m", "confplane", "dev", "--data-dir", directory, "--port", "0", *arguments]


def _ready(running: Program) -> str:
    """Wait until it is ready and return the curl line that it prints."""
    running.read_until(_READY)
    return running.read_until("curl ").strip()


def _run_line(line: str) -> dict[str, object]:
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True, cwd="/", timeout=60)
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A path that holds a blank and a quote and is 150 characters long or more."""
    base = tmp_path / "with a blank" / "it's"
    return base / ("x" * max(1, 150 - len(str(base))))


@pytest.mark.skipif(shutil.which("curl") is None, reason="the line that is printed is for curl")
def test_it_serves_survives_its_ends_and_keeps_its_data_whatever_another_system_s_variables_say(
    directory: Path,
) -> None:
    with program(_dev(directory)) as first:
        line = _ready(first)
        assert _run_line(line)
        token = (directory / "admin-token").read_text().strip()
        assert token not in first.output
        assert str(directory / "admin-token") in first.output

        with program(_dev(directory)) as second:
            assert second.wait() == 1
            assert f"as process {first.process.pid}" in second.output

        started = first.children()
        os.killpg(first.process.pid, signal.SIGTERM)
        assert first.wait() == 0
        stopped = [line for line in first.lines if line.startswith("Stopping")]
        assert stopped == ["Stopping Service", "Stopping Postgres", "Stopping ZooKeeper"]
        wait_gone(started)

    with program(_dev(directory), environment=_ELSEWHERE) as again:
        assert _run_line(_ready(again))
        endpoints = json.loads((directory / "endpoints.json").read_text())
        assert endpoints["url"].startswith("http://127.0.0.1:")
        assert (directory / "admin-token").read_text().strip() == token
        started = again.children()
        for child in started:
            if child.name() == "sh":
                child.kill()  # the watchers, so that everything else is left behind
        again.process.kill()
        again.wait()

    with program(_dev(directory)) as recovered:
        line = _ready(recovered)
        for name in ("Service", "Postgres", "ZooKeeper"):
            assert f"Ended {name} (process" in recovered.output
        wait_gone(started)
        assert _run_line(line)
        started = recovered.children()
        os.killpg(recovered.process.pid, signal.SIGINT)
        assert recovered.wait() == 0
        wait_gone(started)


def test_a_taken_port_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with program(["-m", "confplane", "dev", "--data-dir", tmp_path / "d", "--port", str(port)]) as running:
            assert running.wait() == 1
    assert f"Port {port} is taken" in running.output
    assert f"--port {port + 1}" in running.output
    assert not (tmp_path / "d" / "zookeeper" / "data").exists()
    assert "Traceback" not in running.output


@pytest.mark.parametrize("ignores_sigint", [False, True])
def test_a_signal_while_it_starts_leaves_nothing_behind(tmp_path: Path, *, ignores_sigint: bool) -> None:
    with program(_dev(tmp_path / "d"), ignores_sigint=ignores_sigint) as running:
        running.read_until("Starting ZooKeeper")
        running.process.send_signal(signal.SIGTERM)
        assert running.wait() == 0
        assert _READY not in running.output
    assert not (tmp_path / "d" / "zookeeper" / "process.json").exists()
    assert not (tmp_path / "d" / "postgres" / "process.json").exists()
