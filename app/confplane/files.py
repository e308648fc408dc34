"""Atomic replacement of files: a reader never sees a partly written file."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def atomic_write(path: Path, *, mode: int = 0o666) -> Iterator[TextIO]:
    r"""Open a new file that replaces another one when it is complete. After a failure the other file is unchanged.

    Args:
        path: The file, which may be absent; its directory must exist.
        mode: The mode of the file, reduced by the process's umask.

    Text is UTF-8, and lines end with ``\n``.

    Raises:
        OSError: The file can't be written.
    """
    made = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        made.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            made.unlink()
        raise


@contextlib.contextmanager
def open_output(path: Path) -> Iterator[TextIO]:
    """Open a file for the output of a command. It replaces another one as :func:`atomic_write` does.

    A link stays a link. A pipe or a device, such as ``/dev/stdout``, is written directly.

    Raises:
        OSError: The file can't be written.
    """
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        return
    with atomic_write(path.resolve()) as file:
        yield file
