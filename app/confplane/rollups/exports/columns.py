"""The columns of the exports' files, described as JSON Schema for readers that do not know this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, TimestampType

from confplane.rollups import schemas
from confplane.rollups.exports.alterations import REMOVABLE
from confplane.rollups.exports.manifest import VERSION
from confplane.rollups.sinks.row_schema import document, or_null

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

EXPORTED: Final[dict[str, tuple[StructType, str]]] = {
    "trail": (schemas.CHANGES, "One row per change and entity, with the outcome of the change"),
    "states": (schemas.STATES, "One row per entity: the last state that the recorder found, and the trail explains"),
    "registrations": (schemas.REGISTRATION_EVENTS, "One row per event of a registration"),
    "znodes": (schemas.ZNODES, "One row per znode of an entity"),
}
"""Dataset -> the frame of its rows, and a row in words."""

_TYPES: Final[dict[DataType, dict[str, Any]]] = {
    StringType(): {"type": "string"},
    IntegerType(): {"type": "integer", "format": "int32"},
    LongType(): {"type": "integer", "format": "int64"},
    BooleanType(): {"type": "boolean"},
    TimestampType(): {"type": "string", "format": "date-time"},
    schemas.TEXTS: {"type": "array", "items": {"type": "string"}},
    schemas.CONFIG: {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
}


def export_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a dataset's rows; its properties are in the order of the columns.

    The partition columns (``cluster``, ``day``, ``export_id``) are in the paths and not in the rows.
    """
    frame, row = EXPORTED[name]
    properties = {field.name: _described(field) for field in frame.fields}
    return document(f"{name}:{VERSION}", row, properties, REMOVABLE if name == "trail" else ())


def _described(field: StructField) -> dict[str, Any]:
    return or_null({**_TYPES[field.dataType], "description": field.metadata["comment"]}, nullable=field.nullable)
