"""Many calls at once: a bounded window of calls in flight, and reads that share requests on servers that allow it."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import NoAuthError, NoNodeError

from confplane.store.session.multiread import CHILDREN, DATA, READ_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from confplane.store.session.asyncio_adapter import Reply
    from confplane.store.session.session import Session

    ValueCallback = Callable[[Any], None]
    ValuesCallback = Callable[[Sequence[str], Sequence[Any]], None]

FORBIDDEN: Final = object()
"""The value of a node that this identity may not read, by its ACL."""
WINDOW: Final = 1000
"""Calls in flight. ZooKeeper holds that many per connection by default (zookeeper.globalOutstandingLimit)."""

ERRORS: Final = {NoNodeError.code: None, NoAuthError.code: FORBIDDEN}
_UNDER_WAY: Final = 4000
"""The greatest number of reads under way. All other replies to the session are behind theirs."""
_UNDER_WAY_BYTES: Final = 2 * 2**20
"""The greatest number of bytes of replies under way, as far as foreseen."""
_REPLY_READS: Final = 500
"""The greatest number of reads in a request. More save next to nothing, and the next node may be a large one."""
_REPLY_BYTES: Final = 256 * 2**10
"""The greatest expected number of bytes in a reply. ZooKeeper builds it whole, and kazoo sends no ping until then."""
_REQUEST_BYTES: Final = 128 * 2**10
"""The greatest number of bytes in a request. ZooKeeper takes a megabyte."""
_FIRST: Final = 8
"""Reads in flight before any node was read. Then as many as nodes were read: the number doubles with each reply.

A node may have a megabyte, and ZooKeeper builds a reply as a whole: with eight reads the first reply has at most
eight megabytes, with 50 it could have 50. The doubling up to the most reads in a request adds a few round trips to a
load."""
_RESULT_BYTES: Final = 100
"""Bytes of a read in a reply besides data or names, about."""
_REMEMBERED: Final = 64
"""Nodes after which the size of one counts for little."""


class SizeEstimate:
    """The expected size of nodes of one kind, estimated from those already read. Reused by the next load.

    Attributes:
        expected: Bytes of a node in a reply.
        samples: Number of nodes measured.
    """

    __slots__ = ("expected", "samples")

    def __init__(self) -> None:
        self.expected = float(_RESULT_BYTES)
        self.samples = 0

    def record(self, nodes: int, size: int) -> None:
        """Record a number of nodes and their total size in bytes."""
        self.samples += nodes
        self.expected += (size / nodes - self.expected) * min(1.0, nodes / min(self.samples, _REMEMBERED))


class Window:
    """Calls in flight, bounded; their results are taken in the order of arrival."""

    def __init__(self) -> None:
        self._outstanding = 0
        self._replies = 0
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._reached: Callable[[], bool] = _always

    def add(self, reply: Reply, take: ValueCallback) -> None:
        """Call ``take(value)`` with the reply: None when the node is absent, FORBIDDEN when it may not be read."""
        self._outstanding += 1

        def deliver(value: Any, error: Exception | None) -> None:
            self._outstanding -= 1
            if error is None:
                self._hand(take, value)
            elif isinstance(error, (NoNodeError, NoAuthError)):
                self._hand(take, ERRORS[error.code])
            else:
                self._error = error
            self._replied()

        reply.then(deliver)

    def _hand(self, take: Callable[..., None], *values: Any) -> None:
        try:
            take(*values)
        except Exception as failure:  # noqa: BLE001 - raised where the window is waited for
            self._error = failure

    def _replied(self) -> None:
        self._replies += 1
        waiter = self._waiter
        if waiter is not None and not waiter.done() and (self._error or self._reached()):
            waiter.set_result(None)

    @property
    def idle(self) -> bool:
        """True where no reply is outstanding."""
        return not self._outstanding

    async def room(self) -> None:
        """Wait until another call may be made."""
        if self._outstanding >= WINDOW:
            await self._until(lambda: self._outstanding <= WINDOW // 2)

    async def progress(self) -> None:
        """Wait until at least one reply has arrived."""
        replies = self._replies
        await self._until(lambda: self._replies > replies or not self._outstanding)

    async def done(self) -> None:
        """Wait for all replies.

        Raises:
            Exception: The failure of any reply; the others may still be under way then.
        """
        await self._until(lambda: not self._outstanding)

    async def _until(self, reached: Callable[[], bool]) -> None:
        while self._error is None and not reached():
            self._reached = reached
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                # The remaining replies are not wanted.
                self._error = TimeoutError("the wait for these replies was given up")
                raise
            finally:
                # The condition refers to this window: a cycle of references would be left to the garbage collector.
                self._reached = _always
        if self._error is not None:
            raise self._error


class ReadWindow(Window):
    """A window of reads of many nodes; other calls can be in flight in it as well.

    Reads share requests on servers that support MultiRead. The sizes of the nodes already read determine how many share
    a request. Reads are submitted while the window is awaited.

    Args:
        session: The session of all reads.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self._queues: list[ReadQueue] = []
        self._reads = 0
        self._bytes = 0.0

    def data(self, take: ValuesCallback, size: SizeEstimate | None = None) -> ReadQueue:
        """Return a queue of reads of data.

        Args:
            take: Called with some paths and their results: data and the fields of the Stat; None: the node is absent;
                FORBIDDEN: it may not be read.
            size: The size of such nodes, as far as it is known.
        """
        return self._queue(DATA, take, size)

    def children(self, take: ValuesCallback, size: SizeEstimate | None = None) -> ReadQueue:
        """Return a queue of reads of the names of nodes' children. The arguments are those of :meth:`data`."""
        return self._queue(CHILDREN, take, size)

    def _queue(self, kind: int, take: ValuesCallback, size: SizeEstimate | None) -> ReadQueue:
        self._queues.append(ReadQueue(self, kind, take, size or SizeEstimate()))
        return self._queues[-1]

    def start(self) -> None:
        """Submit the requested reads as far as the window allows, without a wait."""
        self._send()

    async def done(self) -> None:
        """Wait for all replies; no more reads may be requested."""
        try:
            await super().done()
        finally:
            # Queues refer to this window.
            self._queues.clear()

    def close(self) -> None:
        """Drop all queues and their callbacks, which may refer to the owner of this window."""
        for queue in self._queues:
            queue.take = _dropped
        self._queues.clear()
        # The traceback of a raised error refers to this window.
        self._error = None

    async def room(self) -> None:
        """Wait until next to no read waits for submission."""
        await self._until(lambda: sum(len(queue.waiting) for queue in self._queues) < _REPLY_READS)

    async def read_below(self, below: list[tuple[ReadQueue, Iterator[str]]], piece: int) -> None:
        """Request paths as there is room, those of the last list first, until all are read and no list is left.

        Args:
            below: Paths, each list with its queue. Replies may add lists.
            piece: Paths that are requested before other tasks get their turn.
        """
        while True:
            while below:
                queue, paths = below[-1]
                if requested := list(islice(paths, piece)):
                    queue.request(requested)
                    await asyncio.sleep(0)
                    await self.room()
                else:
                    below.pop()
            if self.idle:
                return
            await self.progress()

    async def _until(self, reached: Callable[[], bool]) -> None:
        self._send()
        await super()._until(reached)

    def _replied(self) -> None:
        self._send()
        super()._replied()

    def _send(self) -> None:
        try:
            for queue in self._queues:
                while self._error is None and (paths := queue.next(self._room(), self._spare())):
                    self._submit(queue, paths)
        except Exception as failure:  # noqa: BLE001 - raised where the window is waited for
            self._error = failure

    def _room(self) -> int:
        return (_UNDER_WAY if self.session.multi_reads else WINDOW) - self._reads

    def _spare(self) -> float:
        # A node of any size can be read alone.
        return _UNDER_WAY_BYTES - self._bytes if self._reads else sys.maxsize

    def _submit(self, queue: ReadQueue, paths: list[str]) -> None:
        count, expected = len(paths), len(paths) * queue.size.expected
        self._reads += count
        self._bytes += expected
        queue.under_way += count
        at = 0

        def deliver(values: Sequence[Any]) -> None:
            nonlocal at
            some = paths[at : at + len(values)]
            at += len(values)
            self._outstanding -= len(values)
            self._hand(queue.take, some, values)

        def finished(size: Any, error: Exception | None) -> None:
            self._reads -= count
            self._bytes -= expected
            queue.under_way -= count
            if error is None:
                queue.size.record(count, size)
            else:
                self._error = error
            self._replied()

        if self.session.multi_reads:
            self.session.read(queue.kind, paths, ERRORS, deliver).then(finished)
            return

        def alone(value: Any, error: Exception | None) -> None:
            size = _RESULT_BYTES
            if error is None:
                found = value if queue.kind == DATA else value[0]
                size += len(value[0] or b"") if queue.kind == DATA else sum(map(len, found))
                deliver([found])
            elif isinstance(error, (NoNodeError, NoAuthError)):
                deliver([ERRORS[error.code]])
                error = None
            finished(size, error)

        [path] = paths
        (self.session.get(path) if queue.kind == DATA else self.session.children(path)).then(alone)


