"""The columns of a rollup's rows in a lake, described as JSON Schema for readers that know nothing of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from app.domain.rollups import Column, ColumnType

if TYPE_CHECKING:
    from app.domain.rollups import Rollup

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
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:confplane:rollups:{rollup.name}:{rollup.version}",
        "title": rollup.name,
        "description": rollup.question,
        "type": "object",
        "properties": {column.name: _described(column) for column in columns},
        "required": [column.name for column in columns],
        "additionalProperties": False,
    }


def _described(column: Column) -> dict[str, Any]:
    found = {**_TYPES[column.type], "description": column.description}
    return {**found, "type": [found["type"], "null"]} if column.nullable else found
