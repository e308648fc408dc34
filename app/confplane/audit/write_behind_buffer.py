"""A write-behind buffer for rows that no response waits for.

Two background tasks connect memory and Postgres. One writes the pending rows, many with one statement. The other does
further work on a timer: for rows that are served from memory, it reads those of all replicas. A row waits at most for
one pause between writes and for one statement, as long as Postgres keeps up. A killed process loses its pending rows; a
process that stops normally loses none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import orjson

from confplane.audit.group_commit import GroupWriter, WritePartition
from confplane.domain.errors import UnavailableError
from confplane.services.metrics import Sample

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator

    from sqlalchemy import TextClause

    from confplane.audit.database import Database

    Work = Callable[[], Awaitable[None]]

K = TypeVar("K", bound="Hashable")

_log: Final = logging.getLogger(__name__)

_ROWS_PER_INSERT: Final = 1_000
_CLOSE_PATIENCE_S: Final = 3.0
"""Seconds without a written row after which :meth:`WriteBehindBuffer.close` gives up."""
_CLOSE_LONGEST_S: Final = 20.0
"""Seconds after which it gives up in any case: a process that takes too long to stop is killed."""
_COMPLAINT_INTERVAL_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class WriteBehindOptions:
    """The intervals and the capacity of a write-behind buffer."""

    write_interval_s: float = 1.0
    """Pause between writes."""
    read_interval_s: float = 2.0
    """Pause between runs of the other work, such as reads of other replicas' rows."""
    max_pending: int = 100_000
    """Maximum number of rows that wait to be written."""


class Closeable(Protocol):
    """Rows that must be written before a stop."""

    async def close(self) -> None:
        """Write them."""


async def close_together(buffers: Iterable[Closeable]) -> None:
    """Close buffers concurrently, so that a stop takes as long as the slowest; those on one partition take turns."""
    await asyncio.gather(*(each.close() for each in buffers))


class WriteBehindBuffer(Generic[K]):
    """Writes rows of one kind in the background.

    Args:
        database: The database.
        statement: An insert of ``:rows``, a JSON array, that may be repeated.
        kind: The rows' name in logs and metrics, in the plural.
        options: Intervals and capacity.
        partition: The write partition of its statements, which buffers may share; None: one of its own.
        writer: The writer of its rows; None: one on the partition.
    """

    def __init__(
        self,
        database: Database,
        statement: TextClause,
        *,
        kind: str,
        options: WriteBehindOptions,
        partition: WritePartition | None = None,
        writer: GroupWriter | None = None,
    ) -> None:
        self.partition = partition or WritePartition(database)
        self._writer = writer or GroupWriter(database, statement, partition=self.partition)
        self._kind = kind
        self._options = options
        # Ordered by a linked list: in a plain dict, finding the first entry gets slower with each removed entry.
        self._pending: OrderedDict[K, dict[str, Any]] = OrderedDict()
        self._writing = asyncio.Lock()
        self._dropped = 0
        self._complained_at = float("-inf")
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, refresh: Work) -> None:
        """Start the background tasks; ``refresh`` is the work on a timer. Postgres may be down."""
        self._tasks = [
            asyncio.create_task(self._repeat(work, pause_s), name=f"{verb} {self._kind}")
            for verb, work, pause_s in (
                ("write", self.flush, self._options.write_interval_s),
                ("refresh", refresh, self._options.read_interval_s),
            )
        ]

    async def close(self) -> None:
        """Stop, and write the pending rows as long as Postgres accepts some every few seconds."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        now = asyncio.get_running_loop().time
        latest = now() + _CLOSE_LONGEST_S
        try:
            async with asyncio.timeout(_CLOSE_PATIENCE_S) as limit:
                await self.flush(lambda: limit.reschedule(min(now() + _CLOSE_PATIENCE_S, latest)))
        except (UnavailableError, TimeoutError):
            _log.warning("%d %s were not written", len(self._pending), self._kind)
        await self._writer.close()

    def metrics(self, held: int) -> Iterator[Sample]:
        """Return the metrics; ``held`` is the number of rows in memory."""
        yield from self._writer.metrics(self._kind)
        yield Sample(f"{self._kind}_held", held)
        yield Sample(f"{self._kind}_pending", len(self._pending))
        yield Sample(f"{self._kind}_dropped", self._dropped)

    @property
    def dropped(self) -> int:
        """The number of rows dropped since the start because there was no room."""
        return self._dropped

    def has_room(self, key: K) -> bool:
        """Return True if there is room for a pending row with this key."""
        return len(self._pending) < self._options.max_pending or key in self._pending

    def add(self, key: K, row: dict[str, Any]) -> None:
        """Queue a row to be written soon; it replaces a pending row with the same key."""
        self._pending[key] = row

    def drop(self, held: int, count: int = 1) -> None:
        """Count what finds no room, and log a warning now and then; ``held`` as in :meth:`metrics`."""
        self._dropped += count
        now = time.monotonic()
        if now - self._complained_at >= _COMPLAINT_INTERVAL_S:
            self._complained_at = now
            _log.warning(
                "%s are dropped (%d so far): %d wait for Postgres, %d are held",
                *(self._kind.capitalize().replace("_", " "), self._dropped, len(self._pending), held),
            )

    async def flush(self, written: Callable[[], object] = lambda: None) -> None:
        """Write the pending rows; ``written`` is called after each statement.

        Raises:
            UnavailableError: Postgres is unavailable; the rows remain pending.
        """
        async with self._writing:
            while self._pending:
                # A row stays in its place until it is written: another one with its key may replace it in the meantime.
                batch = list(islice(self._pending.items(), _ROWS_PER_INSERT))
                rows = [rendered for _, row in batch if (rendered := self._rendered(row)) is not None]
                try:
                    if rows:
                        await self._writer.write(rows)
                except UnavailableError:
                    raise
                except Exception:  # noqa: BLE001 - a row that can't be stored must not hold back the other rows
                    _log.exception("Postgres refused one of the %s; it is dropped", self._kind)
                for key, row in batch:
                    if self._pending.get(key) is row:
                        del self._pending[key]
                written()

    def _rendered(self, row: dict[str, Any]) -> bytes | None:
        try:
            return orjson.dumps(row)
        except orjson.JSONEncodeError:
            _log.exception("One of the %s holds what is not a text; it is dropped", self._kind)
            return None

    async def _repeat(self, work: Work, pause_s: float) -> None:
        away = False
        while True:
            try:
                await work()
                away = False
            except UnavailableError as error:
                if not away:
                    _log.warning("%s; %s wait", error.detail, self._kind)
                away = True
            except Exception:  # noqa: BLE001 - a background task that dies would do so unseen
                _log.exception("The exchange of %s with Postgres failed; trying again", self._kind)
            await asyncio.sleep(pause_s)
