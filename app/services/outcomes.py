"""Writing how a change of this process ended, once that is known (docs/architecture.md, "One write")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.services.ports import Outcome

if TYPE_CHECKING:
    from uuid import UUID

    from app.services.ports import AuditLog, ClusterStore, Committed


async def conclude_committed(
    audit: AuditLog,
    store: ClusterStore,
    change_id: UUID,
    attempt: int,
    result: Committed,
    versions: dict[str, int],
) -> None:
    """Write that a change was applied; its marker is let go once that is durable.

    Args:
        audit: The trail.
        store: The cluster's store.
        change_id: The change.
        attempt: The one that was committed.
        result: What ZooKeeper answered.
        versions: Of the znodes that are there after it, by their full paths.
    """
    outcome = Outcome(
        change_id,
        attempt,
        store.name,
        committed=True,
        revision=result.revision,
        time_ms=result.time_ms,
        versions=versions,
    )
    if await audit.conclude([outcome]):
        store.release_marker(change_id)


async def conclude_rejected(
    audit: AuditLog, store: ClusterStore, change_id: UUID, attempt: int, code: int, text: str
) -> None:
    """Write that a change has, for certain, no effect, and why: Kafka's error code and a sentence."""
    await audit.conclude([Outcome(change_id, attempt, store.name, committed=False, error_code=code, error=text)])
