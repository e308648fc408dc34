"""The files of archives: readable by their owner only, complete or absent, encrypted on request."""

from __future__ import annotations

import io
import os
import secrets
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

from confplane.crypto.archives import MAGIC, DecryptedReader, EncryptedWriter, read_archive_key
from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAM: Final = "-"
_MODE: Final = 0o600


@contextmanager
def written(name: str, key_file: Path | None) -> Iterator[IO[bytes]]:
    """Open a new file, which appears under its name once it is complete.

    Args:
        name: The name, or - for standard output.
        key_file: The file with the key of the encryption.

    Raises:
        InvalidRequestError: The file exists, or can't be written.
    """
    key = None if key_file is None else read_archive_key(key_file)
    if name == STREAM:
        if sys.stdout.isatty():
            raise InvalidRequestError("The archive is not text: send standard output to a file or to a command.")
        with _encrypted(sys.stdout.buffer, key) as file:
            yield file
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    # Another command may be writing an archive of the same name.
    partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
    _check_new(path)
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _MODE)
        # The umask may have removed rights of the owner.
        os.fchmod(descriptor, _MODE)
    except OSError as error:
        raise InvalidRequestError(f"{partial} can't be written: {error.strerror}.") from None
    try:
        with os.fdopen(descriptor, "wb") as raw:
            with _encrypted(raw, key) as file:
                yield file
            raw.flush()
            os.fsync(raw.fileno())
        _check_new(path)
        partial.rename(path)
    except OSError as error:
        raise InvalidRequestError(f"{partial} can't be written: {error.strerror}.") from None
    finally:
        with suppress(OSError):
            partial.unlink()


def _check_new(path: Path) -> None:
    if path.exists():
        raise InvalidRequestError(f"{path} exists. Give the name of a new file.")


@contextmanager
def _encrypted(file: IO[bytes], key: bytes | None) -> Iterator[IO[bytes]]:
    if key is None:
        yield file
        return
    encrypted = EncryptedWriter(file, key)
    yield cast("IO[bytes]", encrypted)
    # An archive that fails has no last chunk.
    encrypted.close()


@contextmanager
def read(name: str, key_file: Path | None) -> Iterator[IO[bytes]]:
    """Open an archive.

    Args:
        name: The name, or - for standard input.
        key_file: The file with the key of the encryption.

    Raises:
        InvalidRequestError: The file can't be read, or it is encrypted and a key is missing.
    """
    key = None if key_file is None else read_archive_key(key_file)
    try:
        file: Any = sys.stdin.buffer if name == STREAM else Path(name).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise InvalidRequestError(f"{name} can't be read: {error.strerror}.") from None
    with file:
        begin = file.peek(len(MAGIC))[: len(MAGIC)]
        if begin != MAGIC:
            if key is not None:
                raise InvalidRequestError(f"{name} is not encrypted: leave out --key-file.")
            yield file
            return
        if key is None:
            raise InvalidRequestError(f"{name} is encrypted: name the file of its key with --key-file.")
        file.read(len(MAGIC))
        yield io.BufferedReader(DecryptedReader(file, key))
