"""A clock that tests move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class Clock(Generic[T]):
    """Returns the same time until a test changes it."""

    now: T

    def __call__(self) -> T:
        return self.now
