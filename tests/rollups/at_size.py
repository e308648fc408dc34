"""A made-up cluster of any size with rows and znodes that do not fit, in real stores; and the references of all jobs."""

from __future__ import annotations

import gc
import itertools
import json
import random
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from confplane.domain.entities import Entity
from confplane.rollups import history, schemas
from confplane.rollups.jobs import JOBS
from tests.bench.sample import clients
from tests.bench.sample.files import write_frame
from tests.bench.sample.trail import Trail
from tests.rollups import samples
from tests.rollups.lake import limited
from tests.rollups.references import compare, integrity, usage
from tests.support import zookeeper_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import duckdb

    from tests.bench.sample.trail import Plan


Row = dict[str, Any]

CLUSTER: Final = "default"
CAPACITY: Final = {"producer_byte_rate": 2.5e9, "request_percentage": 800.0}
BY_SQL: Final = ("compatibility", "drift", "impact", "quotas", "activity")
OF_THE_TRAIL: Final = (*BY_SQL, "integrity")
"""The jobs that a lake has all frames of."""
SECRET: Final = "told to nobody"

_MADE_UP: Final = "made.up.key"
_MINUTES: Final = 12
_ROWS: Final = 10_000
_OF_A_PLACE: Final = "ORDER BY path, entity_id"


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable Python's collector, which would walk millions of rows again and again: a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@dataclass
class AtSize:
    """The cluster.

    Attributes:
        plan: The size.
        directory: The directory of the frames as the stores have them, and of the options' files.
        odds: One of so many changes is tampered with, and one of so many znodes, in each way.
    """

    plan: Plan
    directory: Path
    odds: int = 500

    @_uncollected()
    def make(self, zookeeper: Path) -> None:
        """Write the frames and the options' files, and the files of a ZooKeeper that is not started yet."""
        chosen = random.Random(self.plan.seed)  # noqa: S311 - of no use to an attacker
        trail = Trail(self.plan)
        self.directory.mkdir()
        self._write("changes", _tampered(trail.rows(), chosen, self.odds))
        self._write("registration_events", clients.events(self.plan, trail.members))
        self._write("reports", ())  # a lake has none
        self._write("refused_attempts", ())  # as above
        self._write("topics", ())  # as above
        self._write("states", trail.states())
        znodes = [_as_stored(row) for row in _by_hand(_named("znodes", trail.znodes()), chosen, trail.zxid, self.odds)]
        self._write("znodes", (tuple(row[name] for name in schemas.ZNODES.names) for row in znodes))
        zookeeper_files.write(zookeeper, map(_stored, znodes), trail.zxid + 100)
        self._trail = trail
        self._write_options(znodes, chosen)

    def fill(self, database: Any) -> None:
        """Write the rows of the tables."""
        load(database.owner_dsn, self.directory, CLUSTER)
        with psycopg.connect(database.owner_dsn) as connection:
            connection.execute(
                "INSERT INTO watermarks (cluster, revision, complete, since, since_at) VALUES (%s, %s, true, %s, %s)",
                [CLUSTER, self._trail.zxid, self._trail.since, self.plan.begin - timedelta(days=1)],
            )

    @property
    def revisions(self) -> dict[str, Any]:
        """The options of a run that takes the trail and the znodes as they are, and a recorder that has seen less."""
        trail = self._trail
        reached = trail.zxid + 100
        return {
            "as_of": trail.now + timedelta(days=1), "begin": trail.begin, "ceiling": reached, "floor": reached, "horizon": reached,
            "recorded_since": trail.since, "watermark": trail.zxid,
        }  # fmt: skip

    @property
    def capacity(self) -> Path:
        return self.directory / "capacity.yaml"

    @property
    def teams(self) -> Path:
        return self.directory / "teams.yaml"

    @property
    def usage(self) -> Path:
        """The measurements."""
        return self.directory / "usage.parquet"

    @property
    def earlier(self) -> datetime:
        """The time with which the cluster is compared."""
        return self.plan.begin + (self.plan.end - self.plan.begin) / 3

    def _write(self, name: str, rows: Any) -> None:
        write_frame(self.directory / name, samples.STORED[name], rows)

    def _write_options(self, znodes: list[Row], chosen: random.Random) -> None:
        self.capacity.write_text(yaml.safe_dump(dict(CAPACITY)))
        found = samples.TEAMS
        teams: dict[str, list[str]] = {}
        for team, names in found.names:
            teams.setdefault(team, []).extend(names)
        for pattern, team in found.patterns:
            teams.setdefault(team, []).append(pattern)
        self.teams.write_text(yaml.safe_dump({"teams": teams, "default": found.default}, sort_keys=False))
        pq.write_table(measured([row["entity_id"] for row in znodes], chosen), self.usage)

    # -- the references

    def check(self, name: str, files: str) -> int:
        """Compare a job's rows in Parquet files with its reference, and return how many there are."""
        if name in BY_SQL:
            wanted = self.directory / f"{name}.parquet"
            if not wanted.exists():
                samples.write_reference(name, self.directory, CAPACITY, wanted)
            return samples.compare_files(name, files, wanted)
        expected = self.expected(name)
        columns = [field.name for field in JOBS[name].output.fields]
        with limited() as database:
            rows = database.execute(f"SELECT {', '.join(columns)} FROM read_parquet('{files}')").fetchall()  # noqa: S608
        found = {_plain(name, row) for row in rows}
        assert len(found) == len(rows)
        assert (sorted(expected - found, key=repr)[:5], sorted(found - expected, key=repr)[:5]) == ([], [])
        return len(found)

    @_uncollected()
    def expected(self, name: str) -> set[tuple[Any, ...]]:
        """The rows of the references in Python."""
        made = {"integrity": lambda: self._integrity, "compare": lambda: self._compare, "usage": lambda: self._usage}
        return made[name]()

    @cached_property
    def _integrity(self) -> set[tuple[Any, ...]]:
        options = integrity.Options(**self.revisions)
        places = {
            frame: {(row["tree"], row["entity_id"]): row for row in self._rows(frame)} for frame in ("znodes", "states")
        }
        changes = self._rows("changes", integrity.COLUMNS, order=_OF_A_PLACE)
        rows = integrity.integrity(changes, places["znodes"], places["states"], options)
        return {_plain("integrity", row) for row in rows}

    @cached_property
    def _compare(self) -> set[tuple[Any, ...]]:
        changes = self._rows("changes", history.CHANGE_COLUMNS, order=_OF_A_PLACE)
        then = compare.znodes_at(changes, self._rows("znodes"), self.earlier)
        return compare.compare(self._rows("znodes"), then, self.earlier.isoformat())

    @cached_property
    def _usage(self) -> set[tuple[Any, ...]]:
        names = [field.name for field in JOBS["usage"].output.fields]
        measured = pq.read_table(self.usage).rename_columns(schemas.USAGE.names).to_pylist()
        rows = usage.usage(measured, self._rows("znodes"), CAPACITY)
        return {_plain("usage", tuple(row[name] for name in names)) for row in rows}

    def _rows(self, frame: str, columns: tuple[str, ...] | None = None, order: str = "") -> Iterator[Row]:
        """Yield the rows of a frame, maps as dictionaries."""
        names = columns or tuple(samples.STORED[frame].names)
        with limited() as database:
            query = f"SELECT {', '.join(names)} FROM read_parquet('{self.directory / frame}/*.parquet') {order}"  # noqa: S608
            for batch in database.sql(query).to_arrow_reader(_ROWS):
                for row in zip(*map(_values, batch.columns), strict=True):
                    yield dict(zip(names, row, strict=True))


