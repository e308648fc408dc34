"""A lake as others read it: DuckDB, given its directory and its documentation, and nothing of ours."""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import duckdb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def query(sql: str) -> list[dict[str, Any]]:
    """Run a query; times are aware."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        rows: list[dict[str, Any]] = database.sql(sql).to_arrow_table().to_pylist()
        return rows


def pointer(lake: Path, job: str, cluster: str) -> dict[str, Any]:
    """The pointer to the current run of a cluster."""
    found: dict[str, Any] = json.loads((lake / "_current" / job / f"{cluster}.json").read_text())
    return found


def current(lake: Path, job: str) -> list[dict[str, Any]]:
    """The rows of the current runs of all clusters, by the query of docs/rollups.md."""
    return query(f"""
        FROM read_parquet('{lake}/job={job}/*/*/*.parquet', hive_partitioning = true)
        SEMI JOIN read_json('{lake}/_current/{job}/*.json') USING (cluster, run_id)
    """)


def runs(lake: Path, job: str) -> set[str]:
    """The runs whose directories are in place and marked as whole."""
    return {path.parent.name.removeprefix("run_id=") for path in lake.glob(f"job={job}/as_of_date=*/run_id=*/_SUCCESS")}


def exported(lake: Path, name: str, cluster: str) -> list[dict[str, Any]]:
    """The rows of an export, by the query of docs/rollups.md; maps are dictionaries."""
    rows = query(f"""
        FROM read_parquet(
            '{lake}/export={name}/cluster={cluster}/*/*/*.parquet', hive_partitioning = true, union_by_name = true
        )
        SEMI JOIN (
            SELECT unnest(datasets.{name}.days, recursive := true) FROM read_json('{lake}/_exports/{cluster}.json')
        ) USING (day, export_id)
    """)  # noqa: S608 - names of a test
    maps = ("before", "after", "content", "config", "fingerprints")
    return [{key: dict(value) if key in maps else value for key, value in row.items()} for row in rows]


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
