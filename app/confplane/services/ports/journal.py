"""The journal of a cluster's mirror: its changes in order of revision, for many readers.

A reader keeps a :class:`Cursor`, and the journal knows no readers. An entry can be read once the mirror's revision has
reached the entry's. An entry holds what the mirror saw, and may span several versions of a node: a reader that needs
each change reads the trail. An entry without any node stands for a notification of an absent node: the node may have
been made and deleted. An entry whose nodes are one and the same stands for a notification after the node's last write:
external writes are notified apart, so that every mirror that has passed the notification has the write.

Entries point to the mirror's nodes and hold secrets: a reader redacts before anything leaves the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.domain.changes import Node
    from confplane.domain.facets import Tree


class JournalEntry(NamedTuple):
    """One change of one node."""

    revision: int
    """The revision of the write that left ``after``; of an absent node, a revision at which it was absent. A write that
    the mirror saw only after its revision had passed has the next revision. Of a notification, its revision."""
    tree: Tree
    entity_id: str
    before: Node | None
    after: Node | None


@dataclass(frozen=True, slots=True)
class Cursor:
    """A reader's place in the journal."""

    load: int
    """The number of the mirror's load: each load makes a new copy of the cluster."""
    revision: int
    """The revision up to which all entries were read."""


@dataclass(frozen=True, slots=True)
class JournalPage:
    """Entries in order of revision, and the cursor after them."""

    entries: Sequence[JournalEntry]
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class ExpiredCursor:
    """The reply to a cursor whose entries are gone, or whose mirror was reloaded: anything may have changed."""

    cursor: Cursor
    """The cursor to continue from, for a reader that now reads the mirror itself."""


class Journal(Protocol):
    """The changes of one cluster's mirror."""

    @property
    def latest(self) -> int:
        """The revision of the latest readable entry; after a load, that of the mirror's newest node."""

    def read(self, cursor: Cursor | None, size: int | None = None) -> JournalPage | ExpiredCursor | None:
        """Return the entries after a cursor; None before the first load.

        Args:
            cursor: The position of the reader; None, for a first read, counts as expired.
            size: The approximate number of entries; None for all. Entries of one revision are never split.
        """

    @property
    def waiting(self) -> bool:
        """True while entries wait for the mirror's revision, or a node of the mirror is newer."""

    async def wait(self, cursor: Cursor | None) -> None:
        """Wait until :meth:`read` returns a later cursor."""
