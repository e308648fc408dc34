"""Standard output that can't be written: a full disk and a reader that has left, for commands of every kind."""

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
    profiles = tmp_path / "profiles.yaml"
    profiles.write_text("profiles: {a: {url: 'http://a.test'}}\n")
    return subprocess.run(
        [sys.executable, "-m", "confplane", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT / "app"), "CONFPLANE_PROFILES": str(profiles)},
        stdout=output,
        stderr=subprocess.PIPE,
        check=False,
    )


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
