"""Output of all commands: tables and progress for people, JSON for programs."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence


HIDDEN: Final = "(hidden)"
"""Text shown for a secret in a table."""
ABSENT: Final = "(not set)"
NOT_KEPT: Final = "(not kept)"
"""Text shown for a value that the trail does not have: that of a secret, or of a write that was not observed."""
_STYLES: Final = {"KEY": "cyan", "BEFORE": "red", "AFTER": "green", "ENTITY": "bold"}


def print_json(value: object) -> None:
    """Print a value as JSON; indented for a terminal, on one line otherwise."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None) -> None:
    """Print rows of text in columns: with colours on a terminal, otherwise plain and never truncated.

    Args:
        header: The names of the columns.
        rows: The cells of each row, as many as columns.
        title: A line above the table.
    """
    if not sys.stdout.isatty():
        typer.echo("\n".join([*([] if title is None else [title]), columns(header, [_on_lines(row) for row in rows])]))
        return
    from rich import box  # noqa: PLC0415 - pipes need no rich
    from rich.console import Console  # noqa: PLC0415 - pipes need no rich
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for name in header:
        table.add_column(name, overflow="fold", style=_STYLES.get(name, ""))
    for row in rows:
        table.add_row(*map(Text, _on_lines(row)))
    console = Console(highlight=False)
    if title is not None:
        console.print(Text(title, style="bold"))
    console.print(table)


def value_text(value: Any) -> str:
    """Return a value of a config or quota in readable form."""
    if value is None:
        return HIDDEN
    return value if isinstance(value, str) else json.dumps(value)


def side_text(change: Mapping[str, Any], side: str) -> str:
    """Return one side of a key's change, ``before`` or ``after``."""
    if change.get("secret"):
        return HIDDEN
    if change[side] is None:
        return NOT_KEPT if change.get("notKept") else ABSENT
    return value_text(change[side])


def sides_of(change: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return a key with its values before and after."""
    return change["key"], side_text(change, "before"), side_text(change, "after")


def print_changes(changes: Iterable[Mapping[str, Any]]) -> None:
    """Print keys with their values before and after."""
    print_table(("KEY", "BEFORE", "AFTER"), map(sides_of, changes))


def author_text(change: Mapping[str, Any]) -> str:
    """Return the author of a change, with the kind if it was not made through this service."""
    principal: str = change["principal"]
    return principal if change["kind"] == "change" else f"{principal} ({change['kind']})"


def reason_text(change: Mapping[str, Any]) -> str:
    """Return the reason and the ticket of a change."""
    return " ".join(filter(None, (change["reason"], change["ticket"])))


def note_inexact(moments: Iterable[Mapping[str, Any]]) -> None:
    """Print a note on standard error if a past moment is within external writes that were observed as one."""
    for revision in dict.fromkeys(each["revision"] for each in moments if not each["exact"]):
        typer.echo(
            "The moment is within writes of others that were seen as one; shown is the content before them, of the"
            f" revision {revision}",
            err=True,
        )


def _on_lines(row: Sequence[str]) -> list[str]:
    """Return cells without line breaks and terminal control characters."""
    return ["".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in cell) for cell in row]


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return lines with aligned columns, the header first."""
    table = [header, *rows]
    widths = [max(len(row[place]) for row in table) for place in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    )


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
