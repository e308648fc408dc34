"""Files that are read again when they change: certificates, keys, the admin token, policy files."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from confplane.services.background import BackgroundService, BackgroundTask
from confplane.services.metrics import Sample
from confplane.services.operator_warnings import OperatorWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

logger = logging.getLogger(__name__)

POLL_S: Final = 1.0
"""Seconds between two polls of the files."""


class UnusableFileError(ValueError):
    """A file can't be used; the text has no secrets."""


_State = tuple[tuple[int, int, int] | None, ...]


class WatchedFiles:
    """Files that are used together.

    Args:
        name: The files' purpose, for people.
        paths: The files.
        reload: Reads all of them and puts their content to use; on an error the earlier content stays.
    """

    def __init__(self, name: str, paths: Sequence[Path], reload: Callable[[], None]) -> None:
        self.name = name
        self.fault: str | None = None
        self._paths = paths
        self._reload = reload
        self._state = self._identities()

    def check(self) -> None:
        """Read the files if one has changed, and again at each check while they can't be used."""
        state = self._identities()
        if state == self._state and self.fault is None:
            return
        self._state = state
        try:
            self._reload()
        except (OSError, ValueError) as error:
            # Not the error's text alone: that of a decoder holds what it could not decode.
            fault = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
            if isinstance(error, UnusableFileError):
                fault = str(error)
            if fault != self.fault:
                logger.warning("the %s can't be read again and stays as it was: %s", self.name, fault)
            self.fault = fault
        else:
            self.fault = None
            logger.info("the %s was read again", self.name)

    def _identities(self) -> _State:
        return tuple(_identity(path) for path in self._paths)


class FileWatch(BackgroundService):
    """Polls files in the background.

    Args:
        files: The files.
    """

    def __init__(self, files: Sequence[WatchedFiles]) -> None:
        self._files = files
        self._background = BackgroundTask(self._watch, name="watch of files")

    def warnings(self) -> list[OperatorWarning]:
        """Return a warning for each set of files that can't be used."""
        return [
            OperatorWarning(
                f"The {files.name} has changed and can't be used: the earlier one stays in use until the process ends",
                f"The {files.name} has changed and can't be used ({files.fault}): the earlier one stays in use until"
                " the process ends",
            )
            for files in self._files
            if files.fault is not None
        ]

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield Sample("files_unusable", sum(files.fault is not None for files in self._files))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            for files in self._files:
                await asyncio.to_thread(files.check)


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Return a sign of a file's content; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
