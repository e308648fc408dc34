"""Conversion of columns from Postgres to Spark, without a Python object per row wherever possible."""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ID_BYTES: Final = 16
_BITS_BEHIND_THE_TIME: Final = 16


def convert(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return a column of the type that a field has.

    Maps arrive as JSON texts, times unchanged or as the bytes of a UUIDv7, and everything else unchanged.
    """
    kind = field.type
    if pa.types.is_map(kind):
        return maps(column, kind)
    if pa.types.is_timestamp(kind) and pa.types.is_binary(column.type):
        return times_of(column).cast(kind)
    if pa.types.is_list(kind):
        # Arrow can't cast to non-null elements, but Postgres's arrays of names have no nulls.
        return _list(column, kind)
    return column.cast(kind)


def _list(column: pa.ListArray, kind: pa.ListType) -> pa.Array:
    mask = column.is_null() if column.null_count else None
    start = column.offsets[0].as_py() if len(column.offsets) else 0
    offsets = pc.subtract(column.offsets, start)
    return pa.ListArray.from_arrays(offsets, column.flatten().cast(kind.value_type), type=kind, mask=mask)


def maps(column: pa.StringArray, kind: pa.MapType) -> pa.Array:
    """Return JSON objects of texts and nulls as maps."""
    return map_array(_parsed(column), kind)


def map_array(configs: Iterable[Mapping[str, str | None]], kind: pa.MapType) -> pa.Array:
    """Return maps of texts in Arrow's form: all keys, all values, and the start of each map."""
    keys: list[str] = []
    values: list[str | None] = []
    offsets = array("i", [0])
    for config in configs:
        keys.extend(config)
        values.extend(config.values())
        offsets.append(len(keys))
    return pa.MapArray.from_arrays(
        pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)]),
        pa.array(keys, kind.key_type),
        pa.array(values, kind.item_type),
        type=kind,
    )


def _parsed(column: pa.StringArray) -> list[Mapping[str, Any]]:
    """Parse all texts of a column at once."""
    if not len(column):
        return []
    everything = pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column)
    joined = pc.binary_join(everything, ",")[0].as_buffer()
    parsed: list[Mapping[str, Any]] = orjson.loads(b"[" + joined.to_pybytes() + b"]")
    return parsed


def times_of(ids: pa.BinaryArray) -> pa.Array:
    """Return the times in UUIDv7s: milliseconds since the epoch in their first 48 bits."""
    words = array("Q")
    if len(ids):
        data = ids.buffers()[2]
        start = ids.offset * _ID_BYTES
        words.frombytes(data[start : start + len(ids) * _ID_BYTES])
    if sys.byteorder == "little":
        words.byteswap()
    first = pa.Array.from_buffers(pa.uint64(), len(ids), [None, pa.py_buffer(words[::2])])
    milliseconds = pc.shift_right(first, pa.scalar(_BITS_BEHIND_THE_TIME, pa.uint64())).cast(pa.int64())
    return milliseconds.cast(pa.timestamp("ms", tz="UTC"))
