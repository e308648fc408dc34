"""The journal of a cluster's mirror: what changed in it, in order of revision, for many readers.

A reader keeps a :class:`Cursor`, and the journal knows no readers. An entry can be read once the mirror's revision has
reached the entry's. It holds what the mirror saw, which may be several versions of a node at once: a reader that needs
each change reads the trail. An entry without any node is of one that was notified of and is absent: it may have come
and gone.

Entries point to the mirror's nodes and hold secrets: a reader redacts before anything leaves the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.domain.changes import Node
    from app.domain.facets import Tree


class Entry(NamedTuple):
    """One change of one node."""

    revision: int
    """Of the write that left ``after``; of an absent node, one at which it was absent. A write that the mirror saw only
    after its revision had passed has the next revision."""
    tree: Tree
    entity_id: str
    before: Node | None
    after: Node | None


@dataclass(frozen=True, slots=True)
class Cursor:
    """A reader's place in the journal."""

    load: int
    """Which copy of the cluster the mirror had: each load begins another."""
    revision: int
    """All entries up to it were read."""


@dataclass(frozen=True, slots=True)
class Page:
    """Entries in order of revision, and where to go on."""

    entries: Sequence[Entry]
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class TooOld:
    """Entries behind a cursor are gone, or the mirror was loaded again: anything may have changed."""

    cursor: Cursor
    """Where to go on, for a reader that now looks at the mirror itself."""


class Journal(Protocol):
    """The changes of one cluster's mirror."""

    def read(self, cursor: Cursor | None, size: int | None = None) -> Page | TooOld | None:
        """Return the entries behind a cursor; None before the first load.

        Args:
            cursor: How far the reader has read; None begins, and is too old.
            size: About how many entries, all where it is None. Those of one revision come together.
        """
