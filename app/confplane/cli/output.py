"""Output of all commands: text without control characters, tables and progress for people, JSON for programs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from confplane.domain.numbers import plain_number

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

    from rich.progress import Progress
    from typing_extensions import Self

HIDDEN: Final = "(hidden)"
"""Text shown for a secret in a table."""
ABSENT: Final = "(not set)"
NOT_KEPT: Final = "(not kept)"
"""Text shown for a value that the trail does not have: that of a secret, or of a write that was not observed."""
_COLOURS: Final = {"KEY": "cyan", "BEFORE": "red", "AFTER": "green"}
_FOLDED: Final = {
    *("", "AFTER", "BEFORE", "ENTITY", "KEYS", "LAST RUN", "NOTE", "OURS", "OWNER", "QUESTION", "REASON", "REMEDY"),
    *("RESOURCE", "RESULT", "RIGHT", "SOURCE", "THEIRS", "VALUE", "WARNINGS"),
}
"""Columns whose cells may be folded on a narrow terminal. Times, ids of changes and keys can be copied as they are."""
_LEAST: Final = 20
"""The least width of a column with folded cells."""
_PIECE: Final = 500
"""Rows that are printed together while more are read."""
_GAP: Final = "  "


_ITEM = TypeVar("_ITEM")
json_wanted: Final[ContextVar[bool]] = ContextVar("json_wanted", default=False)
"""True while a command with ``--json`` runs."""


def is_json() -> bool:
    """Return True while a command with ``--json`` runs."""
    return json_wanted.get()


def escape(text: str) -> str:
    """Return text whose control characters and direction marks are escaped as in JSON. Line breaks stay."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text that can't control a terminal, on standard output or on standard error."""
    typer.echo(escape(text), err=err, nl=nl)


def say(text: str, *, err: bool = False) -> None:
    """Print text for people; with ``--json`` on standard error."""
    echo(text, err=err or is_json())


def emit(**members: object) -> None:
    """Print a result for programs if the command has ``--json``."""
    if is_json():
        print_json(members)


