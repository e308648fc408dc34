"""The frame ``usage``: measurements from a CSV or Parquet file, or from Prometheus."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

from confplane.rollups.levels import CLIENT_QUOTAS
from confplane.rollups.schemas import USAGE
from confplane.rollups.sinks.files import local_path
from confplane.rollups.sources.prometheus import read_range_queries, samples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from confplane.rollups.sources.prometheus import Sample

_FILE_NAMES: Final = {"client_id": "client-id"}
_QUERIES: Final = (".yaml", ".yml")
_PATTERNS: Final = "{}[]*?\\"
"""Signs of patterns of paths, which Hadoop resolves."""
MOST: Final = 200_000
"""Maximum number of measurements of a small run."""
_CSV_ROW: Final = 60
_PARQUET_ROW: Final = 8
"""Bytes of a measurement in a file, roughly."""
_COLUMNS: Final = tuple(_FILE_NAMES.get(name, name) for name in USAGE.names)


@dataclass(frozen=True, slots=True)
class Measurements:
    """Measurements, as far as they are known without Spark.

    Attributes:
        path: A CSV file with a header, or Parquet, on any file system of Hadoop, with the columns ``time, user,
            client-id, metric, value``; or a YAML file on this machine with queries for Prometheus
            (:mod:`confplane.rollups.sources.prometheus`).
        samples: What Prometheus returned; None for files of measurements.
        is_small: True if there are :data:`MOST` measurements at most, roughly; False if only Spark can tell.
    """

    path: str
    samples: Sequence[Sample] | None
    is_small: bool

    @classmethod
    def of(cls, path: str) -> Measurements:
        """Check that a file on this machine exists, or send the queries.

        Raises:
            ValueError: The file does not exist or can't be read, or has no valid queries; or Prometheus refused one.
            UnavailableError: Prometheus is unavailable.
        """
        if path.endswith(_QUERIES):
            found = list(samples(read_range_queries(path)))
            if not found:
                raise ValueError(f"{path}: Prometheus has no measurements for these queries")
            return cls(path, found, len(found) <= MOST)
        file = local_path(path)
        if file is None or any(sign in path for sign in _PATTERNS):
            return cls(path, None, is_small=False)
        if not file.exists():
            raise ValueError(f"{path} does not exist")
        if not os.access(file, os.R_OK):
            raise ValueError(f"{path} can't be read")
        files = [each for each in file.rglob("*") if each.is_file()] if file.is_dir() else [file]
        size = sum(each.stat().st_size for each in files)
        return cls(path, None, size <= MOST * (_CSV_ROW if path.endswith(".csv") else _PARQUET_ROW))


def read_usage(spark: SparkSession, given: Measurements) -> DataFrame:
    """Return measurements as rows with the schema ``USAGE``.

    Raises:
        ValueError: The file does not have this form, or has no row of a quota.
    """
    path = given.path
    if given.samples is not None:
        columns: list[list[object]] = [list(column) for column in zip(*given.samples, strict=True)]
        kinds = (pa.timestamp("us", tz="UTC"), pa.string(), pa.string(), pa.string(), pa.float64())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        return spark.createDataFrame(pa.Table.from_arrays(arrays, names=USAGE.names))
    return _checked(_raw(spark, path), path)


def _raw(spark: SparkSession, path: str) -> DataFrame:
    try:
        if path.endswith(".csv"):
            return spark.read.options(header=True, escape='"', multiLine=True).csv(path)
        return spark.read.parquet(path)
    except AnalysisException as error:
        raise ValueError(f"{path}: {str(error).splitlines()[0]}") from None


def _checked(raw: DataFrame, path: str) -> DataFrame:
    """Return the rows about quotas, after one pass over them that finds unusable rows."""
    missing = [name for name in _COLUMNS if name not in raw.columns]
    if missing:
        raise ValueError(f"{path} has no column {missing[0]!r}; it needs {', '.join(_COLUMNS)}")
    named = raw.select(*(F.col(f"`{given}`").alias(name) for given, name in zip(_COLUMNS, USAGE.names, strict=True)))
    rows = named.where(F.col("metric").isin(*CLIENT_QUOTAS))
    typed = rows.select(
        F.col("time").try_cast("timestamp").alias("time"),
        *(F.col(name).cast("string").alias(name) for name in ("user", "client_id", "metric")),
        F.col("value").try_cast("double").alias("value"),
        F.to_json(F.struct(*rows.columns)).alias("row"),
    )
    value, no = F.col("value"), F.lit("")
    broken = (
        F.when(F.col("time").isNull(), "time is not a time (ISO 8601)")
        .when(value.isNull() | (value < 0) | (value >= float("inf")), "value is not a number from 0 on")
        .when(
            F.concat(F.coalesce("user", no), F.coalesce("client_id", no)) == no, "neither user nor client-id is given"
        )
    )
    first = F.min(F.when(broken.isNotNull(), F.struct(broken.alias("rule"), "row")))
    [(count, found)] = typed.agg(F.count("*"), first).collect()
    if found is not None:
        raise ValueError(f"{path}: {found['rule']}: {found['row'][:200]}")
    if not count:
        raise ValueError(f"{path} has no row with a metric among {', '.join(CLIENT_QUOTAS)}")
    return typed.drop("row")
