"""The columns of the exports' files, described as JSON Schema for readers that do not know this package."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, TimestampType

from confplane.rollups import schemas
from confplane.rollups.exports.manifest import VERSION
from confplane.rollups.sinks.parquet import document, or_null

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField, StructType


REMOVABLE: Final = ("reason", "request_id", "source", "ticket")
"""Columns of the trail that no job reads."""
LEAST_KEY_BYTES: Final = 16

_PRINCIPAL: Final = "principal"
_UNKNOWN: Final = "External:unknown"
"""The placeholder principal of external writes."""
_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class ExportAlterations:
    """The alterations of an export of the trail.

    Attributes:
        without: Columns of :data:`REMOVABLE` that are left out, sorted.
        key: The key for the pseudonyms of principals; None to leave them in clear text.
    """

    without: tuple[str, ...] = ()
    key: bytes | None = field(default=None, repr=False)

    @property
    def pseudonyms(self) -> str | None:
        """A name that identifies the key."""
        return None if self.key is None else _digest(self.key, "the name of this key")

    def of(self, changes: DataFrame) -> DataFrame:
        """Return the changes in the form of the export."""
        kept = changes.drop(*self.without)
        if self.key is None:
            return kept
        # The key is part of the serialized function, and does not appear in plans.
        return kept.withColumn(_PRINCIPAL, F.udf(partial(pseudonym, self.key), "string", useArrow=False)(_PRINCIPAL))


def pseudonym(key: bytes, principal: str) -> str:
    """Return the pseudonym of a principal: the same for the same key, and not reversible without the key."""
    if principal == _UNKNOWN:
        return principal
    kind, colon, name = principal.partition(":")
    return f"{kind}:{_digest(key, name)}" if colon else _digest(key, principal)


def _digest(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()[:_DIGITS]


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
