"""The mirror's journal: a bounded ring of entries, and those that wait for the mirror's revision.

The mirror's changes may be ahead of its revision: own commits are applied as their replies arrive, before older
notifications are read. Entries wait in a heap until the revision has reached theirs, so they enter the ring in order.

An entry has the first revision at which any write that it holds may have been made: a node that was read for a
notification may be several writes newer than before. Writes seen late (without a notification, a removal) get the next
revision. So a reader that has passed a revision was given every write up to that revision.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from confplane.services.ports.journal import Cursor, ExpiredCursor, Journal, JournalEntry, JournalPage

if TYPE_CHECKING:
    from confplane.domain.changes import Node
    from confplane.domain.facets import Tree

MOST: Final = 50_000
"""The greatest number of entries."""
MOST_BYTES: Final = 32 * 2**20
"""Bytes of all nodes that entries point to, approximately; most of the nodes are the mirror's own as well."""
_LEFT: Final = 7 / 8
"""Share of the bounds that remains when the oldest entries are dropped: many at once, so that each costs little."""
_ENTRY_BYTES: Final = 200
_NODE_BYTES: Final = 150


class MirrorJournal(Journal):
    """The journal of a mirror, in memory.

    Args:
        most: The greatest number of entries.
        most_bytes: The greatest number of bytes of the nodes in them, approximately.
    """

    def __init__(self, *, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self.most = most
        self._most_bytes = most_bytes
        self._load = 0
        self._revision = 0
        self._floor = 0
        self._entries: list[JournalEntry] = []
        self._ahead: list[tuple[int, int, JournalEntry]] = []
        self._order = itertools.count()
        self._bytes = 0
        self._newest = 0
        self._readers: list[asyncio.Future[None]] = []
        self._latest = 0

    # -- reading

    @property
    @override
    def latest(self) -> int:
        """The revision of the latest entry that can be read; behind a load, that of the mirror's newest node."""
        return self._latest

    @override
    def read(self, cursor: Cursor | None, size: int | None = None) -> JournalPage | ExpiredCursor | None:
        if not self._load:
            return None
        if cursor is None or cursor.load != self._load or cursor.revision < self._floor:
            return ExpiredCursor(Cursor(self._load, self._revision))
        entries = self._entries
        first = bisect_right(entries, cursor.revision, key=_revision)
        if size is None or len(entries) - first <= size:
            return JournalPage(entries[first:], Cursor(self._load, max(cursor.revision, self._revision)))
        revision = entries[first + size - 1].revision
        last = bisect_right(entries, revision, lo=first, key=_revision)
        return JournalPage(entries[first:last], Cursor(self._load, revision))

    @property
    @override
    def waiting(self) -> bool:
        return self._revision < self._newest

    @override
    async def wait(self, cursor: Cursor | None) -> None:
        while self._load == 0 if cursor is None else cursor.load == self._load and cursor.revision >= self._revision:
            reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._readers.append(reader)
            await reader

    def _wake(self) -> None:
        if self._readers:
            readers, self._readers = self._readers, []
            for reader in readers:
                if not reader.done():
                    reader.set_result(None)

    # -- writing, by the mirror

    def begin(self, revision: int, latest: int | None = None) -> None:
        """Begin again with a copy that was loaded at this revision: every cursor is too old.

        ``latest`` is the revision of the newest node; None: it is not known.
        """
        self._load += 1
        self._latest = revision if latest is None else latest
        self._revision = self._floor = revision
        self._newest = max(revision, self._latest)
        self._entries.clear()
        self._ahead.clear()
        self._bytes = 0
        self._wake()

    def record(self, tree: Tree, entity_id: str, before: Node | None, after: Node | None, seen_at: int = 0) -> None:
        """Record a change of a node.

        Args:
            tree: The node's tree.
            entity_id: The node's entity.
            before: The mirror's node before.
            after: The mirror's node now; None where it is absent.
            seen_at: The revision of the notification that an absent node was read for, where there is one; or of one
                that came after the last write of a node, which is ``before`` and ``after`` then.
        """
        # The first revision at which any of its writes may have been made: a reader that is past a revision must have
        # been given every write up to that revision, and a node may be several writes newer than the mirror's.
        revision = max(self._revision + 1, 0 if before is None else before.mzxid + 1)
        if after is None or after is before:
            revision = max(revision, seen_at)
        elif _is_next(before, after):
            revision = max(revision, after.mzxid)
        self._newest = max(self._newest, revision, 0 if after is None else after.mzxid)
        entry = JournalEntry(revision, tree, entity_id, before, after)
        heapq.heappush(self._ahead, (revision, next(self._order), entry))
        self._bytes += _size(entry)
        if self._above(1):
            self._shrink()

    def advance(self, revision: int) -> None:
        """Move the entries that the mirror's revision has reached into the ring."""
        self._revision = max(self._revision, revision)
        ahead = self._ahead
        while ahead and ahead[0][0] <= revision:
            entry = heapq.heappop(ahead)[2]
            self._entries.append(entry)
            self._latest = max(self._latest, entry.revision)
        self._wake()

    def _above(self, share: float) -> bool:
        count = len(self._entries) + len(self._ahead)
        return count > self.most * share or self._bytes > self._most_bytes * share

    def _shrink(self) -> None:
        """Drop the oldest entries. With too many waiting entries, drop all: anything may have changed."""
        entries, dropped = self._entries, 0
        count = len(entries) + len(self._ahead)
        while dropped < len(entries) and (
            count - dropped > self.most * _LEFT or self._bytes > self._most_bytes * _LEFT
        ):
            self._bytes -= _size(entries[dropped])
            dropped += 1
        if dropped:
            self._floor = entries[dropped - 1].revision
            del entries[:dropped]
        if self._above(1):
            self.begin(self._revision, self._newest)


def _is_next(before: Node | None, after: Node) -> bool:
    """Return True if exactly one write lies between two observations of a node."""
    if before is None:
        return after.version == 0
    return (after.czxid, after.version) == (before.czxid, before.version + 1)


def _revision(entry: JournalEntry) -> int:
    return entry.revision


def _size(entry: JournalEntry) -> int:
    size = _ENTRY_BYTES
    for node in (entry.before, entry.after):
        if node is not None:
            size += _NODE_BYTES + sum(map(len, node.items)) + len(node.extra or b"")
    return size
