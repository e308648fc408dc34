"""Results of rollups in the form that the runner publishes, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import orjson
from uuid_utils.compat import uuid7

from confplane.audit.rollup_parts import RunAttempt, write_part
from confplane.audit.rollup_runs import RollupRuns
from confplane.domain.rollups import ROLLUPS, ColumnType

if TYPE_CHECKING:
    from uuid import UUID

NOON: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
POSITION: Final = {"floor": str(2**62), "horizon": str(2**62 + 1), "watermark": None, "registration_id": "7"}
_SAMPLES: Final = {
    ColumnType.STRING: "user=alice",
    ColumnType.INT: 3,
    ColumnType.LONG: 2**53 + 1,
    ColumnType.DOUBLE: 0.5,
    ColumnType.BOOLEAN: True,
    ColumnType.DATE: "2026-01-31",
    ColumnType.TIMESTAMP: "2026-01-31T11:59:59.123456Z",
    ColumnType.TEXTS: ["user=alice"],
}


def publish(dsn: str, job: str, items: list[dict[str, Any]], *, at: datetime = NOON, complete: bool = True) -> UUID:
    """Publish rows like the runner does."""
    runs = RollupRuns(dsn, "default")
    run_id = uuid7()
    entity = ROLLUPS[job].entity
    with runs.held(run_id):
        attempt = runs.begin(run_id, job, as_of=at, position=POSITION, previous=None, principal="User:olga@cli")
        assert isinstance(attempt, RunAttempt)
        lines = [
            f"{attempt.partition}\t{run_id}\t0\t{number}\t{item.get(entity or '', chr(92) + 'N')}\t".encode()
            + orjson.dumps(item)
            + b"\n"
            for number, item in enumerate(items)
        ]
        write_part(dsn, run_id, attempt, 0, [(b"".join(lines), len(lines))])
        if complete:
            runs.complete(run_id)
        else:
            runs.fail(run_id, "Postgres did not answer in time")
    return run_id


def row_of(job: str, **given: Any) -> dict[str, Any]:
    """Return a row of a rollup, without a value in all other columns."""
    return {**{each.name: None for each in ROLLUPS[job].columns}, **given}


def publish_all(dsn: str) -> None:
    """Publish a row of each rollup, with a value in every column."""
    for job, rollup in ROLLUPS.items():
        publish(dsn, job, [{column.name: _SAMPLES[column.type] for column in rollup.columns}])
