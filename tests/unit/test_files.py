from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from confplane.files import atomic_write, open_output


def test_the_file_is_replaced_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "configs.yaml"
    path.write_text("before")
    with atomic_write(path) as file:
        file.write("é\n")
        assert path.read_text() == "before"
    assert path.read_bytes() == "é\n".encode()
    assert [each.name for each in tmp_path.iterdir()] == ["configs.yaml"]


def test_what_reaches_the_disk_before_the_former_file_is_replaced_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[int, bool]] = []
    path = tmp_path / "configs.yaml"
    monkeypatch.setattr(os, "fsync", lambda descriptor: found.append((os.fstat(descriptor).st_size, path.exists())))
    with atomic_write(path) as file:
        file.write("é\n")
    assert found == [(3, False)]


@pytest.mark.parametrize(("mode", "rights"), [(0o666, 0o640), (0o600, 0o600)])
def test_its_rights_are_those_of_the_mode_and_the_umask(tmp_path: Path, mode: int, rights: int) -> None:
    umask = os.umask(0o027)
    try:
        with atomic_write(tmp_path / "file", mode=mode):
            pass
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == rights


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_only_the_former_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "configs.yaml"
    path.write_text("before")
    with pytest.raises(error):
        _fail(path, error)
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["configs.yaml"]


def _fail(path: Path, error: type[BaseException]) -> None:
    with atomic_write(path) as file:
        file.write("half")
        raise error


def test_the_output_of_a_command_replaces_a_file_behind_a_link(tmp_path: Path) -> None:
    path, link, before = tmp_path / "configs.yaml", tmp_path / "link", tmp_path / "before"
    path.write_text("before")
    before.hardlink_to(path)
    link.symlink_to(path)
    with open_output(link) as file:
        file.write("after")
    assert (link.is_symlink(), path.read_text(), before.read_text()) == (True, "after", "before")


def test_the_output_of_a_command_may_be_a_device() -> None:
    with open_output(Path(os.devnull)) as file:
        file.write("text")
    assert Path(os.devnull).is_char_device()
