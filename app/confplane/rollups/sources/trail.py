"""The Spark data source of Postgres: the frames of its tables (rollups/sources/tables.py), in parts of even size."""

from __future__ import annotations

import itertools
import json
import random
from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from confplane.rollups.sources.arrow import convert
from confplane.rollups.sources.postgres import open_transaction
from confplane.rollups.sources.tables import TABLES, KeyRange, Table, TableScope

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from confplane.rollups.origin import Origin
    from confplane.rollups.sources.postgres import ReadOnlyTransaction

    T = TypeVar("T")


NAME: Final = "confplane_trail"

ROWS: Final = 100_000
"""Rows of a part of a large frame: seconds of work, so that losing a task costs little."""
FEWEST_ROWS: Final = 10_000
"""The minimum number of rows of a part: fewer are not worth a separate task."""
MOST_PARTS: Final = 1_000
"""The maximum number of parts, unless more tasks run concurrently; a larger frame has larger parts. Each part costs
sampled pages."""
PAGES: Final = 64
"""Pages sampled for each part. With this number, parts are even regardless of the order of pages."""
STRETCH_SAMPLE: Final = 256
"""Pages to sample first in each stretch of a table, if only rows from a key on are read."""
_ROWS_OF_A_PAGE: Final = 100
"""Rows of a page, rarely exceeded. Gives the number of parts before any row is read."""


class KeyPages(Protocol):
    """The pages of the table with a frame's keys."""

    count: int

    def keys(self, numbers: Sequence[int]) -> pa.ListArray:
        """Return the keys on some pages, in any order: a list for each page that has any."""


@dataclass(frozen=True, slots=True)
class PostgresSnapshot:
    """An exported snapshot of Postgres, and the scope of the run."""

    snapshot: str
    scope: TableScope

    def as_options(self) -> dict[str, str]:
        """Return the snapshot as options of a data source. Options are not secret."""
        as_of = "" if self.scope.as_of is None else self.scope.as_of.isoformat()
        return {
            "snapshot": self.snapshot, "cluster": self.scope.cluster, "as_of": as_of,
            "last_registration": str(self.scope.last_registration),
            "reported_since": self.scope.reported_since.isoformat(),
        }  # fmt: skip

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> PostgresSnapshot:
        """Parse the options of :meth:`as_options`."""
        as_of = datetime.fromisoformat(options["as_of"]) if options["as_of"] else None
        since = datetime.fromisoformat(options["reported_since"])
        return cls(options["snapshot"], TableScope(options["cluster"], as_of, int(options["last_registration"]), since))


class TablePages:
    """The pages of a table, at the snapshot of a run.

    Args:
        connection: A connection at the run's snapshot.
        table: The frame.
        scope: The rows to read.
    """

    def __init__(self, connection: ReadOnlyTransaction, table: Table, scope: TableScope) -> None:
        self._connection = connection
        self._table = table
        self._scope = scope
        [(self.count,)] = connection.rows(table.size())

    def keys(self, numbers: Sequence[int]) -> pa.ListArray:
        """Return the keys on some pages: see :class:`KeyPages`."""
        batches = list(self._connection.batches(self._table.pages(self._scope, numbers)))
        if not batches:
            return pa.array([], pa.list_(pa.string()))
        return pa.concat_arrays([batch.column(0) for batch in batches])


