"""Output of all commands: text without control characters, tables and progress for people, JSON for programs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

    from rich.progress import Progress

HIDDEN: Final = "(hidden)"
"""Text shown for a secret in a table."""
ABSENT: Final = "(not set)"
NOT_KEPT: Final = "(not kept)"
"""Text shown for a value that the trail does not have: that of a secret, or of a write that was not observed."""
_COLOURS: Final = {"KEY": "cyan", "BEFORE": "red", "AFTER": "green"}
_FOLDED: Final = {
    *("", "AFTER", "BEFORE", "ENTITY", "GRANT", "KEYS", "NOTE", "OURS", "OWNER", "REASON", "RESOURCE", "RESULT"),
    *("SOURCE", "THEIRS", "VALUE", "WARNINGS"),
}
"""Columns whose cells may be folded on a narrow terminal. Times, ids and keys can be copied as they are."""
_LEAST: Final = 20
"""The least width of a column with folded cells."""
_PIECE: Final = 500
"""Rows that are printed together while more are read; they have the same widths."""
_GAP: Final = "  "


errors_are_json: Final[ContextVar[bool]] = ContextVar("errors_are_json", default=False)
"""True while a command with ``--json`` runs."""


def escape(text: str) -> str:
    """Return text whose control characters and direction marks are escaped as in JSON. Line breaks stay."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text that can't control a terminal, on standard output or on standard error."""
    typer.echo(escape(text), err=err, nl=nl)


def print_json(value: object) -> None:
    """Print a value as JSON; indented for a terminal, on one line otherwise."""
    echo(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def print_error(text: str, code: int, **members: object) -> int:
    """Print an error on standard error, and return the exit code.

    Args:
        text: The error for people, with what to do next.
        code: The exit code.
        members: Further members of the error for programs: one line of JSON.
    """
    if errors_are_json.get():
        text = json.dumps({"detail": text, "exitCode": code, **members}, ensure_ascii=False)
    echo(text, err=True)
    return code


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None, right: Iterable[str] = ()
) -> None:
    """Print rows of text in columns, as :class:`TablePrinter` does.

    Args:
        header: The names of the columns.
        rows: The cells of each row, as many as columns.
        title: A line above the table.
        right: The columns that are aligned to the right.
    """
    if title is not None:
        echo(title)
    table = TablePrinter(header, right)
    for row in rows:
        table.add(row)
    table.finish()


