"""The destination of an export: standard output, or a file that gets its name once it is complete."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from confplane.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def open_destination(path: Path | None) -> Iterator[TextIO]:
    """Open a file, or standard output for None; after a failure, an existing file is unchanged.

    Raises:
        OSError: The file can't be written.
    """
    if path is None:
        yield sys.stdout
        sys.stdout.flush()  # a closed pipe is noticed here at the latest
        return
    if path.exists() and not path.is_file():  # a pipe, or /dev/stdout
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
        return
    with atomic_write(path.resolve()) as stream:  # a link stays a link
        yield stream
