"""Made-up rows written into Postgres, as the service and the recorder would have left them."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg

from tests.rollups.limited import limited

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

_CHUNK: Final = 1 << 20
_ATTEMPT: Final = "change_id, attempt"

_INTENTS: Final = f"""
SELECT {_ATTEMPT}, any_value(principal), '', any_value(source), any_value(request_id), any_value(reason),
  any_value(ticket), any_value(recorded_at), any_value(kind), any_value(writes)
FROM changes GROUP BY {_ATTEMPT}
"""  # noqa: S608 - constants
_ENTITIES: Final = f"""
SELECT {_ATTEMPT}, position, entity_id, facet, path, version_read, czxid_read, keys, ops, before, after FROM changes
"""  # noqa: S608 - constants
_OUTCOMES: Final = f"""
SELECT {_ATTEMPT}, any_value(outcome) = 'committed', any_value(revision), any_value(time),
  coalesce(map_from_entries(list((path, version)) FILTER (version IS NOT NULL)), map()), any_value(error_code),
  any_value(error), any_value(concluded_at)
FROM changes WHERE outcome <> 'open' GROUP BY {_ATTEMPT}
"""  # noqa: S608 - constants
_REGISTRATIONS: Final = """
SELECT id, event, entity_id, software_name, software_version, supported_configs, seen_at, seen_at::date,
  if(event = 'cleared', 'p', NULL), if(event = 'cleared', 'r', NULL), recorded_at
FROM registration_events ORDER BY id
"""
_TABLES: Final = {
    f"intents ({_ATTEMPT}, principal, writer, source, request_id, reason, ticket, recorded_at, kind, writes": _INTENTS,
    f"intent_entities ({_ATTEMPT}, position, entity_id, facet, path, version_read, czxid_read, keys, ops, before,"
    " after": _ENTITIES,
    f"outcomes ({_ATTEMPT}, committed, revision, time, versions, error_code, error, recorded_at": _OUTCOMES,
    "registrations (id, event, entity_id, software_name, software_version, supported_configs, seen_at, seen_on,"
    " principal, request_id, recorded_at": _REGISTRATIONS,
    "entity_states (tree, entity_id, present, czxid, version, mzxid, content": (
        "SELECT tree, entity_id, present, czxid, version, mzxid, content FROM states"
    ),
}
"""Table and columns -> their rows, as of the saved frames. The cluster comes last."""

_FILLED: Final = [each.partition(" ")[0] for each in _TABLES]
_INDEXES: Final = """
SELECT indrelid::regclass, indexrelid::regclass, pg_get_indexdef(indexrelid), conname, pg_get_constraintdef(c.oid)
FROM pg_index LEFT JOIN pg_constraint AS c ON conindid = indexrelid WHERE indrelid = ANY(%s::regclass[])
"""

_ARRAY: Final = r"""
'{{' || array_to_string([concat('"', regexp_replace(each, '(["\\])', '\\\1', 'g'), '"') FOR each IN {0}], ',') || '}}'
"""
"""A list as PostgreSQL writes an array."""


def load(owner_dsn: str, sample: Path, cluster: str) -> None:
    """Write the saved frames of a made-up cluster into empty tables.

    Args:
        owner_dsn: Of the tables' owner.
        sample: The directory of the frames.
        cluster: The name that the cluster gets.
    """
    with (
        tempfile.TemporaryDirectory() as scratch,
        limited() as database,
        psycopg.connect(owner_dsn) as connection,
        connection.cursor() as cursor,
    ):
        for frame in ("changes", "registration_events", "states"):
            database.execute(f"CREATE VIEW {frame} AS FROM read_parquet('{sample / frame}/*.parquet')")
        file = Path(scratch) / "rows.csv"
        with _without_indexes(cursor):
            for table, query in _TABLES.items():
                rows = f"SELECT {_as_text(database, query)}, '{cluster}' FROM ({query})"  # noqa: S608 - of a test
                database.execute(f"COPY ({rows}) TO '{file}' (FORMAT csv, HEADER false)")
                with file.open("rb") as found, cursor.copy(f"COPY {table}, cluster) FROM STDIN (FORMAT csv)") as copy:
                    shutil.copyfileobj(found, copy, _CHUNK)
        for table in _FILLED:
            cursor.execute(f"ANALYZE {table}")


@contextmanager
def _without_indexes(cursor: psycopg.Cursor[Any]) -> Iterator[None]:
    """Drop the indexes and keys of the tables, and build them behind the block, in less time than row by row."""
    found = cursor.execute(_INDEXES, [_FILLED]).fetchall()
    for table, index, _, key, _ in found:
        cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {key}" if key else f"DROP INDEX {index}")
    yield
    cursor.execute("SET LOCAL maintenance_work_mem = '1GB'")
    for table, _, index, key, constraint in found:
        cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {key} {constraint}" if key else index)


def _as_text(database: duckdb.DuckDBPyConnection, query: str) -> str:
    """Return the columns of a query as PostgreSQL reads them: maps as JSON, lists as arrays."""
    kinds = [str(row[1]) for row in database.execute(f"DESCRIBE {query}").fetchall()]
    return ", ".join(
        f"to_json(#{at})" if kind.startswith("MAP") else _ARRAY.format(f"#{at}") if kind.endswith("[]") else f"#{at}"
        for at, kind in enumerate(kinds, 1)
    )
