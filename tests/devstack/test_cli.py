"""Output of the command line: help, the version, and the lines that `confplane dev` prints."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import confplane
from confplane.cli.commands import cli
from confplane.cli.dev import curl, own_command
from tests.support.processes import program

if TYPE_CHECKING:
    from pathlib import Path


def test_the_version_is_the_packages() -> None:
    assert CliRunner().invoke(cli, ["--version"]).output == f"confplane {confplane.__version__}\n"


def test_dev_without_java_says_what_to_install(tmp_path: Path) -> None:
    with program(
        ["-m", "confplane", "dev", "--data-dir", tmp_path / "d"], environment={"PATH": "", "JAVA_HOME": ""}
    ) as run:
        assert run.wait() == 1
    assert "Java 17 or later is needed and was not found" in run.output
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("name", ["plain", "with a blank", "it's", 'a "quoted" $HOME `id`'])
def test_the_printed_curl_line_reads_the_token_whatever_the_path(tmp_path: Path, name: str) -> None:
    token = tmp_path / name / "admin-token"
    token.parent.mkdir()
    token.write_text("s3cret\n")
    line = curl(token, "http://127.0.0.1:8080")
    said = subprocess.run(
        ["/bin/sh", "-c", f'curl() {{ printf "%s\\n" "$@"; }}; {line}'], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert said == ["-sS", "-H", "Authorization: Bearer s3cret", "http://127.0.0.1:8080/v1/clusters"]
    assert shlex.quote(str(token)) in line


@pytest.mark.parametrize("name", ["plain", "with a blank", "it's"])
@pytest.mark.parametrize("has_script", [False, True], ids=["module", "script"])
def test_printed_commands_run_in_a_shell_that_has_them_not_on_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, has_script: bool
) -> None:
    directory = tmp_path / name
    directory.mkdir()
    for each in ("python", *(["confplane"] if has_script else [])):
        (directory / each).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (directory / each).chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(directory / "python"))
    line = f"{own_command()} rollups show drift"
    said = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True, env={"PATH": "/bin"})
    module = [] if has_script else ["-m", "confplane"]
    assert said.stdout.splitlines() == [*module, "rollups", "show", "drift"]
