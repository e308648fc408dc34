"""The progress bar of a command with a known number of steps."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def bar(noun: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar on standard error if that is a terminal, and yield the function that advances it by one.

    Lines that are printed to a file during this time still reach the file.
    """
    columns = (TextColumn(noun), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    progress = Progress(*columns, console=console, redirect_stdout=sys.stdout.isatty(), disable=not console.is_terminal)
    with progress:
        task = progress.add_task("", total=total)
        yield lambda: progress.advance(task)
