"""Files of archives: their mode, their key, and what a failure leaves."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from confplane.cli import archive_files
from confplane.domain.errors import InvalidRequestError, UnavailableError
from tests.support.commands import run_here

if TYPE_CHECKING:
    from pathlib import Path

KEY: Final = "k" * 44


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    return path


def write(path: Path, key_file: Path | None = None) -> None:
    with archive_files.written(str(path), key_file) as file:
        file.write(b"archive")


def content(path: Path, key_file: Path | None = None) -> bytes:
    with archive_files.read(str(path), key_file) as file:
        return file.read()


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_only_the_owner_may_read_an_archive(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write(tmp_path / "backup")
    finally:
        os.umask(before)
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["backup"]


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_backup_that_fails_leaves_no_file(tmp_path: Path, key_file: Path, *, encrypted: bool) -> None:
    def fail() -> None:
        with archive_files.written(str(tmp_path / "backup"), key_file if encrypted else None) as file:
            file.write(b"half")
            raise UnavailableError("away")

    with pytest.raises(UnavailableError):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_an_encrypted_archive_needs_its_key(tmp_path: Path, key_file: Path) -> None:
    write(tmp_path / "backup", key_file)
    assert b"archive" not in (tmp_path / "backup").read_bytes()
    assert content(tmp_path / "backup", key_file) == b"archive"
    with pytest.raises(InvalidRequestError, match="is encrypted: name the file of its key"):
        content(tmp_path / "backup")
    key_file.write_text("x" * 44)
    with pytest.raises(InvalidRequestError, match="the key file is another one"):
        content(tmp_path / "backup", key_file)
    write(tmp_path / "plain")
    with pytest.raises(InvalidRequestError, match="is not encrypted: leave out --key-file"):
        content(tmp_path / "plain", key_file)


def test_an_archive_replaces_no_file(tmp_path: Path) -> None:
    (tmp_path / "backup").write_text("kept")
    with pytest.raises(InvalidRequestError, match="exists"):
        write(tmp_path / "backup")
    assert (tmp_path / "backup").read_text() == "kept"


def test_of_two_backups_to_one_name_the_first_that_ends_counts(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    with ExitStack() as second, ExitStack() as first:
        for stack, text in ((first, b"first"), (second, b"second")):
            stack.enter_context(archive_files.written(str(path), None)).write(text)
        first.close()
        assert content(path) == b"first"
        with pytest.raises(InvalidRequestError, match="exists"):
            second.close()
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("backup", b"first")]


def test_an_archive_follows_no_link_and_takes_over_no_open_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "known")
    other = tmp_path / "other"
    other.write_text("kept")
    (tmp_path / "backup.known.partial").symlink_to(other)
    (tmp_path / "second.known.partial").touch()
    for name in ("backup", "second"):
        with pytest.raises(InvalidRequestError, match="File exists"):
            write(tmp_path / name)
    assert other.read_text() == "kept"
    assert (tmp_path / "second.known.partial").read_bytes() == b""


@pytest.mark.parametrize(
    ("text", "problem"),
    [(None, "No such file"), (b"short", "fewer than 32 characters"), (b"\xff" * 40, "not a text file"), (b"", "fewer")],
)
def test_a_key_file_that_can_not_be_used_is_named(tmp_path: Path, text: bytes | None, problem: str) -> None:
    if text is not None:
        (tmp_path / "key").write_bytes(text)
    with pytest.raises(InvalidRequestError, match=f"--key-file: .*{problem}"):
        write(tmp_path / "backup", tmp_path / "key")
    assert not (tmp_path / "backup").exists()


@pytest.mark.parametrize("text", [b"", b"not an archive", b"\0" * 1024, b"confplane-backup-aes256gcm-1\n"])
def test_a_file_that_is_not_an_archive_has_an_exit_code(tmp_path: Path, key_file: Path, text: bytes) -> None:
    (tmp_path / "file").write_bytes(text)
    options = ["--key-file", str(key_file)] if b"confplane" in text else []
    said = run_here("verify", str(tmp_path / "file"), *options)
    assert (said.code, said.out, said.err.startswith("Not valid: ")) == (2, "", True)