def _always() -> bool:
    return True


def _dropped(_paths: Sequence[str], _values: Sequence[Any]) -> None:
    """Drop results."""


class ReadQueue:
    """Reads of nodes of one kind, delivered to the same callback, in order. Made by :class:`ReadWindow`.

    Attributes:
        kind: multiread.DATA or multiread.CHILDREN.
        waiting: Paths that are not submitted.
        under_way: Number of paths that are submitted and not answered.
    """

    def __init__(self, reads: ReadWindow, kind: int, take: ValuesCallback, size: SizeEstimate) -> None:
        self.kind = kind
        self.take = take
        self.size = size
        self.waiting: deque[str] = deque()
        self.under_way = 0
        self._reads = reads

    def request(self, paths: Iterable[str]) -> None:
        """Request reads of nodes at these paths below the chroot."""
        before = len(self.waiting)
        self.waiting.extend(paths)
        self._reads._outstanding += len(self.waiting) - before  # noqa: SLF001 - a part of it

    def next(self, reads: int, spare: float) -> list[str]:
        """Remove and return the paths of the next request. Empty while enough reads are in flight.

        Args:
            reads: The number of further reads that may be under way.
            spare: The number of further bytes that may be under way.
        """
        known = max(_FIRST, self.size.samples)
        most = _REPLY_READS if self._reads.session.multi_reads else 1
        wanted = min(most, known, len(self.waiting), max(1, int(_REPLY_BYTES // self.size.expected)))
        # A request with room for a part of it waits until there is room for all of it.
        if wanted > min(reads, known - self.under_way, spare // self.size.expected):
            return []
        paths = list(islice(self.waiting, wanted))
        # A character of a path takes three bytes at most.
        while len(paths) > 1 and sum(map(len, paths)) * 3 + len(paths) * READ_BYTES > _REQUEST_BYTES:
            del paths[len(paths) // 2 :]
        for _ in paths:
            self.waiting.popleft()
        return paths
