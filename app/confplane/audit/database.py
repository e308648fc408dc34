"""The connection pool, with a time limit for every use.

The pool survives an outage of Postgres: connections are opened on demand, and a lost one is replaced, so that recovery
needs no restart. The time limit of a use also holds if the server is frozen: when it expires, the socket is shut down,
and the driver sees a lost connection. (Cancelling the task would not be enough: the driver then asks the server to
cancel and waits for the reply.)

Connections are in autocommit mode: each statement is one transaction and one round trip, except within
:meth:`Database.atomically`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import traceback
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Final, cast

import orjson
import psycopg
import sqlalchemy.ext.asyncio
from psycopg.conninfo import make_conninfo
from psycopg.rows import namedtuple_row
from sqlalchemy import event
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.pool import QueuePool

from confplane.audit import faults
from confplane.audit.dsn import parse_dsn
from confplane.services.metrics import Sample

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from typing import Any, TypeVar

    from sqlalchemy import Executable, Row, TextClause
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
    from sqlalchemy.pool import ConnectionPoolEntry

    T = TypeVar("T")

CONNECT_TIMEOUT_S: Final = 2
POOL_TIMEOUT_S: Final = 2.0
READ_TIMEOUT_S: Final = 5.0
_STATEMENT_TIMEOUT_MS: Final = 4_000
_LOCK_TIMEOUT_MS: Final = 2_000
_RECYCLE_S: Final = 1_800
_PARTITIONS: Final = 6
"""Number of concurrent batches: intents, intents with Idempotency-Keys or the answers of these, look-ups of these keys,
outcomes, registrations or applied reports, and rows of bulks."""
_PREPARES: Final = "confplane-prepares"
"""The member of a connection's `info` that is true if its statements may be prepared."""

SERVER: Final = "concat_ws(' ', pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time())"
"""SQL for a text that identifies one run of a server. A server that was restarted, restored or promoted may have lost
rows that were visible in the previous run. So may a server that recovered from the crash of one of its processes and
kept its start time: its statistics are then reset, as after any start without a clean shutdown before
(https://www.postgresql.org/docs/current/monitoring-stats.html). A manual reset of the statistics counts as another
run."""

_log: Final = logging.getLogger(__name__)


class ConnectionTimeout:
    """The time limit of one use of a connection."""

    def __init__(self) -> None:
        self.expired = False
        self._raw: psycopg.AsyncConnection | None = None

    def guard(self, raw: psycopg.AsyncConnection) -> None:
        """Shut down the connection's socket when the time limit expires."""
        self._raw = raw
        if self.expired:
            _sever(raw)

    def expire(self) -> None:
        """Expire the time limit: shut down the socket of a guarded connection."""
        self.expired = True
        if self._raw is not None:
            _sever(self._raw)


class Health:
    """The state of Postgres, from the uses of the pool. The reader of registrations uses the pool every few seconds.

    Attributes:
        up: True if the last use was answered.
        faults: The number of uses that were not answered.
    """

    def __init__(self) -> None:
        self.up = False
        self.faults = 0

    def record(self, fault: faults.Fault | None) -> None:
        """Record a use. A use without a fault was answered, possibly with an error of the statement."""
        if fault is None:
            self.up = True
            return
        self.faults += 1
        if fault is not faults.BUSY:
            self.up = False


_limit: ContextVar[ConnectionTimeout | None] = ContextVar("_limit", default=None)


class Pipeline:
    """The statements of one transaction, which are sent without waiting for their results."""

    def __init__(self, raw: psycopg.AsyncConnection) -> None:
        self._raw = raw

    async def send(self, statement: TextClause, **given: Any) -> psycopg.AsyncCursor[tuple[Any, ...]]:
        """Send a statement. Its rows may be fetched now, which waits for them, or after the transaction."""
        return await self._raw.execute(_compiled(statement), given)


@cache
def _compiled(statement: TextClause) -> bytes:
    return str(statement.compile(dialect=PGDialect_psycopg())).encode()  # type: ignore[no-untyped-call]


