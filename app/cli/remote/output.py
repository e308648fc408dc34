"""Output of commands over the API: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_UNBOUNDED: Final = 10_000
"""Columns of a table that no terminal shows: no value is ever cut off in a pipe."""
HIDDEN: Final = "(hidden)"
"""A secret's place in a table."""


def print_json(value: object) -> None:
    """Print a value as JSON; indented for a terminal, on one line otherwise."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None) -> None:
    """Print rows of text in columns; with colours on a terminal, and never cut off.

    Args:
        header: The names of the columns.
        rows: The cells, as many for each row.
        title: A line above the table.
    """
    from rich import box  # noqa: PLC0415 - JSON needs no rich
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_UNBOUNDED)
    if title is not None:
        console.print(Text(title, style="bold"))
    console.print(table)


def value_text(value: Any) -> str:
    """Return a value of a config or quota as people read it."""
    if value is None:
        return HIDDEN
    return value if isinstance(value, str) else json.dumps(value)
