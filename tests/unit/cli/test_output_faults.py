"""Standard streams that can't be used: a full disk, a reader that has left, and streams that are closed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import ROOT

if TYPE_CHECKING:
    from typing import BinaryIO

COMMANDS = [["--help"], ["--version"], ["profiles", "list"], ["configs", "--help"]]


def run(words: list[str], output: BinaryIO, tmp_path: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "confplane", *words],
        env=environment(tmp_path),
        stdout=output,
        stderr=subprocess.PIPE,
        check=False,
    )


def run_in_shell(redirection: str, words: list[str], tmp_path: Path) -> subprocess.CompletedProcess[bytes]:
    script = f'exec "$@" {redirection}'
    return subprocess.run(
        ["sh", "-c", script, "sh", sys.executable, "-m", "confplane", *words],
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )


def environment(tmp_path: Path) -> dict[str, str]:
    profiles = tmp_path / "profiles.yaml"
    profiles.write_text("profiles: {a: {url: 'http://a.test'}}\n")
    return {**os.environ, "PYTHONPATH": str(ROOT / "app"), "CONFPLANE_PROFILES": str(profiles)}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has this file")
@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_disk_is_named(words: list[str], tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run(words, full, tmp_path)
    assert (done.returncode, done.stderr.decode()) == (
        1,
        "The output can't be written: No space left on device. Changes that the command made stay.\n",
    )


@pytest.mark.parametrize("words", COMMANDS)
def test_a_reader_that_leaves_ends_a_command_quietly(words: list[str], tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        done = run(words, gone, tmp_path)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("words", COMMANDS)
def test_a_closed_output_can_not_be_written(words: list[str], tmp_path: Path) -> None:
    done = run_in_shell(">&-", words, tmp_path)
    assert (done.returncode, done.stderr.decode()) == (
        1,
        "The output can't be written: Bad file descriptor. Changes that the command made stay.\n",
    )


def test_a_closed_input_is_empty(tmp_path: Path) -> None:
    done = run_in_shell("<&-", ["load", "-"], tmp_path)
    assert (done.returncode, done.stderr.decode()) == (2, "-, line 1, column 1: the file has no content\n")