def bounds(pages: KeyPages, parallelism: int, low: str | None = None) -> list[str]:
    """Return the keys at which a frame's parts begin, except the first part's, so that parts have even sizes.

    Rows of one page have neighbouring keys, so the precision of a sample depends on its number of pages: :data:`PAGES`
    for each part, one of each run of pages, at random. If rows are in the order of their keys, as they usually are,
    fewer would suffice.

    Args:
        pages: The pages of the frame's table.
        parallelism: The number of concurrent tasks.
        low: The lowest key to read, or None for all. Rows from this key on are mostly at the end of the table: a small
            sample of each stretch shows where to sample more pages. Stretches nearer to the end are shorter.
    """
    if low is None:
        most_rows = pages.count * _ROWS_OF_A_PAGE
        samples = [_sample(pages, range(pages.count), PAGES * max(1, _parts(most_rows, parallelism)))]
    else:
        samples = [_sample(pages, each, STRETCH_SAMPLE, low) for each in _stretches(pages.count)]
        rows = max(1, sum(each.rows for each in samples))
        wanted = PAGES * _parts(rows, parallelism)
        needed = [wanted * each.rows / rows * len(each.sampled) / max(1, each.hits) for each in samples]
        part = min(1, PAGES * MOST_PARTS / max(1, sum(needed)))
        samples = [
            _sample(pages, each.numbers, int(part * count), low) if part * count > len(each.sampled) else each
            for each, count in zip(samples, needed, strict=True)
        ]
    parts = _parts(sum(each.rows for each in samples), parallelism)
    if any(len(each.sampled) < len(each.numbers) for each in samples):
        parts = min(parts, max(1, sum(each.hits for each in samples) // PAGES))
    found = sorted((key, weight) for each in samples for weight in [each.weight] for key in each.keys)
    upto = list(itertools.accumulate(weight for _, weight in found))
    begins = (found[bisect_right(upto, upto[-1] * part / parts)][0] for part in range(1, parts))
    return [str(key) for key in dict.fromkeys(begins)]


def index_bounds(connection: ReadOnlyTransaction, table: Table, keys: KeyRange) -> list[str]:
    """Return the keys that divide a range of a frame into parts of :data:`ROWS` rows, by an index-only query.

    Rows of other clusters are counted as well, so parts may be smaller.
    """
    return [str(key) for (key,) in connection.rows(table.every(ROWS, keys))]


@dataclass(frozen=True, slots=True)
class _Sample:
    """Keys on the sampled pages of a stretch of a table."""

    numbers: range
    sampled: Sequence[int]
    keys: list[Any]
    hits: int
    """Pages with any of the keys."""

    @property
    def weight(self) -> float:
        """The number of pages that each page of the sample represents."""
        return len(self.numbers) / max(1, len(self.sampled))

    @property
    def rows(self) -> float:
        """The estimated number of rows of the stretch."""
        return len(self.keys) * self.weight


def _sample(pages: KeyPages, numbers: range, count: int, low: str | None = None) -> _Sample:
    sampled = [numbers[each] for each in _one_of_each_run(len(numbers), count)]
    found = pages.keys(sampled)
    keys, pages_of_keys = found.flatten(), pc.list_parent_indices(found)
    if low is not None:
        is_read = pc.greater_equal(keys, pa.scalar(low).cast(keys.type))
        keys, pages_of_keys = keys.filter(is_read), pages_of_keys.filter(is_read)
    return _Sample(numbers, sampled, keys.to_pylist(), len(pages_of_keys.unique()))


def _stretches(count: int) -> list[range]:
    """Divide the numbers below ``count`` into stretches: each but the last is three times as long as all after it."""
    edges, length = [count], STRETCH_SAMPLE
    while length < count:
        edges.append(count - length)
        length *= 4
    return [range(low, high) for high, low in itertools.pairwise([*edges, 0])]


def _parts(rows: float, parallelism: int) -> int:
    """Return the number of parts of a frame with a number of rows."""
    return int(max(1, min(MOST_PARTS, rows / ROWS), min(parallelism, rows / FEWEST_ROWS)))


def _one_of_each_run(count: int, runs: int) -> list[int]:
    """Divide the numbers below ``count`` into runs, and return one of each run; or all numbers if there are fewer."""
    if count <= runs:
        return list(range(count))
    choose = random.Random(count)  # noqa: S311 - deterministic for a table, and not security-relevant
    return [choose.randrange(count * run // runs, count * (run + 1) // runs) for run in range(runs)]


class TrailSource(DataSource):
    """One frame of Postgres. The requested schema is a part of the frame's.

    Its class has the attribute ``origin`` (rollups/source_binding.py). Options:

    - ``frame``, and those of :class:`PostgresSnapshot`;
    - ``bounds`` and ``ranges``, JSON arrays: the keys at which parts begin, and the ranges of keys to read, in order;
    - ``most_parts``: the number of parts into which neighbouring ranges are grouped, or empty.

    Filters are not pushed down. Spark 4.3 stores the reader with the filters at the table and not at the scan: in a
    query that uses one frame twice with different filters, both scans may get the same filters.
    """

    origin: Origin

    @classmethod
    def name(cls) -> str:
        """Return the name of the source, without bound values."""
        return NAME

    def reader(self, schema: StructType) -> _TrailReader:
        """Return the reader of a schema's columns."""
        options = dict(self.options)
        return _TrailReader(
            self.origin,
            options["frame"],
            schema,
            moment=PostgresSnapshot.of_options(options),
            begins=json.loads(options["bounds"]),
            ranges=[KeyRange(*each) for each in json.loads(options["ranges"])],
            most_parts=int(options["most_parts"]) if options["most_parts"] else None,
        )


@dataclass
class _TrailPartition(InputPartition):
    keys: list[KeyRange]
    """The ranges of keys, read one after the other over one connection."""


@dataclass
class _TrailReader(DataSourceReader):
    origin: Origin
    frame: str
    schema: StructType
    moment: PostgresSnapshot
    begins: Sequence[str]
    ranges: Sequence[KeyRange]
    most_parts: int | None

    def partitions(self) -> list[InputPartition]:
        """Return the ranges of keys, cut where parts begin."""
        order = TABLES[self.frame].order
        parts: list[KeyRange] = []
        for keys in self.ranges:
            within = [
                key
                for key in self.begins
                if (keys.low is None or order(key) > order(keys.low))
                and (keys.high is None or order(key) < order(keys.high))
            ]
            edges = [keys.low, *within, keys.high]
            parts += [KeyRange(low, high) for low, high in itertools.pairwise(edges)]
        return [_TrailPartition(keys) for keys in group_parts(parts, self.most_parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range on a worker."""
        assert isinstance(partition, _TrailPartition)  # noqa: S101 - for the type checker
        schema = to_arrow_schema(self.schema, timezone="UTC")
        table = TABLES[self.frame]
        queries = [table.query(self.schema.names, self.moment.scope, keys) for keys in partition.keys]
        with open_transaction(self.origin.dsn, self.moment.snapshot) as connection:
            for batch in itertools.chain.from_iterable(map(connection.batches, queries)):
                columns = [convert(batch.column(field.name), field) for field in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


def trail_options(
    frame: str, moment: PostgresSnapshot, begins: Sequence[str], *ranges: KeyRange, most_parts: int | None = None
) -> dict[str, Any]:
    """Return the options of a frame; see :class:`TrailSource`."""
    return {
        "frame": frame,
        "bounds": json.dumps(list(begins)),
        "ranges": json.dumps([[each.low, each.high] for each in ranges]),
        "most_parts": most_parts or "",
        **moment.as_options(),
    }


def group_parts(parts: Sequence[T], most: int | None) -> list[list[T]]:
    """Group neighbouring parts into at most ``most`` lists of even length; one list per part if ``most`` is None."""
    count = len(parts) if most is None else min(most, len(parts))
    return [[*parts[len(parts) * at // count : len(parts) * (at + 1) // count]] for at in range(count)]