class TablePrinter:
    """Prints rows as they come.

    Output that does not go to a terminal has plain columns that are never cut off. On a terminal that is too narrow
    for the columns, long texts are folded; if that does not suffice, each cell has a line of its own. A row whose first
    cell is empty continues the row before it.

    Args:
        header: The names of the columns.
        right: The columns that are aligned to the right.
    """

    def __init__(self, header: Sequence[str], right: Iterable[str] = ()) -> None:
        self._header = header
        self._right = {*right}
        self._rows: list[list[str]] = []
        self._widths = [len(name) for name in header]
        self._least = [max(_LEAST, len(name)) for name in header]
        self._printed = False
        self._has_records = False
        self._is_terminal = sys.stdout.isatty()
        self._is_coloured = self._is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def add(self, row: Sequence[str]) -> None:
        """Add a row; several are printed together."""
        self._rows.append([cell if cell.isprintable() else escape(cell).replace("\n", "\\n") for cell in row])
        if len(self._rows) >= _PIECE:
            self._print()

    def finish(self) -> None:
        """Print the rows that are left, and the header if there are none."""
        if self._rows or not self._printed:
            self._print()

    def _print(self) -> None:
        rows = self._rows
        self._rows = []
        needed = [max(map(_width, column)) for column in zip(self._header, *rows, strict=True)]
        self._widths = [max(pair) for pair in zip(self._widths, needed, strict=True)]
        for place, name in enumerate(self._header):
            if name == "KEYS":  # is folded between keys alone
                words = (word for row in rows for word in row[place].split(" "))
                self._least[place] = max(self._least[place], *map(_width, words), 0)
        widths = self._fitted()
        if widths is None or self._has_records:
            self._has_records = True
            lines = [*self._records(rows)]
        else:
            lines = [] if self._printed else [*self._lines(self._header, widths, is_head=True)]
            lines += [line for row in rows for line in self._lines(row, widths, is_head=False)]
        self._printed = True
        typer.echo("\n".join(lines), color=self._is_coloured or None)

    def _fitted(self) -> list[int] | None:
        """Return the widths of the columns; None if the terminal is too narrow for any."""
        if not self._is_terminal:
            return self._widths
        available = shutil.get_terminal_size().columns - len(_GAP) * (len(self._header) - 1)
        widths, excess = [*self._widths], sum(self._widths) - available
        for place in sorted(range(len(widths)), key=lambda each: -widths[each]):
            if excess > 0 and self._header[place] in _FOLDED:
                taken = min(excess, max(0, widths[place] - self._least[place]))
                widths[place] -= taken
                excess -= taken
        return widths if excess <= 0 else None

    def _lines(self, row: Sequence[str], widths: Sequence[int], *, is_head: bool) -> Iterator[str]:
        folded = [_folded(cell, width) for cell, width in zip(row, widths, strict=True)]
        for number in range(max(map(len, folded))):
            cells = [cell[number] if number < len(cell) else "" for cell in folded]
            padded = [
                " " * (width - _width(cell)) + cell if name in self._right else cell + " " * (width - _width(cell))
                for name, cell, width in zip(self._header, cells, widths, strict=True)
            ]
            padded[-1] = padded[-1].rstrip()
            yield self._joined(padded, is_head=is_head) if self._is_coloured else _GAP.join(padded).rstrip()

    def _joined(self, cells: Sequence[str], *, is_head: bool) -> str:
        styled = [
            typer.style(cell, bold=True)
            if is_head
            else typer.style(cell, fg=_COLOURS[name])
            if name in _COLOURS
            else cell
            for name, cell in zip(self._header, cells, strict=True)
        ]
        return _GAP.join(styled)

    def _records(self, rows: Sequence[Sequence[str]]) -> Iterator[str]:
        width = max(map(len, self._header))
        for row in rows:
            if self._printed and row[0]:
                yield ""
            self._printed = True
            for name, cell in zip(self._header, row, strict=True):
                if cell:
                    head = f"{name:{width}}"
                    yield f"{typer.style(head, bold=True) if self._is_coloured else head}{_GAP}{cell}"


def _width(text: str) -> int:
    """Return the columns that text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - most texts are ASCII

    return cell_len(text)


def _folded(text: str, width: int) -> list[str]:
    """Return the lines of a cell."""
    if _width(text) <= width:
        return [text]
    from rich.cells import chop_cells  # noqa: PLC0415 - few tables are too wide

    lines, line = [], ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if _width(joined) <= width:
            line = joined
            continue
        lines += [line] if line else []
        *whole, line = chop_cells(word, width) or [""]
        lines += whole
    return [*lines, line]


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
        echo(
            "The moment is within writes of others that were seen as one; shown is the content before them, of the"
            f" revision {revision}",
            err=True,
        )


_ITEM = TypeVar("_ITEM")


async def show_count(items: AsyncIterator[_ITEM], noun: str, *, patience_s: float = 1.0) -> AsyncIterator[_ITEM]:
    """Pass items on. On a terminal that does not show the items themselves, show their number after a while.

    Args:
        items: The items of a list.
        noun: Their plural, such as ``entities``.
        patience_s: Seconds after which the number is shown.
    """
    if not sys.stderr.isatty() or sys.stdout.isatty():
        async for item in items:
            yield item
        return
    import asyncio  # noqa: PLC0415 - most commands do not need it, and it takes a tenth of their start

    progress = bars(transient=True)
    task = progress.add_task(noun, total=None)
    timer = asyncio.get_running_loop().call_later(patience_s, progress.start)
    try:
        async for item in items:
            progress.advance(task)
            yield item
    finally:
        timer.cancel()
        progress.stop()


@contextmanager
def bar(noun: str, total: int | None) -> Iterator[Callable[[], None]]:
    """Show a bar on standard error if that is a terminal, and yield the function that advances it by one."""
    with bars() as progress:
        task = progress.add_task(noun, total=total)
        yield lambda: progress.advance(task)


def bars(*, transient: bool = False) -> Progress:
    """Return bars for standard error, shown if that is a terminal; those that are transient vanish at the end.

    Lines that are printed to a file still reach the file.
    """
    from rich.console import Console  # noqa: PLC0415 - few commands show progress
    from rich.progress import (  # noqa: PLC0415 - as above
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(
        *columns,
        console=console,
        redirect_stdout=sys.stdout.isatty(),
        disable=not console.is_terminal,
        transient=transient,
    )
