"""Settings that commands refuse, each named on a line, and forms that they accept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from confplane.cli import settings_errors
from confplane.cli.commands import cli

if TYPE_CHECKING:
    from pathlib import Path

_VALID = {
    "CONFPLANE_CLUSTERS": '{"a":{"zookeeper":"127.0.0.1:1"}}',
    "CONFPLANE_POSTGRES__DSN": "postgresql://u:geheim@127.0.0.1:1/d",
    "CONFPLANE_ADMIN_TOKEN_FILE": "/nowhere/token",
}


@pytest.mark.parametrize("command", ["serve", "migrate"])
@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"CONFPLANE_HTTP__PORT": "99999"}, ["http.port: ", "CONFPLANE_HTTP__PORT"]),
        ({"CONFPLANE_POSTGRES__DSN": ""}, ["postgres: Field required", "CONFPLANE_POSTGRES"]),
        ({"CONFPLANE_CLUSTERS": '{"B":{"zookeeper":"x"}}'}, ["clusters.B: "]),
        ({"CONFPLANE_CLUSTERS": "{"}, ["clusters"]),
        ({"CONFPLANE_SETTINGS_FILE": "/nowhere/confplane.yaml"}, ["/nowhere/confplane.yaml"]),
        (
            {
                "CONFPLANE_CLUSTERS": '{"a":{"zookeeper":"x","group_min_session_timeout_ms":9,'
                '"group_max_session_timeout_ms":8}}'
            },
            ["clusters.a: group_min_session_timeout_ms is above"],
        ),
        ({"CONFPLANE_POSTGRES__DSN": "mysql://u:geheim@h/d"}, ["postgres.dsn: ", "CONFPLANE_POSTGRES__DSN"]),
        ({"CONFPLANE_POSTGRES__DSN": "postgresql://u:geheim@h:x/d"}, ["postgres.dsn: "]),
        ({"CONFPLANE_POSTGRES__DSN": "postgresql://127.0.0.1/d"}, ["postgres.dsn: "]),
        ({"CONFPLANE_CLUSTERS": '{"a":{"zookeeper":"zk1:x"}}'}, ["clusters.a.zookeeper: "]),
        ({"CONFPLANE_CLUSTERS": '{"a":{"zookeeper":"zk1:1/kafka, zk2:1"}}'}, ["clusters.a.zookeeper: "]),
        ({"CONFPLANE_HTTP__PORT": "x", "CONFPLANE_LOG_LEVEL": "loud"}, ["  http.port: ", "  log_level: "]),
    ],
)
def test_each_wrong_setting_is_named_on_a_line(command: str, changes: dict[str, str], lines: list[str]) -> None:
    answer = CliRunner().invoke(cli, [command], env={**_VALID, **changes})
    assert answer.exit_code == 2
    for line in lines:
        assert line in answer.output
    assert "geheim" not in answer.output
    assert "Traceback" not in answer.output


@pytest.mark.parametrize("has_dev", [False, True])
def test_missing_settings_name_the_option_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_dev: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    if has_dev:
        file = tmp_path / ".confplane" / "settings.yaml"
        file.parent.mkdir()
        file.touch()
    answer = CliRunner().invoke(cli, ["doctor"])
    assert answer.exit_code == 2
    assert "No settings file is named. Use --settings-file FILE" in answer.output
    assert (".confplane/settings.yaml" in answer.output) is has_dev


def test_a_settings_file_that_is_no_yaml_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFPLANE_SETTINGS_FILE", "")
    broken = tmp_path / "broken.yaml"
    broken.write_text("clusters: [")
    answer = CliRunner().invoke(cli, ["serve", "--settings-file", str(broken)])
    assert answer.exit_code == 2
    assert f"{broken} is not valid YAML" in answer.output


@pytest.mark.parametrize(
    ("content", "said"), [(None, "No such file"), (b"short\n", "fewer than"), (b"\xff" * 40, "text")]
)
def test_a_token_file_that_will_not_do_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    answer = CliRunner().invoke(cli, ["serve"], env={**_VALID, "CONFPLANE_ADMIN_TOKEN_FILE": str(token)})
    assert answer.exit_code == 2
    assert f"admin_token_file: {token}" in answer.output
    assert said in answer.output


@pytest.mark.parametrize("hosts", ["h", "h:1", "a:1,b:2/kafka", "[::1]:2181/a/b", "zk-1.example.org:2181/"])
def test_every_form_of_connect_string_is_accepted(hosts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**_VALID, "CONFPLANE_CLUSTERS": json.dumps({"a": {"zookeeper": hosts}})}.items():
        monkeypatch.setenv(name, value)
    assert settings_errors.load().clusters["a"].zookeeper == hosts


def test_migrating_an_unavailable_database_is_reported_in_one_line() -> None:
    answer = CliRunner().invoke(cli, ["migrate"], env=_VALID)
    assert answer.exit_code == 1
    assert answer.output.startswith("Not migrated: ")
    assert "geheim" not in answer.output
    assert answer.output.count("\n") == 1