def _values(column: pa.Array) -> list[Any]:
    """The values of a column, maps as dictionaries: all pairs at once, as a conversion of each map takes longer."""
    if not pa.types.is_map(column.type):
        return list(column.to_pylist())
    pairs = list(zip(column.keys.to_pylist(), column.items.to_pylist(), strict=True))
    return [dict(pairs[begin:end]) for begin, end in itertools.pairwise(column.offsets.to_pylist())]


def _named(frame: str, rows: Any) -> Iterator[Row]:
    return (dict(zip(samples.STORED[frame].names, row, strict=True)) for row in rows)


def _tampered(rows: Any, chosen: random.Random, odds: int) -> Iterator[tuple[Any, ...]]:
    """Yield changes; a few are missing, and a few have another value than was written."""
    at = schemas.CHANGES.names.index("after")
    for row in rows:
        draw = chosen.random() * odds
        if draw < 1:
            continue
        known = [key for key, value in row[at].items() if value is not None] if draw < 2 else []
        yield (*row[:at], {**row[at], known[0]: "31"}, *row[at + 1 :]) if known else row


def _by_hand(znodes: Iterator[Row], chosen: random.Random, zxid: int, odds: int) -> Iterator[Row]:
    """Yield znodes; a few were deleted, written again, or made anew, which nobody recorded."""
    for row in znodes:
        draw = chosen.random() * odds
        is_leaf = "/clients/" in row["path"] or not row["path"].startswith("/config/users/")
        if draw < 1 and is_leaf:
            continue
        if draw < 2:
            row |= {"version": row["version"] + 1}
        elif draw < 3:
            row |= {"config": {**row["config"], _MADE_UP: None}, "version": row["version"] + 1, "mzxid": zxid + 1}
        elif draw < 4 and is_leaf:
            row |= {"czxid": zxid + 2, "mzxid": zxid + 2, "version": 0}
        elif draw < 6 and row["entity_id"].startswith("topic="):
            yield {**row, "entity_id": f"{row['entity_id']}.by-hand", "path": f"{row['path']}.by-hand"}
        yield row


