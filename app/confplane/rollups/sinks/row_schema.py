"""The columns of a rollup's rows in a lake, described as JSON Schema for readers that do not know this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confplane.domain.rollups import Column, ColumnType

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from confplane.domain.rollups import Rollup

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
