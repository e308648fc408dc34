"""Spark's filters as conditions in SQL, where both mean the same."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource

from app.rollups.sources.postgres import literal

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMPARISONS: Final = {
    datasource.EqualTo: "=",
    datasource.EqualNullSafe: "IS NOT DISTINCT FROM",
    datasource.GreaterThan: ">",
    datasource.GreaterThanOrEqual: ">=",
    datasource.LessThan: "<",
    datasource.LessThanOrEqual: "<=",
}
_ORDERED: Final = frozenset({">", ">=", "<", "<="})


def condition(given: datasource.Filter, columns: Mapping[str, str]) -> str | None:
    """Return a filter as SQL; None where Spark has to apply it.

    Args:
        given: The filter.
        columns: Column -> SQL, of those that filters may be on.
    """
    try:
        return _condition(given, columns)
    except ValueError:
        return None


def _condition(given: Any, columns: Mapping[str, str]) -> str:
    if isinstance(given, datasource.Not):
        return f"NOT ({_condition(given.child, columns)})"
    column = _column(given, columns)
    operator = _COMPARISONS.get(type(given))
    if operator is not None:
        # Spark orders texts by their bytes.
        collation = ' COLLATE "C"' if operator in _ORDERED and isinstance(given.value, str) else ""
        return f"{column}{collation} {operator} {_literal(given.value)}"
    match given:
        case datasource.In():
            return f"{column} IN ({', '.join(_literal(value) for value in given.value)})"
        case datasource.IsNull():
            return f"{column} IS NULL"
        case datasource.IsNotNull():
            return f"{column} IS NOT NULL"
        case datasource.StringStartsWith():
            return f"starts_with({column}, {_literal(given.value)})"
    raise ValueError("no condition that is known here")


def _column(given: Any, columns: Mapping[str, str]) -> str:
    if len(given.attribute) != 1 or given.attribute[0] not in columns:
        raise ValueError("a column that is not compared in SQL")
    return columns[given.attribute[0]]


def _literal(value: object) -> str:
    if isinstance(value, datetime):
        # Whether it has Spark's zone or this machine's is not said.
        raise ValueError("a time")  # noqa: TRY004 - no fault of whoever asks
    return literal(value)
