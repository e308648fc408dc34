"""``confplane configs`` and ``confplane shell`` on a real service."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import httpx
import pytest

from confplane.cli.remote.configs import command, shell
from tests.support.processes import ROOT
from tests.support.waiting import PATIENCE_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.service import Service

pytestmark = pytest.mark.usefixtures("command_environment")

ENTITY: Final = "user-principal 'alice', client-id 'clientid-override'"


@pytest.fixture
def configs(capsys: pytest.CaptureFixture[str]) -> Callable[[str], list[str]]:
    """Runs a line, which must succeed without warnings; returns the printed lines."""

    def run(line: str) -> list[str]:
        code = command.run(shlex.split(line))
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return out.splitlines()

    return run


def test_the_worked_example_of_kip_649(configs: Callable[[str], list[str]], service: Service, zk: KazooClient) -> None:
    alice = "--entity-type users --entity-name alice"
    assert configs(f"--alter {alice} --add-config producer_byte_rate=1024") == [
        "Completed updating config for user alice."
    ]
    configs(f"--alter {alice} --add-config acks=all,session.timeout.ms=20000")
    override = f"{alice} --entity-type clients --entity-name clientid-override"
    configs(f"--alter {override} --add-config session.timeout.ms=11000")
    assert json.loads(zk.get("/config/users/alice")[0])["config"] == {
        "producer_byte_rate": "1024",
        "acks": "all",
        "session.timeout.ms": "20000",
    }
    body = {
        "components": [
            {"entityType": "user", "matchType": "exact", "match": "alice"},
            {"entityType": "client-id", "matchType": "exact", "match": "clientid-override"},
        ],
        "resolveEntity": True,
        "supportedConfigs": ["acks", "session.timeout.ms"],
        "clientInformation": {"softwareName": "kafka-python", "softwareVersion": "2.1"},
    }
    api = f"{service.url}/v1/clusters/default"
    headers = {"Authorization": f"Bearer {service.token}"}
    httpx.post(f"{api}/client-configs:describe", json=body, headers=headers, trust_env=False).raise_for_status()
    describe = f"--describe {alice} --entity-type clients"
    wait_for(lambda: len(configs(describe)) == 2)
    assert configs(describe) == [
        f"Dynamic configs for {ENTITY} are session.timeout.ms=11000",
        f"Supported dynamic configs for {ENTITY} are acks, session.timeout.ms (kafka-python 2.1)",
    ]
    assert configs(f"--describe {alice}") == [
        "Quota configs for user-principal 'alice' are producer_byte_rate=1024.0",
        "Dynamic configs for user-principal 'alice' are acks=all, session.timeout.ms=20000",
    ]
    configs(f"--alter {override} --delete-config supported.configs,session.timeout.ms")
    assert configs(f"--describe {override}") == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("--alter --user bob --add-config acks=sometimes", "acks must be one of all, -1, 0, 1 (INVALID_REQUEST)"),
        ("--alter --topic bobs --add-config no.such.key=1", "no.such.key"),
        ("--alter --broker 3 --add-config broker.id=1", "broker.id"),
        ("--alter --group g --add-config consumer.session.timeout.ms=50000", "only supported on KRaft clusters"),
        ("--describe --topic bobs --cluster absent", "absent"),
    ],
)
def test_what_the_service_refuses_is_refused_in_its_words(
    line: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(shlex.split(line)) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert reason in err
    assert "Traceback" not in err


def test_a_wrong_token_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("wrong")
    monkeypatch.setenv("CONFPLANE_TOKEN_FILE", str(tmp_path / "token"))
    assert command.run(["--describe", "--entity-type", "users"]) == 1
    assert "Check the token" in capsys.readouterr().err


SCRIPT: Final = """\
# Lines of a script, as they are.
kafka-configs.sh --alter --user carol --add-config producer_byte_rate=1000

configs --describe --user carol
--describe --user "no such user"
"""


def test_lines_of_a_file_run_until_one_fails(
    service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(SCRIPT))
    assert shell.run(None, None) == 0
    printed = (
        "Completed updating config for user carol.\n"
        "Quota configs for user-principal 'carol' are producer_byte_rate=1000.0\n"
    )
    assert capsys.readouterr() == (printed, "")
    for failing in ("--describe --topic", "--describe --user 'x", "--describe --user x --cluster other"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{SCRIPT}{failing}\n--alter --user carol --add-config acks=0"))
        assert shell.run(None, None) == 1
        out, err = capsys.readouterr()
        assert out == printed
        assert err.count("\n") == 1
    headers = {"Authorization": f"Bearer {service.token}"}
    answer = httpx.get(f"{service.url}/v1/clusters/default/client-configs/user=carol", headers=headers, trust_env=False)
    assert answer.status_code == 404


def test_on_a_terminal_lines_are_completed_and_errors_do_not_end_the_shell(tmp_path: Path) -> None:
    master, terminal = pty.openpty()
    environment = os.environ | {"TERM": "dumb", "PYTHONPATH": str(ROOT / "app"), "INPUTRC": str(tmp_path / "none")}
    process = subprocess.Popen(
        [sys.executable, "-m", "confplane", "shell"],
        env=environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    shown = ""

    def until(text: str) -> None:
        nonlocal shown
        while text not in shown:
            readable, _, _ = select.select([master], [], [], PATIENCE_S)
            assert readable, shown
            shown += os.read(master, 4096).decode()
        shown = shown.rpartition(text)[2]

    try:
        until("confplane> ")
        os.write(master, b"--describe --topic\n")
        until("--topic needs a value")
        until("confplane> ")
        # The tabulator key completes the option, and the arrow brings the line before back.
        os.write(master, b"--alter --user dora --add-con\t acks=0\n")
        until("Completed updating config for user dora.")
        until("confplane> ")
        os.write(master, b"\x1b[A\n")
        until("Completed updating config for user dora.")
        until("confplane> ")
        # Keys come from the service.
        os.write(master, b"--alter --topic orders --add-config retention.m\t9\n")
        until("--add-config retention.ms=9")
        until("Completed updating config for topic orders.")
        os.write(master, b"exit\n")
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)
