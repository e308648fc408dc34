"""The rows of runs in Postgres: written by the executors, part by part, and read back by them.

A row is one JSON object, its members named as the job's columns. Parts are ranges of the job's key, so that the part
and the number in the part give the order of the key over all rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import DoubleType, StringType

from confplane.audit.rollup_parts import RunAttempt, check_parts, fold_id, read_part, write_part
from confplane.domain.texts import LONGEST_INDEXED
from confplane.rollups.source_binding import register
from confplane.rollups.sources.trail import group_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pydantic import SecretStr
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

    from confplane.rollups.job import Fold, Job

NAME: Final = "confplane_run"
_JSON: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX", "timeZone": "UTC"}
_NULL: Final = "\\N"
_ENTITY: Final = "entity_id"
_ITEM: Final = "item"


def sort_rows(frame: DataFrame, job: Job, most_parts: int | None = None) -> DataFrame:
    """Return the rows in the order of the job's key over all partitions, with a maximum number of partitions."""
    if most_parts is None:
        return frame.orderBy(*job.key)
    return frame.repartitionByRange(most_parts, *job.key).sortWithinPartitions(*job.key)


class RunStore:
    """The rows of runs, for a driver: written and read back by the executors.

    Args:
        spark: The session.
        dsn: ``postgresql://...`` with the service's role.
        most_parts: The maximum number of tasks that read a run's rows concurrently; None for one per part.
    """

    def __init__(self, spark: SparkSession, dsn: SecretStr, most_parts: int | None = None) -> None:
        self._spark = spark
        self._most_parts = most_parts
        self._source = register(spark, RunSource, dsn=dsn)

    def publish(self, frame: DataFrame, job: Job, *, run_id: UUID, attempt: RunAttempt) -> None:
        """Write the rows of a run, each of the frame's partitions as a part.

        Args:
            frame: The rows, as :func:`sort_rows` returns them.
            job: The job of the rows.
            run_id: A run that is begun and held (:class:`confplane.audit.rollup_runs.RollupRuns`).
            attempt: The attempt at the run.
        """
        self._write(frame, job.output, job.rollup.entity, run_id, attempt, run_id)

    def hand_on(self, frame: DataFrame, fold: Fold, *, run_id: UUID, attempt: RunAttempt) -> None:
        """Write the fold of a run, in any order, like :meth:`publish`."""
        few = frame if self._most_parts is None else frame.coalesce(self._most_parts)
        self._write(few, fold.schema, None, run_id, attempt, fold_id(run_id))

    def _write(
        self, frame: DataFrame, schema: StructType, entity: str | None, run_id: UUID, attempt: RunAttempt, under: UUID
    ) -> None:
        given = {"run": run_id, "under": under, "attempt": attempt.number, "partition": attempt.partition}
        items = frame.select(
            (F.lit(None).cast("string") if entity is None else F.col(entity)).alias(_ENTITY),
            F.to_json(
                F.struct(*[_storable(field).alias(field.name) for field in schema.fields]),
                {**_JSON, "ignoreNullFields": "false"},
            ).alias(_ITEM),
        )
        items.write.format(self._source).mode("append").options(
            **{key: str(value) for key, value in given.items()}
        ).save()

    def rows(self, schema: StructType, *, run_id: UUID, parts: Sequence[int]) -> DataFrame:
        """Return the rows of a complete run, or of a fold by its id, in any order."""
        options = {"under": str(run_id), "parts": json.dumps(group_parts(parts, self._most_parts))}
        items = self._spark.read.format(self._source).options(**options).schema(f"{_ITEM} string").load()
        row = F.from_json(_ITEM, schema, {**_JSON, "mode": "FAILFAST"})
        return items.select(row.alias("row")).select("row.*")