class Database:
    """The pool of one process. The server may be down at any time.

    Args:
        dsn: ``postgresql://user:password@host:port/database``, of the role that the service runs as.
        pool_size: Maximum number of connections. All except six are for reads, so that searches never delay the trail.

    Raises:
        ValueError: ``dsn`` is not a connection string.
    """

    def __init__(self, dsn: str, pool_size: int) -> None:
        given = parse_dsn(dsn)
        limits = (
            f"-c statement_timeout={_STATEMENT_TIMEOUT_MS} -c lock_timeout={_LOCK_TIMEOUT_MS} -c TimeZone=UTC"
            " -c application_name=confplane"
        )
        self._conninfo = make_conninfo(
            dsn,
            connect_timeout=CONNECT_TIMEOUT_S,
            # The operator's own options come last and take precedence.
            options=f"{limits} {given.get('options') or ''}".strip(),
        )
        self._pool_size = pool_size
        self._readers = asyncio.Semaphore(max(1, pool_size - _PARTITIONS))
        self._closed = False
        self._engine = self._make_engine()
        self.health = Health()

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield Sample("postgres_up", self.health.up)
        yield Sample("postgres_faults", self.health.faults)
        yield Sample("postgres_connections_limit", self._pool_size)
        pool = self._engine.pool
        if isinstance(pool, QueuePool):
            yield Sample("postgres_connections_in_use", pool.checkedout())

    async def start(self) -> None:
        """Open a first connection if Postgres is available; an unavailable server is not an error."""
        try:
            async with self.connection(READ_TIMEOUT_S):
                pass
        except Exception as error:
            fault = faults.classify(error)
            if fault is None:
                raise
            _log.warning("%s; starting without it", fault.detail)

    async def close(self) -> None:
        """Close all connections; one that is in use is closed when it is returned."""
        self._closed = True
        await self._engine.dispose()

    @asynccontextmanager
    async def connection(self, timeout_s: float) -> AsyncIterator[AsyncConnection]:
        """Borrow a connection for at most ``timeout_s`` seconds, connecting included.

        Raises:
            Exception: The driver's error; :func:`confplane.audit.faults.classify` returns its meaning.
        """
        async with self.limited(timeout_s) as limit, self._engine.connect() as connection:
            limit.guard(await driver_connection(connection))
            yield connection

    async def borrow(self) -> AsyncConnection:
        """Borrow a connection until it is closed. Call this, and use the connection, only within :meth:`limited`."""
        return await self._engine.connect()

    @property
    def spare(self) -> bool:
        """True if each partition may keep a connection of the pool and at least one remains for reads."""
        return self._pool_size > _PARTITIONS

    @asynccontextmanager
    async def limited(self, timeout_s: float) -> AsyncIterator[ConnectionTimeout]:
        """Limit the time for connecting, and for the uses of guarded connections in this context.

        Raises:
            Exception: The driver's error; :func:`confplane.audit.faults.classify` returns its meaning.
        """
        limit = ConnectionTimeout()
        token = _limit.set(limit)
        timer = asyncio.get_running_loop().call_later(timeout_s, limit.expire)
        try:
            yield limit
        except Exception as error:
            if limit.expired:
                raise TimeoutError(f"No answer within {timeout_s} s") from error
            raise
        finally:
            timer.cancel()
            _limit.reset(token)

    async def read(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Run a read or a repeatable write. If the connection is lost, run it once more on a fresh connection.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        try:
            async with asyncio.timeout(POOL_TIMEOUT_S):
                await self._readers.acquire()
        except TimeoutError:
            self.health.record(faults.BUSY)
            raise faults.unavailable(faults.BUSY) from None
        try:
            try:
                return await self._once(work)
            except Exception as error:
                fault = faults.classify(error)
                if fault is None or not fault.again:
                    raise
                return await self._once(work)
        except Exception as error:
            fault = faults.classify(error)
            if fault is None:
                raise
            raise faults.unavailable(fault) from error
        finally:
            self._readers.release()

    async def atomically(self, work: Callable[[Pipeline], Awaitable[T]]) -> T:
        """Run the statements of a repeatable write with :meth:`read`, in one transaction.

        They are sent without waiting for their results, so a transaction that reads none costs one round trip.
        """

        async def within(connection: AsyncConnection) -> T:
            raw = await driver_connection(connection)
            async with raw.pipeline(), raw.transaction():
                return await work(Pipeline(raw))

        return await self.read(within)

    async def prepared(self, statement: TextClause, /, **given: Any) -> list[Any]:
        """Return the named rows of a frequent statement, run with :meth:`read`, and planned once for a connection.

        The best plan must be the same for all parameters, and the columns must be listed, because a migration may add
        others. A pooler may distribute the statements of one connection to several server processes: then the statement
        is planned each time.
        """

        async def work(connection: AsyncConnection) -> list[Any]:
            raw, known = await driver_connection(connection), (await connection.get_raw_connection()).info
            if _PREPARES not in known:
                known[_PREPARES] = await ends_at_server(raw)
            cursor = raw.cursor(row_factory=namedtuple_row)
            raw.prepare_threshold = 0 if known[_PREPARES] else None
            try:
                await cursor.execute(_compiled(statement), given)
            finally:
                raw.prepare_threshold = None
            return await cursor.fetchall()

        return await self.read(work)

    async def rows(self, statement: Executable, /, **given: Any) -> Sequence[Row[Any]]:
        """Return the rows of one statement, run with :meth:`read`."""

        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            return (await connection.execute(statement, given)).all()

        return await self.read(work)

    async def row(self, statement: Executable, /, **given: Any) -> Row[Any] | None:
        """Return the only row of a statement, or None. Runs the statement as :meth:`rows` does."""

        async def work(connection: AsyncConnection) -> Row[Any] | None:
            return (await connection.execute(statement, given)).one_or_none()

        return await self.read(work)

    async def scalars(self, statement: Executable, /, **given: Any) -> list[Any]:
        """Return the first column of the rows. Runs the statement as :meth:`rows` does."""
        return [row[0] for row in await self.rows(statement, **given)]

    async def execute(self, statement: Executable, /, **given: Any) -> int:
        """Run one statement with :meth:`read`, and return the number of affected rows."""

        async def work(connection: AsyncConnection) -> int:
            return (await connection.execute(statement, given)).rowcount

        return await self.read(work)

    async def _once(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        try:
            async with self.connection(READ_TIMEOUT_S) as connection:
                found = await work(connection)
        except BaseException as error:
            if isinstance(error, Exception):
                self.health.record(faults.classify(error))
            # SQLAlchemy's frames have the error, whose traceback has the frames: a cycle of references.
            traceback.clear_frames(error.__traceback__)
            raise
        self.health.record(None)
        return found

    def _make_engine(self) -> AsyncEngine:
        # By its module, because instrumentation replaces the function (tracing.py).
        engine = sqlalchemy.ext.asyncio.create_async_engine(
            "postgresql+psycopg://",
            async_creator=self._connect,
            isolation_level="AUTOCOMMIT",
            pool_size=self._pool_size,
            max_overflow=0,
            pool_timeout=POOL_TIMEOUT_S,
            pool_recycle=_RECYCLE_S,
            # The most recently used connection is used first, so that an idle service keeps few connections.
            pool_use_lifo=True,
            use_native_hstore=False,
            json_deserializer=orjson.loads,
            hide_parameters=True,
        )
        event.listen(engine.sync_engine, "checkin", self._close_late)
        return engine

    def _close_late(self, _raw: object, record: ConnectionPoolEntry) -> None:
        # SQLAlchemy's dispose() closes idle connections only, and leaves the others to the garbage collector.
        if self._closed:
            record.invalidate()

    async def _connect(self) -> psycopg.AsyncConnection:
        # Statements are not prepared, except on the connections that partitions keep: a plan made once for all
        # parameters is wrong for most searches, and poolers in transaction mode don't support prepared statements.
        raw = await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        limit = _limit.get()
        if limit is not None:
            limit.guard(raw)
        return raw


async def driver_connection(connection: AsyncConnection) -> psycopg.AsyncConnection:
    """Return the driver's own connection."""
    raw = (await connection.get_raw_connection()).driver_connection
    assert isinstance(raw, psycopg.AsyncConnection)  # noqa: S101 - for the type checker; one driver only
    return raw


def from_row(kind: Callable[..., T], row: Any, **others: Any) -> T:
    """Return a dataclass whose fields are the columns of a row that have their names, except for ``others``.

    Raises:
        KeyError: The row lacks a column.
    """
    columns = row._asdict()  # rows of SQLAlchemy and named rows of psycopg have it
    names: list[str] = [each.name for each in fields(cast("Any", kind)) if each.name not in others]
    return kind(**{name: columns[name] for name in names}, **others)


async def ends_at_server(raw: psycopg.AsyncConnection) -> bool:
    """Return True if a single process of Postgres runs all statements of a connection.

    A pooler that distributes statements to several processes reports none of these when a client connects.
    """
    row = await (await raw.execute("SELECT pg_backend_pid()")).fetchone()
    return row == (raw.info.backend_pid,)


def _sever(raw: psycopg.AsyncConnection) -> None:
    """Shut down a connection's socket without the driver: a task that waits for it gets an error at once."""
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(raw.fileno())) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)
