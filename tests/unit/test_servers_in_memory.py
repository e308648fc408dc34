"""The directories in memory of the tests' own servers: nothing stays in them but logs, whoever is killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support import servers

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for the memory."""
    made = tmp_path / "memory"
    made.mkdir()
    monkeypatch.setattr(servers, "MEMORY", made)
    monkeypatch.setattr(servers, "ENOUGH_BYTES", 0)
    return made


def test_files_are_removed_and_logs_are_kept_also_after_a_failure(memory: Path, tmp_path: Path) -> None:
    with contextlib.suppress(RuntimeError), servers.in_memory(tmp_path) as directory:
        assert directory.parent == memory
        (directory / "data").mkdir()
        (directory / "postgres.log").write_text("started")
        raise RuntimeError("amid")
    assert [*memory.iterdir()] == []
    assert (tmp_path / "postgres.log").read_text() == "started"


def test_what_a_killed_process_left_is_removed_and_nothing_else(memory: Path, tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"], start_new_session=True)
    gone.wait()
    for name in (f"confplane-tests-{gone.pid}-a", f"confplane-tests-{os.getpid()}-b", "of-others"):
        (memory / name / "data").mkdir(parents=True)
    with servers.in_memory(tmp_path) as directory:
        left = {path.name for path in memory.iterdir()} - {directory.name}
    assert left == {f"confplane-tests-{os.getpid()}-b", "of-others"}


@pytest.mark.parametrize("lacks", ["memory", "room"])
def test_without_memory_the_directory_is_that_on_disk(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    if lacks == "room":
        monkeypatch.setattr(servers, "ENOUGH_BYTES", 2**60)
    else:
        memory.rmdir()
    with servers.in_memory(tmp_path) as directory:
        assert directory == tmp_path
