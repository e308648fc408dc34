"""Made-up rows written into Postgres, as the service and the recorder would have left them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import duckdb
import psycopg
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ROWS: Final = 10_000
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


def load(owner_dsn: str, sample: Path, cluster: str) -> None:
    """Write the saved frames of a made-up cluster into empty tables.

    Args:
        owner_dsn: Of the tables' owner.
        sample: The directory of the frames.
        cluster: The name that the cluster gets.
    """
    with duckdb.connect() as database, psycopg.connect(owner_dsn) as connection, connection.cursor() as cursor:
        database.execute("SET TimeZone = 'UTC'")
        for frame in ("changes", "registration_events", "states"):
            database.execute(f"CREATE VIEW {frame} AS FROM read_parquet('{sample / frame}/*.parquet')")
        for table, query in _TABLES.items():
            with cursor.copy(f"COPY {table}, cluster) FROM STDIN") as copy:
                for row in _rows(database, query):
                    copy.write_row((*row, cluster))
        for table in ("intents", "intent_entities", "outcomes", "registrations", "entity_states"):
            cursor.execute(f"ANALYZE {table}")


def _rows(database: duckdb.DuckDBPyConnection, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query; maps as JSON."""
    for batch in database.sql(query).to_arrow_table().to_batches(_ROWS):
        columns = [
            [json.dumps(dict(each)) for each in column.to_pylist()]
            if pa.types.is_map(column.type)
            else column.to_pylist()
            for column in batch.columns
        ]
        yield from zip(*columns, strict=True)
