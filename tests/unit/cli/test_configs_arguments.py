"""Command lines of ``confplane configs``: what is read from each, and what is refused before anything is sent."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from confplane.cli.remote import session
from confplane.cli.remote.configs import arguments, command, options
from tests.unit.cli.configs_lines_read import PROPERTIES, READ, Read
from tests.unit.cli.configs_lines_refused import REFUSED, SERVERS, Refused

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A properties file; no request may be sent."""

    def sent(*_: object) -> None:
        raise AssertionError("a client is made")

    monkeypatch.setattr(session, "client_of", sent)
    monkeypatch.setenv("CONFPLANE_URL", "http://confplane.test")
    (tmp_path / "new.properties").write_text(PROPERTIES)
    return str(tmp_path / "new.properties")


@pytest.mark.parametrize("case", READ, ids=lambda case: f"{case.of}: {case.line}")
def test_lines_of_kafkas_tests_and_the_proposals_are_read(case: Read, file: str) -> None:
    read = arguments.read(options.split(shlex.split(case.line.replace("{file}", file))))
    assert (read.types, read.names, read.added, read.deleted) == (case.types, case.names, case.added, case.deleted)
    assert read.alter == (case.added != {} or case.deleted != ())
    assert read.everything == ("--all" in case.line)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case.of}: {case.line}")
def test_lines_that_kafkas_tool_refuses_are_refused_with_the_reason(
    case: Refused, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(shlex.split(case.line.replace("{file}", file))) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert case.reason in err
    assert err.count("\n") == 1
    assert "foo-secret" not in err
    assert "hidden" not in err


@pytest.mark.parametrize("option", SERVERS)
@pytest.mark.parametrize("case", [READ[0], READ[-1]], ids=lambda case: case.line)
def test_options_of_servers_are_refused_with_the_service_that_takes_their_place(
    option: str, case: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run([option, "localhost:9092", *shlex.split(case.line)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{option} is not supported" in err
    assert "the cluster default of the service http://confplane.test is used" in err


@pytest.mark.parametrize("option", SERVERS)
def test_no_line_is_taken_with_a_server(option: str, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All tests of Kafka with a server in their lines: those of ZooKeeper among them, which its tool partly takes."""
    for line in (*(case.line for case in READ), *(case.line for case in REFUSED)):
        assert command.run([option, "localhost:2181", *shlex.split(line.replace("{file}", file))]) == 1
    assert capsys.readouterr().out == ""


def test_a_server_without_any_profile_is_answered_with_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CONFPLANE_URL")
    monkeypatch.setenv("CONFPLANE_PROFILES", str(tmp_path / "absent.yaml"))
    monkeypatch.chdir(tmp_path)
    assert command.run(["--describe", "--topic", "a", "--bootstrap-server", "localhost:9092"]) == 1
    assert "Set CONFPLANE_URL" in capsys.readouterr().err
    # A file of client properties is no profile.
    assert command.run(["--describe", "--topic", "a", "--command-config", "/etc/kafka/client.properties"]) == 1
    assert "There is no profile '/etc/kafka/client.properties'" in capsys.readouterr().err


def test_help_and_version_send_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run([]) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err.startswith("Usage: confplane configs")) == ("", True)
    assert command.run(["--help", "--describe"]) == 0
    assert capsys.readouterr().out == shown.err
    assert all(f"--{name}" in shown.err for name in options.NAMES if name not in options.REPLACED)
    assert command.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("confplane ")


def test_files_that_are_no_properties(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken").write_text("a=\\u12")
    for path, reason in ((tmp_path / "broken", "four hexadecimal digits"), (tmp_path / "absent", "can't be read")):
        assert command.run(["--alter", "--topic", "a", "--add-config-file", str(path)]) == 1
        assert reason in capsys.readouterr().err
