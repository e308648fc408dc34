"""Group commit: the rows of concurrent callers share a statement, and so a round trip and a commit.

The first caller starts a flush; callers that arrive during a batch form the next one. After a batch of several callers,
the next one starts some milliseconds later at the earliest, because a statement costs this process more than its rows.
A single caller and a full batch do not wait.

Batches are sent over write partitions, each with one connection. If the pool has a connection for each partition,
a partition keeps its own from flush to flush; otherwise a flush keeps one from batch to batch, and releases its callers
before it returns the connection. A row is sent as JSON text and a batch as one JSON array, which Postgres unpacks: this
costs the process the least.

Statements are ``INSERT ... ON CONFLICT DO NOTHING``, so a batch with an unknown result (the connection broke before the
reply) is sent again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from confplane.audit import faults
from confplane.audit.database import driver_connection, ends_at_server
from confplane.services.metrics import ROWS, SECONDS, Histogram, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import psycopg
    from sqlalchemy import TextClause
    from sqlalchemy.ext.asyncio import AsyncConnection

    from confplane.audit.database import ConnectionTimeout, Database

_MAX_ROWS: Final = 256
_MAX_BYTES: Final = 4 * 1024 * 1024
_GATHER_S: Final = 0.008
"""Minimum number of seconds between the start of a batch of several callers and the start of the next batch. Without
this pause a change costs a sixth more processor time at 64 callers; 12 ms bring no further improvement."""
_TRY_TIMEOUT_S: Final = 3.0
"""Seconds for one try of one statement, connecting included."""


@dataclass(frozen=True, slots=True)
class GroupCommitOptions:
    """The intervals of group commits."""

    kept_s: float = 60.0
    """Seconds for which a partition keeps a connection. The limit leaves an idle service with few connections."""
    shared_s: float = 0.25
    """The same if the pool has fewer connections than partitions, so that the other partitions get their turn."""
    patience_s: float = 2.0
    """Seconds for retries: a faster restart of Postgres goes unnoticed."""
    pauses_s: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4, 0.8)
    """Seconds before each retry. The first retry is immediate: usually only this connection was lost."""


class RowRefusedError(Exception):
    """The statement refused a row, and returned its number."""


class _Call:
    """The rows that one caller waits for."""

    __slots__ = ("done", "error", "rows", "size")

    def __init__(self, rows: Sequence[bytes], done: asyncio.Future[None]) -> None:
        self.rows = rows
        self.size = sum(map(len, rows))
        self.done = done
        self.error: Exception | None = None


class WritePartition:
    """A partition of the pool for batches of writes: one connection, borrowed on demand and closed on failure.

    It carries one batch at a time; writers that share a partition take turns, batch by batch.

    SQLAlchemy lends the connection, and the driver's own cursor runs the statement. Borrowing a connection and the
    layers in between cost this process as much time as a small statement costs Postgres. Statements on a kept
    connection are prepared, unless a pooler distributes the statements of one connection to several server processes.
    """

    def __init__(self, database: Database, options: GroupCommitOptions = GroupCommitOptions()) -> None:
        self.options = options
        self._database = database
        self._connection: AsyncConnection | None = None
        self._cursor: psycopg.AsyncCursor | None = None
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._returning: asyncio.Task[None] | None = None
        self.turn = asyncio.Lock()
        """Held by the writer whose batch is under way."""

    async def execute(self, statement: bytes, parameters: dict[str, str]) -> tuple[int, list[int]]:
        """Run a statement and return the number of rows written, and the numbers that the statement returned."""
        try:
            async with self._database.limited(_TRY_TIMEOUT_S) as limit:
                cursor = self._cursor or await self._borrow(limit)
                limit.guard(cursor.connection)
                await cursor.execute(statement, parameters)
                returned = [] if cursor.description is None else [number for (number,) in await cursor.fetchall()]
        except BaseException as error:
            # After a fault a fresh connection may reach another server.
            if self._connection is not None and not (isinstance(error, Exception) and faults.classify(error) is None):
                await self._connection.invalidate()
                await self.release()
            raise
        return cursor.rowcount, returned

    @property
    def stale(self) -> bool:
        """True once other partitions should get the connection."""
        return time.monotonic() >= self._until

    async def release(self) -> None:
        """Return the connection to the pool."""
        connection = self._detach()
        if connection is not None:
            await connection.close()
        if self._returning is not None:
            await self._returning

    async def _borrow(self, limit: ConnectionTimeout) -> psycopg.AsyncCursor:
        self._connection = await self._database.borrow()
        seconds = self.options.kept_s if self._database.spare else self.options.shared_s
        self._until = time.monotonic() + seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._return)
        raw = await driver_connection(self._connection)
        limit.guard(raw)
        if self._database.spare and await ends_at_server(raw):
            # For a small batch, planning takes Postgres as long as running the statement.
            raw.prepare_threshold = 0
        self._cursor = raw.cursor()
        return self._cursor

    def _return(self) -> None:
        """Return the connection to the pool if no batch uses it; a batch does so at its end."""
        if not self.turn.locked() and (connection := self._detach()) is not None:
            self._returning = asyncio.create_task(connection.close(), name="return a connection")

    def _detach(self) -> AsyncConnection | None:
        if self._cursor is not None:
            self._cursor.connection.prepare_threshold = None
        connection, self._connection, self._cursor = self._connection, None, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return connection


class GroupWriter:
    """Writes rows of one kind.

    Args:
        database: The database.
        statement: An insert of ``:rows``, a JSON array, that ignores existing rows. It may return the numbers, from 0,
            of rows that it refused.
        partition: The write partition of its batches, which are sent one after another.
        on_repeats: Called with the rows of a statement if some of them existed before.
    """

    def __init__(
        self,
        database: Database,
        statement: TextClause,
        *,
        partition: WritePartition,
        on_repeats: Callable[[Sequence[bytes]], None] | None = None,
    ) -> None:
        self._database = database
        self._statement = str(statement.compile(dialect=PGDialect_psycopg())).encode()  # type: ignore[no-untyped-call]
        self._partition = partition
        self._on_repeats = on_repeats
        self._waiting: deque[_Call] = deque()
        self._flushing: asyncio.Task[None] | None = None
        self._down = False
        self._gather_until = 0.0
        self._rows = Histogram(ROWS)
        self._seconds = Histogram(SECONDS)

    def metrics(self, kind: str) -> Iterator[Sample]:
        """Return the metrics of this kind of rows."""
        yield Sample("group_commit_rows", self._rows, (kind,))
        yield Sample("group_commit_duration_seconds", self._seconds, (kind,))
        yield Sample("group_commit_waiting", len(self._waiting), (kind,))

    async def write(self, rows: Sequence[bytes]) -> None:
        """Return once the rows are committed, and durable unless the statement says otherwise.

        Args:
            rows: At least one; each a JSON object.

        Raises:
            UnavailableError: Postgres did not confirm the rows. They may have been written nevertheless.
            RowRefusedError: The statement refused one of these rows; the other rows are written.
            Exception: The driver's error if Postgres refused one of these rows; the other rows are written.
        """
        call = _Call(rows, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._flushing is None:
            # In a context of its own: its batches are those of many callers.
            self._flushing = asyncio.create_task(self._flush(), name="group commit", context=Context())
        await call.done

    async def close(self) -> None:
        """Wait for the batches under way, and return the connection to the pool."""
        while self._flushing is not None:
            await asyncio.wait({self._flushing})
        async with self._partition.turn:
            await self._partition.release()

    async def _flush(self) -> None:
        partition = self._partition
        try:
            while self._waiting:
                await self._gather()
                async with partition.turn:
                    await self._write_batch()
                    if partition.stale or not (self._waiting or self._database.spare):
                        await partition.release()
        finally:
            self._flushing = None

    async def _gather(self) -> None:
        """Wait for more callers if a batch of several callers started recently."""
        pause = self._gather_until - time.monotonic()
        if pause > 0 and sum(len(call.rows) for call in self._waiting) < _MAX_ROWS:
            await asyncio.sleep(pause)

    async def _write_batch(self) -> None:
        batch = self._next_batch()
        if len(batch) > 1:
            self._gather_until = time.monotonic() + _GATHER_S
        try:
            await self._write(batch)
        except BaseException:
            for call in batch:
                call.done.cancel()
            raise
        for call in batch:
            _resolve(call)

    def _next_batch(self) -> list[_Call]:
        batch: list[_Call] = []
        rows = size = 0
        while self._waiting:
            call = self._waiting[0]
            rows += len(call.rows)
            size += call.size
            if batch and (rows > _MAX_ROWS or size > _MAX_BYTES):
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _write(self, batch: list[_Call]) -> None:
        # While a statement is refused because of its data, its rows are halved until the refused row is alone.
        parts = [[(row, call) for call in batch for row in call.rows]]
        while parts:
            part = parts.pop()
            error, refused = await self._send([row for row, _ in part])
            if error is None:
                for number in refused:
                    part[number][1].error = RowRefusedError()
                continue
            fault = faults.classify(error)
            if fault is not None:
                # Waiting callers would only run into the same fault, seconds later.
                affected = {call for rows in (part, *parts) for _, call in rows}
                while self._waiting:
                    call = self._waiting.popleft()
                    affected.add(call)
                    batch.append(call)
                for call in affected:
                    call.error = faults.unavailable(fault)
                return
            if len(part) == 1:
                part[0][1].error = error
            else:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]

    async def _send(self, rows: list[bytes]) -> tuple[Exception | None, list[int]]:
        """Run the statement, with retries if they may help; return the error of the last try, or the refused rows."""
        parameters = {"rows": (b"[" + b",".join(rows) + b"]").decode()}
        patient_until = time.monotonic() + self._partition.options.patience_s
        pauses = iter(self._partition.options.pauses_s)
        while True:
            began = time.monotonic()
            try:
                written, refused = await self._partition.execute(self._statement, parameters)
            except Exception as error:  # noqa: BLE001 - classified here, and raised to the callers concerned
                fault = faults.classify(error)
                self._database.health.record(fault)
                if fault is None:
                    return error, []
                pause = next(pauses, None)
                if not fault.again or self._down or pause is None or time.monotonic() + pause > patient_until:
                    self._down = True
                    return error, []
                await asyncio.sleep(pause)
                continue
            self._down = False
            self._database.health.record(None)
            self._rows.add(len(rows))
            self._seconds.add(time.monotonic() - began)
            if self._on_repeats is not None and written < len(rows):
                self._on_repeats(rows)
            return None, refused


def _resolve(call: _Call) -> None:
    if call.done.done():
        return  # The caller gave up waiting.
    if call.error is None:
        call.done.set_result(None)
    else:
        call.done.set_exception(call.error)
