"""A lake of the runs' rows: Parquet on any file system that Hadoop supports, laid out for readers with nothing else.

::

    OUTPUT/job=drift/as_of_date=2026-01-31/run_id=UUID/   the rows of a run; _run.json; _SUCCESS, once they are complete
    OUTPUT/_current/drift/payments.json                   the current run of a cluster
    OUTPUT/_schemas/drift/1.json                          the columns, as JSON Schema, by version
    OUTPUT/_incomplete/payments/drift/UUID/rows/          the rows of a run in progress

The files of a run are written below ``_incomplete``. Once the run is complete in Postgres, one rename moves them into
place; ``_run.json`` and ``_SUCCESS`` follow, and finally the pointer to the current run. If a rename is atomic (local
disks, HDFS), a directory in place is complete. Object stores copy file by file instead, and there only ``_SUCCESS`` and
the pointer show that a directory is complete. A run never replaces the files of another run, regardless of its outcome.

Times are UTC. The rows are in the order of the job's key, file by file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from py4j.protocol import Py4JError
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

from confplane.domain.rollups import ROLLUPS, Column, ColumnType
from confplane.rollups.errors import SparkFailedError
from confplane.rollups.sinks.files import Files
from confplane.rollups.sources.tables import time_of
from confplane.services.ports.rollups import KEEP_RUNS, KEEP_S

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from confplane.domain.rollups import Rollup
    from confplane.services.ports.rollups import RollupRun


OF_THE_RUN: Final = (
    Column("cluster", ColumnType.STRING, "The cluster of the row"),
    Column("run_id", ColumnType.STRING, "The run that made the row; a UUID whose order is that of time"),
    Column("as_of", ColumnType.TIMESTAMP, "UTC; the moment that the run describes"),
)
"""The columns that each row has before those of its rollup."""

_TYPES: Final[dict[ColumnType, dict[str, Any]]] = {
    ColumnType.STRING: {"type": "string"},
    ColumnType.INT: {"type": "integer", "format": "int32"},
    ColumnType.LONG: {"type": "integer", "format": "int64"},
    ColumnType.DOUBLE: {"type": "number", "format": "double"},
    ColumnType.BOOLEAN: {"type": "boolean"},
    ColumnType.DATE: {"type": "string", "format": "date"},
    ColumnType.TIMESTAMP: {"type": "string", "format": "date-time"},
    ColumnType.TEXTS: {"type": "array", "items": {"type": "string"}},
}


def row_schema(rollup: Rollup) -> dict[str, Any]:
    """Return the JSON Schema of a row; its properties are in the order of the columns."""
    columns = (*OF_THE_RUN, *rollup.columns)
    name = f"{rollup.name}:{rollup.version}"
    return document(name, rollup.question, {column.name: _described(column) for column in columns})


def document(
    name: str, description: str, properties: Mapping[str, Mapping[str, Any]], absent: Container[str] = ()
) -> dict[str, Any]:
    """Return the JSON Schema of a file's rows.

    Args:
        name: The rows, and the version of their columns: ``drift:1``.
        description: One row, in words.
        properties: Column -> its schema, in order.
        absent: Columns that files may lack.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:confplane:rollups:{name}",
        "title": name.partition(":")[0],
        "description": description,
        "type": "object",
        "properties": properties,
        "required": [column for column in properties if column not in absent],
        "additionalProperties": False,
    }


def or_null(described: Mapping[str, Any], *, nullable: bool) -> dict[str, Any]:
    """Return the schema of a column that may be null too."""
    return {**described, "type": [described["type"], "null"]} if nullable else dict(described)


def _described(column: Column) -> dict[str, Any]:
    return or_null({**_TYPES[column.type], "description": column.description}, nullable=column.nullable)


_MARKER: Final = "_SUCCESS"
"""The empty file that is written last, by the convention of Spark and Hadoop."""
_ABOUT: Final = "_run.json"
_FORMAT: Final = 1
# Spark, Hive and DuckDB's globs by column read no directory whose name begins with '_'.
_ASIDE: Final = "_incomplete"
_CURRENT: Final = "_current"
_SCHEMAS: Final = "_schemas"
_ROWS: Final = "rows"
_FORGOTTEN: Final = timedelta(days=7)
UNMARKED: Final = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
"""Options of a write without Spark's marker, which would mark files that are not published yet."""


@dataclass(frozen=True, slots=True)
class _LakeRun:
    """A run in the lake."""

    path: str
    """Its directory, below the root."""
    about: dict[str, Any]

    @property
    def order(self) -> tuple[datetime, str]:
        return datetime.fromisoformat(self.about["as_of"]), self.about["run_id"]

    @property
    def finished_at(self) -> datetime:
        return datetime.fromisoformat(self.about["finished_at"])


