"""Pagination: pages of the rows that a caller may see, made from pages of all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

T = TypeVar("T")
_SHARE: Final = 1_000
"""Rows that are read at once."""
_MOST: Final = 10
"""Reads for one page, after which the page ends, full or not."""


class ReadPage(Protocol[T]):
    """Reads a page of everything."""

    async def __call__(self, *, page_size: int, after: UUID | None) -> tuple[list[T], UUID | None]:
        """Return rows after an id, and the cursor of the next page."""


async def read_all(read: ReadPage[T]) -> list[T]:
    """Return the rows of all pages."""
    found: list[T] = []
    after = None
    while True:
        rows, after = await read(page_size=_SHARE, after=after)
        found += rows
        if after is None:
            return found


async def visible_page(
    read: ReadPage[T],
    is_visible: Callable[[T], bool],
    id_of: Callable[[T], UUID],
    page_size: int,
    after: UUID | None,
) -> tuple[list[T], UUID | None]:
    """Return a page of the visible rows, and the cursor of the next.

    The page may be short, even empty, and have a cursor nevertheless: so its cost is bounded.
    """
    found: list[T] = []
    for _ in range(_MOST):
        rows, cursor = await read(page_size=_SHARE, after=after)
        for place, row in enumerate(rows):
            if is_visible(row):
                found.append(row)
            if len(found) == page_size:
                return found, None if cursor is None and place == len(rows) - 1 else id_of(row)
        if cursor is None:
            return found, None
        after = cursor
    return found, after