def _as_stored(row: Row) -> Row:
    """The row of a znode whose secrets have no key by which they could be distinguished."""
    secrets = [key for key, value in row["config"].items() if value is None]
    return row | {"fingerprints": dict.fromkeys(secrets if row["entity_id"].startswith("broker") else ())}


def _stored(row: Row) -> zookeeper_files.Stored:
    config = {key: SECRET if value is None else value for key, value in row["config"].items()}
    content = json.dumps({"version": 1, "config": config}).encode()
    return zookeeper_files.Stored(
        row["path"], content, row["czxid"], row["mzxid"], row["mtime"] // 1000, row["version"]
    )


def measured(entity_ids: Iterable[str], chosen: random.Random) -> pa.Table:
    """Measurements of some clients on two brokers; the values are eighths, so that sums are exact in any order."""
    found = [each for each in entity_ids if each.startswith(("user=", "client-id="))]
    rows: list[tuple[Any, ...]] = []
    for entity_id in chosen.sample(found, min(len(found), 20_000)):
        parts = dict(Entity.from_id(entity_id).components)
        if None in parts.values():
            continue
        named = {kind.value: name for kind, name in parts.items()}
        metric, most = chosen.choice(usage.KEYS), 8 * 10 ** chosen.randrange(1, 7)
        for minute in range(_MINUTES):
            at = datetime(2026, 5, 1, 12, minute, tzinfo=UTC)
            rows += [(at, named.get("user"), named.get("client-id"), metric, chosen.randrange(most) / 8) for _ in "ab"]
    kinds = (pa.timestamp("us", tz="UTC"), pa.string(), pa.string(), pa.string(), pa.float64())
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.Table.from_arrays(arrays, names=["time", "user", "client-id", "metric", "value"])


def _plain(name: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row whose numbers that were added up in another order, and whose JSON, are alike."""
    if name != "usage":
        return row
    *cells, proposal, default = row
    bodies = (body and json.dumps(json.loads(body), sort_keys=True) for body in (proposal, default))
    return (*(float(f"{cell:.12g}") if isinstance(cell, float) else cell for cell in cells), *bodies)


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
