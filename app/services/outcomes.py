"""Writing how a change of this process ended, once that is known (docs/architecture.md, "One write")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.services.ports import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from app.domain.changes import Node
    from app.services.ports import AuditLog, ClusterStore, Committed


async def conclude_committed(
    audit: AuditLog,
    store: ClusterStore,
    change_id: UUID,
    attempt: int,
    result: Committed,
    versions: dict[str, int],
    remade: dict[str, int] | None = None,
) -> None:
    """Write that a change was applied; its marker is let go once that is durable.

    Args:
        audit: The trail.
        store: The cluster's store.
        change_id: The change.
        attempt: The one that was committed.
        result: What ZooKeeper answered.
        versions: Of the znodes that are there after it, by their full paths.
        remade: See :class:`Outcome`.
    """
    outcome = Outcome(
        change_id,
        attempt,
        store.name,
        committed=True,
        revision=result.revision,
        time_ms=result.time_ms,
        versions=versions,
        remade=remade or {},
    )
    if await audit.conclude([outcome]):
        store.release_marker(change_id)


async def conclude_written(
    audit: AuditLog,
    store: ClusterStore,
    change_id: UUID,
    attempt: int,
    result: Committed,
    read: Sequence[tuple[str, Node | None]],
) -> None:
    """Write that a change was applied, as :func:`conclude_committed` does, whose znodes ZooKeeper answered.

    ``read`` has the full path of each of the nodes of ``result``, and what had been read there.
    """
    written = [(path, before, node) for (path, before), node in zip(read, result.nodes, strict=True)]
    versions = {path: node.version for path, _, node in written}
    remade = {path: node.czxid for path, before, node in written if is_remade(before, node)}
    await conclude_committed(audit, store, change_id, attempt, result, versions, remade)


def is_remade(read: Node | None, written: Node) -> bool:
    """Say whether the znode that was written is not the one that had been read (see :class:`Outcome`).

    A transaction checks versions, and those of a znode that is made again begin anew. ZooKeeper has no check of more.
    """
    return read is not None and written.czxid != read.czxid


async def conclude_rejected(
    audit: AuditLog, store: ClusterStore, change_id: UUID, attempt: int, code: int, text: str
) -> None:
    """Write that a change has, for certain, no effect, and why: Kafka's error code and a sentence."""
    await audit.conclude([Outcome(change_id, attempt, store.name, committed=False, error_code=code, error=text)])