class Output:
    """The files of one job's runs on one cluster.

    Args:
        spark: The session.
        root: The directory of the lake.
        cluster: The cluster.
        job: The name of the job.
    """

    def __init__(self, spark: SparkSession, root: str, cluster: str, job: str) -> None:
        self._files = Files(spark, root)
        self._root = root.rstrip("/")
        self._cluster = cluster
        self._rollup = ROLLUPS[job]
        self._aside = f"{self._root}/{_ASIDE}/{cluster}/{job}"
        self._pointer = f"{self._root}/{_CURRENT}/{job}/{cluster}.json"
        self._schema = f"{_SCHEMAS}/{job}/{self._rollup.version}.json"

    def write(self, frame: DataFrame, run_id: UUID, as_of: datetime) -> None:
        """Write a run's rows below ``_incomplete``; an earlier attempt at the same run is replaced."""
        of_the_run = {"cluster": F.lit(self._cluster), "run_id": F.lit(str(run_id)), "as_of": F.lit(as_of)}
        rows = frame.select(*[value.alias(name) for name, value in of_the_run.items()], *frame.columns)
        rows.write.mode("overwrite").options(**UNMARKED).parquet(f"{self._aside}/{run_id}/{_ROWS}")

    def publish(self, run: RollupRun) -> str:
        """Move the files of a complete run into place, unless this was already done, and return their directory.

        The pointer is set to the newest run. Old runs are removed by the rule that removes them from Postgres.

        Raises:
            SparkFailedError: The file system refused the operation. The files remain below ``_incomplete``, and the
            next call continues.
        """
        path = f"job={run.job}/as_of_date={run.as_of.astimezone(UTC).date()}/run_id={run.id}"
        rows, place = f"{self._aside}/{run.id}/{_ROWS}", f"{self._root}/{path}"
        try:
            self._describe_columns()
            if self._files.exists(rows):
                self._files.rename(rows, place)
            if self._files.exists(place):
                self._files.replace(f"{place}/{_ABOUT}", _json(self._about(run)))
                self._files.touch(f"{place}/{_MARKER}")
            self._point()
            self.drop(run.id)
            self._remove_old(run)
        except (Py4JError, OSError) as error:
            raise SparkFailedError(
                f"Run {run.id} is complete, but its files are not in place at {place}; the next run of this rollup with"
                f" the same --output tries again ({_first_line(error)})"
            ) from error
        return place

    def drop(self, run_id: UUID) -> None:
        """Remove the unpublished files of a run."""
        self._files.delete(f"{self._aside}/{run_id}")

    def aside(self) -> list[UUID]:
        """Return the runs with unpublished files: those in progress, and those whose process ended too early."""
        found = []
        for name in self._files.names(self._aside):
            try:
                found.append(UUID(name))
            except ValueError:
                continue
        return found

    @staticmethod
    def is_forgotten(run_id: UUID) -> bool:
        """Return True if a run that Postgres does not know began too long ago to be still running on any database."""
        return time_of(str(run_id)) < datetime.now(UTC) - _FORGOTTEN

    def _about(self, run: RollupRun) -> dict[str, Any]:
        assert run.finished_at is not None  # noqa: S101 - for the type checker: the run is complete
        return {
            "format": _FORMAT,
            "job": run.job,
            "cluster": run.cluster,
            "run_id": str(run.id),
            "as_of": run.as_of.astimezone(UTC).isoformat(),
            "finished_at": run.finished_at.astimezone(UTC).isoformat(),
            "rows": run.rows,
            "schema": self._schema,
            "schema_version": self._rollup.version,
        }

    def _describe_columns(self) -> None:
        self._files.update(f"{self._root}/{self._schema}", _json(row_schema(self._rollup)))

    def _point(self) -> None:
        """Make the pointer name the newest run, even if several processes do so concurrently.

        The process that writes last finds that its own run is the newest, or finds a newer one in the lake and writes
        again.
        """
        while runs := self._kept(whole=True):
            newest = max(runs, key=lambda run: run.order)
            text = _json({**newest.about, "path": newest.path})
            if self._files.read(self._pointer) == text:
                break
            self._files.replace(self._pointer, text)

    def _remove_old(self, now: RollupRun) -> None:
        """Remove old runs. The marker goes first, and the description last, so that the rest can be removed later."""
        assert now.finished_at is not None  # noqa: S101 - for the type checker: the run is complete
        runs = sorted(self._kept(whole=False), key=lambda run: run.order, reverse=True)
        for run in runs[KEEP_RUNS:]:
            if run.finished_at < now.finished_at - timedelta(seconds=KEEP_S):
                place = f"{self._root}/{run.path}"
                for name in (_MARKER, *(name for name in self._files.names(place) if name != _ABOUT), _ABOUT):
                    self._files.delete(f"{place}/{name}")
                self._files.delete(place)
                self._files.delete_empty(place.rpartition("/")[0])

    def _kept(self, *, whole: bool) -> list[_LakeRun]:
        """Return the runs of this cluster in the lake, without a marker too unless only complete ones count."""
        found = []
        days = f"job={self._rollup.name}"
        for day in self._files.names(f"{self._root}/{days}"):
            for name in self._files.names(f"{self._root}/{days}/{day}"):
                path = f"{days}/{day}/{name}"
                text = self._files.read(f"{self._root}/{path}/{_ABOUT}")
                about = {} if text is None else json.loads(text)
                if about.get("cluster") != self._cluster:
                    continue
                if not whole or self._files.exists(f"{self._root}/{path}/{_MARKER}"):
                    found.append(_LakeRun(path, about))
        return found


def _json(about: dict[str, Any]) -> str:
    return json.dumps(about, ensure_ascii=False, indent=2) + "\n"


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return str(error if java is None else java.toString()).partition("\n")[0]
