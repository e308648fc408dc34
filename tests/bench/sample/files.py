"""Writes a made-up cluster as Parquet, in pieces: any number of events fits.

What is kept in memory meanwhile is a few hundred bytes per entity.
"""

from __future__ import annotations

import json
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types

from confplane.rollups import schemas
from tests.bench.sample import clients
from tests.bench.sample.trail import Trail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.bench.sample.trail import Plan, Row

OPTIONS: Final = "options.json"
"""The file of the options of a run that reads the made-up cluster."""
_ROWS_OF_BATCH: Final = 20_000
_ROWS_OF_FILE: Final = 500_000
"""So that a reader has something to do at once on several cores."""
_PLAIN: Final[dict[type[types.DataType], pa.DataType]] = {
    types.StringType: pa.string(),
    types.IntegerType: pa.int32(),
    types.LongType: pa.int64(),
    types.BooleanType: pa.bool_(),
    types.TimestampType: pa.timestamp("us", tz="UTC"),
}


def write(plan: Plan, directory: Path, progress: Callable[[str, int], None] = lambda _name, _rows: None) -> Trail:
    """Write a made-up cluster: a folder of Parquet per frame, and the options of a run that reads it.

    Args:
        plan: What to make.
        directory: Where to; made if it is not there, and else empty.
        progress: Told the frame's name and how many rows were written since it was told last.

    Returns:
        The trail as it ended.
    """
    directory.mkdir(parents=True, exist_ok=True)
    trail = Trail(plan)
    frames: dict[str, tuple[types.StructType, Callable[[], Iterable[Row]]]] = {
        "changes": (schemas.CHANGES, trail.rows),
        "refused_attempts": (schemas.REFUSED_ATTEMPTS, lambda: clients.refused_attempts(plan, trail.members)),
        "registration_events": (schemas.REGISTRATION_EVENTS, lambda: clients.events(plan, trail.members)),
        "reports": (schemas.REPORTS, lambda: clients.reports(plan, trail.members)),
        "znodes": (schemas.ZNODES, trail.znodes),
        "states": (schemas.STATES, trail.states),
        "topics": (schemas.TOPICS, lambda: ()),
    }
    for name, (schema, rows) in frames.items():
        write_frame(directory / name, schema, rows(), partial(progress, name))
    (directory / OPTIONS).write_text(json.dumps(_options(trail)))
    return trail


def _options(trail: Trail) -> dict[str, Any]:
    plan = trail.plan
    versions = [each.version for each in trail.members if each.config is not None]
    return {
        "as_of": trail.now.isoformat(), "begin": trail.begin, "watermark": trail.zxid if plan.recorded else None,
        "floor": trail.zxid, "horizon": trail.zxid, "ceiling": trail.zxid,
        "recorded_since": trail.since if plan.recorded else None, "newest_version": max(versions, default=None),
    }  # fmt: skip


def write_frame(
    folder: Path,
    schema: types.StructType,
    rows: Iterable[Row],
    progress: Callable[[int], None] = lambda _rows: None,
) -> None:
    """Write rows of a frame into a new folder, also when there are none. Times are microseconds since 1970."""
    folder.mkdir()
    arrow = arrow_schema(schema)
    remaining = iter(rows)
    for number in range(1_000_000):
        written = 0
        with pq.ParquetWriter(folder / f"part-{number:05}.parquet", arrow, compression="zstd") as writer:
            while written < _ROWS_OF_FILE and (batch := list(islice(remaining, _ROWS_OF_BATCH))):
                writer.write_batch(_batch(batch, arrow))
                written += len(batch)
                progress(len(batch))
        if written < _ROWS_OF_FILE:
            break


def _batch(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [_array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind):
        values = [list(value.items()) for value in values]
    return pa.array(values, kind)


def arrow_schema(schema: types.StructType) -> pa.Schema:
    """Return a frame's schema as Arrow has it."""
    return pa.schema([pa.field(each.name, _arrow(each.dataType), each.nullable) for each in schema.fields])


def _arrow(kind: types.DataType) -> pa.DataType:
    if isinstance(kind, types.ArrayType):
        return pa.list_(pa.field("element", _arrow(kind.elementType), nullable=kind.containsNull))
    if isinstance(kind, types.MapType):
        return pa.map_(_arrow(kind.keyType), pa.field("value", _arrow(kind.valueType), nullable=kind.valueContainsNull))
    return _PLAIN[type(kind)]
