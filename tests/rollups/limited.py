"""DuckDB within bounds: the tests of ten million rows share a machine with Spark and with the stores."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import duckdb

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEMORY: Final = "4GB"


@contextmanager
def limited() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an empty database that keeps to 4 GB of memory, writes the rest to disk, and shows times in UTC."""
    with (
        tempfile.TemporaryDirectory() as spilled,
        duckdb.connect(config={"memory_limit": _MEMORY, "temp_directory": spilled}) as database,
    ):
        database.execute("SET TimeZone = 'UTC'")
        yield database
