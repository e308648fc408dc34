"""Runs of rollups as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confplane.domain.texts import rfc3339

if TYPE_CHECKING:
    from confplane.services.ports.rollups import RollupRun


def rollup_run(run: RollupRun) -> dict[str, Any]:
    """Return a complete run of a rollup."""
    revisions = {name: run.position.get(name) for name in ("floor", "horizon", "watermark", "folded")}
    return {
        "id": str(run.id),
        "asOf": rfc3339(run.as_of),
        "startedAt": rfc3339(run.started_at),
        "finishedAt": None if run.finished_at is None else rfc3339(run.finished_at),
        "principal": run.principal,
        "rows": run.rows,
        "revisions": {name: None if found is None else str(found) for name, found in revisions.items()},
        "previous": None if run.previous is None else str(run.previous),
    }


def rollup_attempt(run: RollupRun) -> dict[str, Any]:
    """Return a run of a rollup with any outcome."""
    return {
        "id": str(run.id),
        "state": run.state.value,
        "asOf": rfc3339(run.as_of),
        "startedAt": rfc3339(run.started_at),
        "finishedAt": None if run.finished_at is None else rfc3339(run.finished_at),
        "principal": run.principal,
        "error": run.error,
    }
