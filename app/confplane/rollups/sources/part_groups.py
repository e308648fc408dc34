"""Groups of parts, so that fewer tasks read them, each task several parts one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    T = TypeVar("T")


def group_parts(parts: Sequence[T], most: int | None) -> list[list[T]]:
    """Group neighbouring parts into at most ``most`` lists of even length; one list per part if ``most`` is None."""
    count = len(parts) if most is None else min(most, len(parts))
    return [[*parts[len(parts) * at // count : len(parts) * (at + 1) // count]] for at in range(count)]
