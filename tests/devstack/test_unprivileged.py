"""Postgres started by root below a path that is closed to everybody else."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from confplane.devstack import unprivileged

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands a process to another user")
def test_it_reaches_binaries_below_a_closed_directory(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for name in ("test", "id"):
        found = shutil.which(name)
        assert found is not None
        shutil.copy(found, closed / name)

    def run(*argv: str) -> str:
        command = unprivileged.command(argv, needs=(closed,))
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert run(str(closed / "id"), "-u") != "0"
    # By access(2), as initdb looks for the server beside it.
    run(str(closed / "test"), "-x", str(closed / "id"))
