"""The rows of Postgres as a backup copies them, in one snapshot, and as a restore writes them, in one transaction.

Both use a connection of their own without a limit on statements. Rows are JSON in both directions: Postgres makes it of
a row, and a row of it.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb
from typing_extensions import override

from confplane.audit import faults
from confplane.audit.backup_tables import KEPT, REBUILT, SOURCES
from confplane.audit.dsn import conninfo
from confplane.domain.errors import UnavailableError
from confplane.services.ports.backups import TableSnapshot, TableWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from uuid import UUID

    from confplane.services.ports.backups import TrailCut

_CUTS: Final = """
WITH cuts AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(%(cuts)s) AS cut(cluster text, revision bigint, incarnation integer)
), later AS MATERIALIZED (
  SELECT change_id FROM cuts JOIN outcomes USING (cluster, incarnation)
  WHERE committed AND outcomes.revision > cuts.revision
  UNION SELECT unnest(CAST(%(left_out)s AS uuid[]))
)
"""
_OPEN: Final = """
SELECT DISTINCT change_id FROM intents AS given
WHERE cluster = %s AND NOT EXISTS (SELECT FROM outcomes WHERE outcomes.change_id = given.change_id)
"""
_MOVED: Final = """
COPY (
  SELECT json_build_object('cluster', cluster, 'tree', tree, 'entity_id', entity_id)
  FROM jsonb_to_recordset(%s) AS cut(cluster text, revision bigint, incarnation integer)
  JOIN entity_states USING (cluster)
  WHERE mzxid > cut.revision
) TO STDOUT
"""
_SCHEMA: Final = "SELECT version_num FROM alembic_version"
_HAS_SCHEMA: Final = "SELECT to_regclass('alembic_version') IS NOT NULL"
_REJECT: Final = """
INSERT INTO store_positions (cluster, incarnation, id, cversion, pzxid, rejected)
SELECT key, 1, '', 0, 0, value FROM jsonb_each_text(%s)
ON CONFLICT (cluster) DO UPDATE SET rejected = excluded.rejected
"""
_TRIGGERS: Final = """
SELECT relname, tgname, tgenabled FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
WHERE NOT tgisinternal AND relname = ANY(%s) AND relnamespace = CAST(current_schema() AS regnamespace)
ORDER BY relname, tgname
"""
_IDENTITIES: Final = """
SELECT relname, attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
WHERE attidentity <> '' AND relname = ANY(%s) AND relnamespace = CAST(current_schema() AS regnamespace)
"""
_BUSY_S: Final = 10
_ENABLE: Final = {"O": "ENABLE", "A": "ENABLE ALWAYS", "R": "ENABLE REPLICA"}


class PostgresTableSnapshot(TableSnapshot):
    """The rows of all tables at one moment, in Postgres."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str) -> AsyncIterator[Self]:
        """Open a connection, and take the snapshot.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        async with _connected(dsn) as connection:
            await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            await connection.set_read_only(True)
            yield cls(connection)

    @override
    async def schema(self) -> str:
        [[revision]] = await self._fetch(_SCHEMA)
        return str(revision)

    @override
    async def incarnations(self) -> dict[str, int]:
        return dict(await self._fetch("SELECT cluster, incarnation FROM store_positions"))

    @override
    async def recorded(self) -> dict[str, int]:
        return dict(await self._fetch("SELECT cluster, revision FROM watermarks WHERE complete"))

    @override
    async def open_changes(self, cluster: str) -> list[UUID]:
        return [row[0] for row in await self._fetch(_OPEN, [cluster])]

    @override
    def rows(self, table: str, cuts: Mapping[str, TrailCut], left_out: Sequence[UUID]) -> AsyncIterator[bytes]:
        source = SOURCES.get(table, table)
        query = f"{_CUTS} SELECT row_to_json(copied) FROM {source} AS copied WHERE {KEPT[table]}"  # noqa: S608 - constants
        return self._copied(
            f"COPY ({query}) TO STDOUT", {"cuts": _cuts(cuts), "left_out": [str(each) for each in left_out]}
        )

    @override
    def moved(self, cuts: Mapping[str, TrailCut]) -> AsyncIterator[bytes]:
        return self._copied(_MOVED, [_cuts(cuts)])

    async def _copied(self, statement: str, given: Any) -> AsyncIterator[bytes]:
        with _translated():
            async with self._connection.cursor() as cursor, cursor.copy(statement, given) as copy:
                async for row in copy:
                    # In the text format of COPY a backslash is doubled; JSON has no other character that is escaped.
                    yield bytes(row).replace(b"\\\\", b"\\").rstrip(b"\n")

    async def _fetch(self, statement: str, given: Any = None) -> list[tuple[Any, ...]]:
        with _translated():
            return await (await self._connection.execute(statement, given)).fetchall()


class PostgresTableWriter(TableWriter):
    """Writes the rows of an archive, in Postgres, as the owner of the tables."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self._triggers: list[tuple[str, str, str]] = []

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str) -> AsyncIterator[Self]:
        """Open a connection.

        Args:
            dsn: ``postgresql://...`` of the role that owns the tables.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        async with _connected(dsn) as connection:
            yield cls(connection)

    @override
    async def schema(self) -> str | None:
        with _translated():
            [[has_schema]] = await self._fetch(_HAS_SCHEMA)
            return str((await self._fetch(_SCHEMA))[0][0]) if has_schema else None

    @override
    async def counts(self) -> dict[str, int]:
        found = {}
        with _translated():
            for table in KEPT:
                [[found[table]]] = await self._fetch(f"SELECT count(*) FROM {table}")  # noqa: S608 - a constant
        return found

    @override
    async def rejected(self) -> dict[str, str]:
        with _translated():
            return dict(await self._fetch("SELECT cluster, rejected FROM store_positions WHERE rejected IS NOT NULL"))

    @override
    async def reject(self, reasons: Mapping[str, str]) -> None:
        with _translated():
            await self._connection.execute(_REJECT, [Jsonb(dict(reasons))])
            await self._connection.commit()

    @override
    async def clear(self) -> None:
        tables = [*KEPT, *(table for table in REBUILT if table != "rollup_partitions")]
        with _translated():
            await self._connection.execute(f"SET LOCAL lock_timeout = '{_BUSY_S}s'")
            self._triggers = [(table, name, state) for table, name, state in await self._fetch(_TRIGGERS, [tables])]
            for table, name, _ in self._triggers:
                await self._alter("DISABLE", table, name)
            await self._connection.execute(f"TRUNCATE {', '.join(tables)}")
            # The partitions exist, and have no rows any more.
            await self._connection.execute("UPDATE rollup_partitions SET run_id = NULL, attempt = NULL")

    @override
    async def insert(self, table: str, lines: Sequence[bytes]) -> None:
        rows = b"[" + b",".join(lines) + b"]"
        name = sql.Identifier(table)
        statement = sql.SQL(
            "INSERT INTO {table} OVERRIDING SYSTEM VALUE"
            " SELECT * FROM json_populate_recordset(CAST(NULL AS {table}), CAST(%s AS json))"
        ).format(table=name)
        with _translated():
            await self._connection.execute(statement, [rows.decode()])

    @override
    async def commit(self, reasons: Mapping[str, str], *, confirm_tokens: bool) -> None:
        with _translated():
            for table, column in await self._fetch(_IDENTITIES, [list(KEPT)]):
                await self._connection.execute(
                    sql.SQL(
                        "SELECT setval(pg_get_serial_sequence({text}, {column_text}),"
                        " coalesce(max({column}), 0) + 1, false) FROM {table}"
                    ).format(
                        text=sql.Literal(table),
                        column_text=sql.Literal(column),
                        column=sql.Identifier(column),
                        table=sql.Identifier(table),
                    )
                )
            await self._connection.execute(_REJECT, [Jsonb(dict(reasons))])
            # Processes read tokens and grants again. Tokens that were revoked since the backup are back.
            since = "tokens_from" if confirm_tokens else "now()"
            await self._connection.execute(
                f"UPDATE access_version SET version = version + 1, tokens_from = {since}"  # noqa: S608 - constants
            )
            for table, name, state in self._triggers:
                await self._alter(_ENABLE.get(state, "DISABLE"), table, name)
            # Without statistics of the new rows the statements of the adoption, which comes next, may take long.
            await self._connection.execute(f"ANALYZE {', '.join(KEPT)}")
            await self._connection.commit()

    async def _alter(self, action: str, table: str, trigger: str) -> None:
        statement = sql.SQL("ALTER TABLE {} " + action + " TRIGGER {}")
        await self._connection.execute(statement.format(sql.Identifier(table), sql.Identifier(trigger)))

    async def _fetch(self, statement: str, given: Any = None) -> list[tuple[Any, ...]]:
        return await (await self._connection.execute(statement, given)).fetchall()


def _cuts(cuts: Mapping[str, TrailCut]) -> Jsonb:
    return Jsonb(
        [
            {"cluster": cluster, "revision": cut.revision, "incarnation": cut.incarnation}
            for cluster, cut in cuts.items()
        ]
    )


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    with _translated():
        connection = await psycopg.AsyncConnection.connect(
            make_conninfo(conninfo(dsn), application_name="confplane-backup"), prepare_threshold=None
        )
    async with connection:
        try:
            yield connection
        finally:
            # Without this, the transaction of a failed command would be committed.
            await connection.rollback()


@contextmanager
def _translated() -> Iterator[None]:
    """Raise faults of the server and of rights as errors of this service."""
    try:
        yield
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.LockNotAvailable) as error:
        raise UnavailableError(
            f"Postgres: {' '.join(str(error).split())}. Stop all processes, and set postgres.migration_dsn to the role"
            " that owns the tables"
        ) from None
    except Exception as error:
        fault = faults.classify(error)
        if fault is None:
            raise
        raise faults.unavailable(fault) from error
