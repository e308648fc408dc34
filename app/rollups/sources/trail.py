"""The Spark data source of Postgres: changes, registration events and states, in parts of even size."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from app.rollups.origin import Origin
from app.rollups.sources.arrow import converted
from app.rollups.sources.postgres import connected
from app.rollups.sources.tables import TABLES, Cut, KeyRange, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from app.rollups.sources.postgres import Connection

NAME: Final = "confplane_trail"

ROWS: Final = 100_000
"""Of a part where there are many: seconds of work, so that a task that is lost costs little."""
FEWEST_ROWS: Final = 10_000
"""Less is not worth a task of its own."""
_PAGE: Final = 8_192
_SAMPLED_PAGES: Final = 400


@dataclass(frozen=True, slots=True)
class Moment:
    """A snapshot of Postgres and what is read of it."""

    snapshot: str
    cut: Cut

    def as_options(self) -> dict[str, str]:
        """Return it as a data source's options, which anybody may see."""
        as_of = "" if self.cut.as_of is None else self.cut.as_of.isoformat()
        return {
            "snapshot": self.snapshot, "cluster": self.cut.cluster, "as_of": as_of,
            "last_registration": str(self.cut.last_registration),
        }  # fmt: skip

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> Moment:
        """Read it back."""
        as_of = datetime.fromisoformat(options["as_of"]) if options["as_of"] else None
        return cls(options["snapshot"], Cut(options["cluster"], as_of, int(options["last_registration"])))


def bounds(connection: Connection, table: Table, cut: Cut, parallelism: int) -> list[str]:
    """Return the keys at which a frame's parts begin, but the first part's: by a sample of the table's pages.

    Args:
        connection: At the run's snapshot.
        table: The frame.
        cut: What is read of it.
        parallelism: How many tasks run at a time.
    """
    [(size,)] = connection.rows(table.size())
    percent = min(100.0, 100 * _SAMPLED_PAGES / max(1, size / _PAGE))
    keys = sorted((key for (key,) in connection.rows(table.sample(cut, percent))), key=table.order)
    rows = len(keys) * 100 / percent
    parts = int(max(1, rows / ROWS, min(parallelism, rows / FEWEST_ROWS)))
    return list(dict.fromkeys(keys[len(keys) * part // parts] for part in range(1, parts)))


class TrailSource(DataSource):
    """One frame out of Postgres. The schema that is asked for is a part of the frame's.

    Options: ``origin``, a file on the driver (:meth:`Origin.save`); ``frame``; those of :class:`Moment`; ``bounds``, a
    JSON array; ``low``, the key at which to begin. The connection string travels within the task, as that of Spark's
    own JDBC source does, and is in no option, plan or event log.

    Filters are not pushed down. Spark 4.3 keeps the reader that took them at the table and not at the scan: of a query
    that uses one frame twice, with different filters, both scans may be given those of one.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name that the source is registered under."""
        return NAME

    def reader(self, schema: StructType) -> _Reader:
        """Return what reads the columns of a schema."""
        options = dict(self.options)
        return _Reader(
            Origin.load(Path(options["origin"])),
            options["frame"],
            schema,
            Moment.of_options(options),
            json.loads(options["bounds"]),
            options.get("low"),
        )


@dataclass
class _Part(InputPartition):
    keys: KeyRange


class _Reader(DataSourceReader):
    def __init__(
        self,
        origin: Origin,
        frame: str,
        schema: StructType,
        moment: Moment,
        begins: Sequence[str],
        low: str | None,
    ) -> None:
        self._origin = origin
        self._frame = frame
        self._schema = schema
        self._moment = moment
        self._begins = begins
        self._low = low

    def partitions(self) -> list[InputPartition]:
        """Return the ranges of keys."""
        order = TABLES[self._frame].order
        later = [key for key in self._begins if self._low is None or order(key) > order(self._low)]
        edges = [self._low, *later, None]
        return [_Part(KeyRange(low, high)) for low, high in itertools.pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range on a worker."""
        assert isinstance(partition, _Part)  # noqa: S101 - for the type checker
        schema = to_arrow_schema(self._schema, timezone="UTC")
        query = TABLES[self._frame].query(self._schema.names, self._moment.cut, partition.keys)
        with connected(self._origin.dsn, self._moment.snapshot) as connection:
            for batch in connection.batches(query):
                columns = [converted(batch.column(field.name), field) for field in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


def trail_options(origin: Path, frame: str, moment: Moment, begins: Sequence[str], low: str | None) -> dict[str, Any]:
    """Return the options of a frame; see :class:`TrailSource`."""
    options = {"origin": str(origin), "frame": frame, "bounds": json.dumps(list(begins)), **moment.as_options()}
    return options if low is None else {**options, "low": low}
