"""Progress display of commands that wait for many pages."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

_ITEM = TypeVar("_ITEM")


async def show_count(items: AsyncIterator[_ITEM], noun: str, *, patience_s: float = 1.0) -> AsyncIterator[_ITEM]:
    """Pass items on. On a terminal, show their number after a while.

    Args:
        items: The items of a list.
        noun: Their plural, such as ``entities``.
        patience_s: Seconds after which the number is shown.
    """
    if not sys.stderr.isatty():
        async for item in items:
            yield item
        return
    with _shown(noun, patience_s) as advance:
        async for item in items:
            advance()
            yield item


@contextmanager
def _shown(noun: str, patience_s: float) -> Iterator[Callable[[], None]]:
    from rich.console import Console  # noqa: PLC0415 - pipes need no rich
    from rich.progress import Progress, SpinnerColumn, TextColumn  # noqa: PLC0415 - as above

    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.completed} {task.description}"),
        console=Console(stderr=True),
        redirect_stdout=sys.stdout.isatty(),
        transient=True,
    )
    task = progress.add_task(noun, total=None)
    timer = asyncio.get_running_loop().call_later(patience_s, progress.start)
    try:
        yield lambda: progress.advance(task)
    finally:
        timer.cancel()
        progress.stop()