def print_json(value: object) -> None:
    """Print a value as JSON; indented for a terminal, on one line otherwise."""
    echo(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def print_result(value: object, text: str, *, err: bool = True) -> None:
    """Print a result: as JSON if the command has ``--json``, and as a sentence otherwise."""
    if is_json():
        print_json(value)
    else:
        echo(text, err=err)


def print_error(text: str, code: int, **members: object) -> int:
    """Print an error on standard error, and return the exit code.

    Args:
        text: The error for people, with what to do next.
        code: The exit code.
        members: Further members of the error for programs: one line of JSON.
    """
    if is_json():
        text = json.dumps({"detail": text, "exitCode": code, **members}, ensure_ascii=False)
    echo(text, err=True)
    return code


def confirmed(question: str) -> bool:
    """Ask a question on standard error, and say that nothing was written unless the answer is yes."""
    try:
        if typer.confirm(question, err=True):
            return True
        echo("Nothing was written", err=True)
    except typer.Abort:
        echo("\nNothing was written. Where nobody answers, use --yes", err=True)
    return False


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
    with TablePrinter(header, right) as table:
        for row in rows:
            table.add(row)


async def print_items(
    items: AsyncIterator[_ITEM],
    header: Sequence[str],
    rows: Callable[[_ITEM], Iterable[Sequence[str]]],
    *,
    noun: str,
    empty: str,
    pages: bool = False,
) -> None:
    """Print the items of a list while they are read, as a table or as lines of JSON.

    Args:
        items: The items.
        header: The names of the columns.
        rows: Returns the rows of an item.
        noun: The items' plural, for the count of a long list.
        empty: The message if there are no items.
        pages: Show a long table in a pager.
    """
    found = False
    with TablePrinter(header, pages=pages, shows_empty=False) as table:
        async for item in show_count(items, noun):
            found = True
            if is_json():
                print_json(item)
            else:
                for row in rows(item):
                    table.add(row)
    if not (found or is_json()):
        echo(empty, err=True)


async def first(items: AsyncIterable[_ITEM], limit: int) -> AsyncIterator[_ITEM]:
    """Yield the first items of a list."""
    taken = 0
    async for item in items:
        yield item
        taken += 1
        if taken == limit:
            return


class TablePrinter:
    """Prints rows as they come; a context manager that prints the last rows at its end.

    The first rows decide the widths of the columns. Output that does not go to a terminal has plain columns that are
    never cut off. On a terminal that is too narrow for the columns, long texts are folded; if that does not suffice,
    each cell has a line of its own. A row whose first cell is empty continues the row before it.

    Args:
        header: The names of the columns.
        right: The columns that are aligned to the right.
        pages: Show a table that is longer than the terminal in a pager.
        shows_empty: Print the header of a table without rows.
    """

    def __init__(
        self, header: Sequence[str], right: Iterable[str] = (), *, pages: bool = False, shows_empty: bool = True
    ) -> None:
        self._header = header
        self._right = {*right}
        self._rows: list[list[str]] = []
        self._widths: list[int] | None = None
        self._shows_empty = shows_empty
        self._is_begun = False
        self._is_terminal = sys.stdout.isatty()
        self._is_coloured = self._is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._pages = pages and self._is_terminal and sys.stdin.isatty()
        self._pager: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and (self._rows or (self._shows_empty and not self._is_begun)):
            self._print()
        if self._pager is not None:
            with suppress(OSError):  # the pager has ended
                self._pager.communicate()

    def add(self, row: Sequence[str]) -> None:
        """Add a row; several are printed together."""
        self._rows.append([cell if cell.isprintable() else escape(cell).replace("\n", "\\n") for cell in row])
        if len(self._rows) >= _PIECE:
            self._print()

    def _print(self) -> None:
        rows, self._rows = self._rows, []
        lines: list[str] = []
        if not self._is_begun:
            self._widths = self._fitted(rows)
            if self._widths is not None:
                lines += self._lines(self._header, self._widths, is_head=True)
        if self._widths is None:
            lines += self._records(rows)
        else:
            lines += [line for row in rows for line in self._lines(row, self._widths, is_head=False)]
        is_first, self._is_begun = not self._is_begun, True
        self._write("\n".join(lines), is_long=is_first and len(lines) >= shutil.get_terminal_size().lines)

    def _write(self, text: str, *, is_long: bool) -> None:
        if self._pages and is_long:
            self._pager = _start_pager()
        if self._pager is None or self._pager.stdin is None:
            typer.echo(text, color=self._is_coloured or None)
            return
        try:
            self._pager.stdin.write(f"{text}\n")
            self._pager.stdin.flush()
        except BrokenPipeError:  # the reader has seen enough
            raise typer.Exit from None

    def _fitted(self, rows: Sequence[Sequence[str]]) -> list[int] | None:
        """Return the widths of the columns; None if the terminal is too narrow for any."""
        widths = [max(map(_width, column)) for column in zip(self._header, *rows, strict=True)]
        if not self._is_terminal:
            return widths
        available = shutil.get_terminal_size().columns - len(_GAP) * (len(self._header) - 1)
        excess = sum(widths) - available
        for place in sorted(range(len(widths)), key=lambda each: -widths[each]):
            name = self._header[place]
            if excess > 0 and name in _FOLDED:
                least = max(_LEAST, len(name))
                if name == "KEYS":  # is folded between keys alone
                    least = max(least, *(_width(word) for row in rows for word in row[place].split(" ")))
                taken = min(excess, max(0, widths[place] - least))
                widths[place] -= taken
                excess -= taken
        return widths if excess <= 0 else None

    def _lines(self, row: Sequence[str], widths: Sequence[int], *, is_head: bool) -> Iterator[str]:
        folded = [
            _folded(cell, width) if self._is_terminal and name in _FOLDED else [cell]
            for name, cell, width in zip(self._header, row, widths, strict=True)
        ]
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
        for number, row in enumerate(rows):
            if (self._is_begun or number) and row[0]:
                yield ""
            for name, cell in zip(self._header, row, strict=True):
                if cell:
                    head = f"{name:{width}}"
                    yield f"{typer.style(head, bold=True) if self._is_coloured else head}{_GAP}{cell}"


def _start_pager() -> subprocess.Popen[str] | None:
    """Start the program of ``PAGER``, or else less. Returns None if there is none, or ``PAGER`` is empty."""
    import shlex  # noqa: PLC0415 - for long tables on a terminal alone
    import subprocess  # noqa: PLC0415 - as above

    words = shlex.split(os.environ.get("PAGER", "less"))
    if not words or shutil.which(words[0]) is None:
        return None
    environment = {"LESS": "FRX", **os.environ}  # colours, no empty screen, and no prompt after a short table
    return subprocess.Popen(words, stdin=subprocess.PIPE, text=True, encoding="utf-8", env=environment)  # noqa: S603 - the user's own program


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
    if isinstance(value, str):
        return value
    return plain_number(value) if isinstance(value, float) else json.dumps(value)


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
            "At that time, external writes were under way that were observed as one. The content before them is shown,"
            f" of revision {revision}.",
            err=True,
        )


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
