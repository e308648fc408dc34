"""Rows of text in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return lines with aligned columns, the header first."""
    table = [header, *rows]
    widths = [max(len(row[place]) for row in table) for place in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    )
