"""Patterns of names in the style of a shell, as the policy file has them."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Final

from confplane.domain.texts import clipped

if TYPE_CHECKING:
    from collections.abc import Iterable

_SPECIAL: Final = frozenset("*?[")


class Globs:
    """Patterns of names in the style of a shell (``*``, ``?``, ``[...]``), case-sensitive, matched as a whole."""

    __slots__ = ("_exact", "_patterns", "texts")

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(texts)
        self._exact = frozenset(text for text in self.texts if _SPECIAL.isdisjoint(text))
        self._patterns = tuple(
            re.compile(fnmatch.translate(text)) for text in self.texts if not _SPECIAL.isdisjoint(text)
        )

    def match(self, name: str) -> bool:
        """Return True if any of the patterns matches a name."""
        return name in self._exact or any(pattern.match(name) for pattern in self._patterns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Globs) and other.texts == self.texts

    def __hash__(self) -> int:
        return hash(self.texts)

    def __str__(self) -> str:
        return clipped(", ".join(self.texts), 300)