class RunSource(DataSource):
    """The rows of one run, or of its fold: written as ``entity_id`` and ``item``, read as ``item``.

    Its class has ``dsn``, a connection string (rollups/source_binding.py). Options: ``under``, the id of the rows; to
    write, ``run``, ``attempt`` and ``partition``; to read, ``parts``, a JSON array of arrays: the parts that a task
    reads one after the other.
    """

    dsn: SecretStr

    @classmethod
    def name(cls) -> str:
        """Return the name of the source, without bound values."""
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> _RunWriter:  # noqa: FBT001 - Spark's signature
        """Return the writer of the parts."""
        del schema, overwrite
        run_id, under = UUID(self.options["run"]), UUID(self.options["under"])
        attempt = RunAttempt(int(self.options["attempt"]), int(self.options["partition"]))
        return _RunWriter(self.dsn.get_secret_value(), run_id, attempt, under)

    def reader(self, schema: StructType) -> _RunReader:
        """Return the reader of the parts."""
        del schema
        return _RunReader(self.dsn.get_secret_value(), UUID(self.options["under"]), json.loads(self.options["parts"]))


@dataclass
class _WriteResult(WriterCommitMessage):
    part: int
    rows: int


@dataclass
class _RunWriter(DataSourceArrowWriter):
    dsn: str = field(repr=False)
    run_id: UUID
    attempt: RunAttempt
    under: UUID

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _WriteResult:
        """Write one partition as the part of its number."""
        context = TaskContext.get()
        assert context is not None  # noqa: S101 - for the type checker: this runs in a task
        part = context.partitionId()
        pieces = encode_copy(f"{self.attempt.partition}\t{self.under}\t{part}", iterator)
        return _WriteResult(part, write_part(self.dsn, self.run_id, self.attempt, part, pieces, under=self.under))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Check, on the driver, that Postgres has the parts that the tasks report as written."""
        written = {each.part: each.rows for each in messages if isinstance(each, _WriteResult)}
        if len(written) != len(messages):
            raise RuntimeError(f"{len(messages)} tasks wrote {len(written)} parts")
        check_parts(self.dsn, self.under, written)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the runner gives the run up."""


@dataclass
class _RunPartition(InputPartition):
    numbers: list[int]


@dataclass
class _RunReader(DataSourceReader):
    dsn: str = field(repr=False)
    run_id: UUID
    parts: Sequence[list[int]]

    def partitions(self) -> list[InputPartition]:
        """Return the parts; for a run without rows, one empty part."""
        return [_RunPartition(numbers) for numbers in self.parts or [[]]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the parts of a task."""
        assert isinstance(partition, _RunPartition)  # noqa: S101 - for the type checker
        for number in partition.numbers:
            for items in read_part(self.dsn, self.run_id, number):
                yield pa.RecordBatch.from_pydict({_ITEM: pa.array(items, pa.string())})


def encode_copy(place: str, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[bytes, int]]:
    """Return rows in COPY's text format, one chunk per batch, with their number.

    Args:
        place: The columns before the number in the part, the same for all rows.
        batches: The rows.
    """
    start = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        numbers = pc.cast(pa.array(range(start, start + batch.num_rows), pa.int64()), pa.string())
        entities = batch.column(_ENTITY)
        # A row whose entity no index takes is in the result, and not found by its entity.
        indexed = pc.if_else(pc.less_equal(pc.binary_length(entities), LONGEST_INDEXED), entities, None)
        entities = pc.coalesce(_escaped(indexed), _NULL)
        lines = pc.binary_join_element_wise(place, numbers, entities, _escaped(batch.column(_ITEM)), "\t")
        whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
        yield pc.binary_join(whole, "\n")[0].as_buffer().to_pybytes() + b"\n", batch.num_rows
        start += batch.num_rows


def _storable(field: StructField) -> Column:
    """Return a column in a form that JSONB can hold: no text has a NUL, and no number is infinite or NaN."""
    column = F.col(field.name)
    if isinstance(field.dataType, StringType):
        return F.translate(column, "\0", "\ufffd")
    if isinstance(field.dataType, DoubleType):
        return F.when(F.abs(column) < float("inf"), column)
    return column


def _escaped(column: Any) -> Any:
    # JSON escapes all control characters itself, and ids have none.
    return pc.replace_substring(column, "\\", "\\\\")
