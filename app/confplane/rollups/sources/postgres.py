"""One moment of Postgres, which all tasks share, read as Arrow batches.

The driver keeps a read-only transaction open and exports its snapshot; each task imports it. So all frames of a run
agree with each other, and a task that runs twice reads the same. During a run, vacuum can't remove rows that are
deleted in the meantime, which are few in these tables.

All tasks must reach the same server, without a pooler that assigns connections per transaction.
"""

from __future__ import annotations

import os
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import adbc_driver_manager
import adbc_driver_postgresql.dbapi

from confplane.audit.dsn import LIFT
from confplane.domain.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pydantic import SecretStr

_CONNECT_TIMEOUT_S: Final = "10"
_SETTINGS: Final = {
    # A run may take any time, but the role's own settings are meant for requests.
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    # Whole ranges are read. The planner underestimates them and would probe an index for each row.
    "enable_nestloop": "off",
    "work_mem": "'64MB'",
    "jit": "off",
}


class ReadOnlyTransaction:
    """A read-only transaction."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._cursor = raw.cursor()

    def run(self, statement: str) -> None:
        """Run a statement without a result."""
        self._cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return few rows."""
        self._cursor.execute(query)
        return list(self._cursor.fetchall())

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """Return many rows as they arrive."""
        self._cursor.execute(query)
        yield from self._cursor.fetch_record_batch()


@contextmanager
def open_transaction(dsn: SecretStr, snapshot: str | None = None) -> Iterator[ReadOnlyTransaction]:
    """Open a read-only transaction, at an exported snapshot or at the current moment.

    Raises:
        UnavailableError: Postgres is unavailable, or the transaction of the snapshot has ended.
    """
    # libpq uses these if the connection string has none. Connection strings have two forms; neither is edited.
    os.environ.setdefault("PGCONNECT_TIMEOUT", _CONNECT_TIMEOUT_S)
    os.environ.setdefault("PGAPPNAME", "confplane-rollups")
    try:
        raw = adbc_driver_postgresql.dbapi.connect(dsn.get_secret_value(), autocommit=True)
    except adbc_driver_manager.Error as error:
        raise UnavailableError(f"Postgres can't be read: {_first_line(error)}") from None
    try:
        connection = ReadOnlyTransaction(raw)
        try:
            connection.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if snapshot is not None:
                connection.run(f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")
            for name, value in _SETTINGS.items():
                connection.run(f"SET LOCAL {name} = {value}")
            connection.rows(LIFT)
        except adbc_driver_manager.Error as error:
            raise UnavailableError(f"Postgres can't be read: {_first_line(error)}") from None
        yield connection
    finally:
        raw.close()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def literal(value: object) -> str:
    """Return a value as SQL. Queries with parameters can't be read by COPY, which is twice as fast.

    Raises:
        ValueError: Postgres can't store the value.
    """
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case uuid.UUID():
            return f"'{value}'::uuid"
        case datetime() if value.tzinfo is not None:
            return f"'{value.astimezone(UTC).isoformat()}'::timestamptz"
        case str() if "\0" not in value:
            value.encode()  # lone surrogates
            return "'" + value.replace("'", "''") + "'" if "\\" not in value else _escaped(value)
    raise ValueError(f"{type(value).__name__} is nothing that can be asked for")


def _escaped(text: str) -> str:
    # Correct under any value of standard_conforming_strings.
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
