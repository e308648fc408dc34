"""Settling: the outcome of a change without one, decided by the change's marker (docs/writes-design.md).

Anyone may settle any change at any time: the process that lost a reply, the leader's reconciler, or both at once. The
marker decides and is created once, so all of them reach the same outcome, and the first outcome in Postgres remains.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final

from confplane.domain.changes import Node
from confplane.domain.entities import Entity
from confplane.domain.errors import CorruptZnodeError, OutcomeUnknownError, UnavailableError
from confplane.domain.facets import Tree
from confplane.services.ports.trail import Outcome
from confplane.services.ports.transactions import Committed, EntityWrite

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from confplane.services.ports.store import ClusterStore, Marker
    from confplane.services.ports.trail import AuditLog
    from confplane.services.ports.transactions import Write

_FRESH_S: Final = 15.0
"""Seconds since a change was last seen without an outcome, at most, when its abort marker is asked for. A commit's
marker is dropped a minute after the outcome, and an abort marker must not take its place: not even one that stays in
the client's queue for as long as its session lasts (40 s at most, unless the servers are set otherwise)."""
_PAUSE_S: Final = 0.05

ABORTED: Final = "Settled as aborted: no reply came, and its transaction can't be applied any more"


async def settle(
    audit: AuditLog,
    store: ClusterStore,
    change_id: UUID,
    attempt: int,
    *,
    open_at: float,
    deadline: float,
    writes: Sequence[Write] | None = None,
) -> Outcome:
    """Settle one change, once, and return the outcome. Its row is written, or is kept and sent again.

    Args:
        audit: The trail.
        store: The cluster's store.
        change_id: The change.
        attempt: The change's last attempt, for an outcome of aborted.
        open_at: A time at which the change certainly had no outcome, on the clock of ``time.monotonic()``.
        deadline: The deadline, on the same clock.
        writes: The writes of its transaction; None: those of its intent in the trail.

    Raises:
        UnavailableError: A store did not answer. The outcome is still unknown; the call may be repeated.
        CorruptZnodeError: The marker can't be read; a person must check it.
    """
    while True:
        if not store.accepted:
            raise UnavailableError(f"Cluster {store.name}: the connection to ZooKeeper was not accepted yet")
        if time.monotonic() - open_at > _FRESH_S:
            open_at = time.monotonic()
            record = await audit.get(store.name, change_id)
            if record is not None and record.outcome is not None:
                return record.outcome
        marker = await store.markers.settle(change_id, deadline)
        if marker is None:
            open_at = float("-inf")
            continue
        outcome = await _outcome(audit, store, marker, attempt, deadline, writes)
        if await audit.conclude([outcome]) and marker.committed:
            store.markers.release(change_id)
        return outcome


async def settle_own(
    audit: AuditLog,
    store: ClusterStore,
    change_id: UUID,
    attempt: int,
    *,
    began: float,
    deadline: float,
    writes: Sequence[Write] | None = None,
) -> Outcome:
    """Settle a change whose reply was lost to this process, trying until the deadline.

    Args:
        audit: The trail.
        store: The cluster's store.
        change_id: The change.
        attempt: The change's last attempt.
        began: The change's begin, on the clock of ``time.monotonic()``: before that it had no outcome.
        deadline: The deadline, on the same clock.
        writes: The writes of its transaction; None: those of its intent in the trail.

    Raises:
        OutcomeUnknownError: The change could not be settled in time. The reconciler will settle it.
    """
    while True:
        try:
            outcome = await settle(audit, store, change_id, attempt, open_at=began, deadline=deadline, writes=writes)
        except UnavailableError:
            if time.monotonic() + _PAUSE_S < deadline:
                await asyncio.sleep(_PAUSE_S)
                continue
        except CorruptZnodeError:
            pass
        else:
            if outcome.revision is not None:
                # A read that follows the answer should show the change, but the change is applied without this too.
                with contextlib.suppress(UnavailableError):
                    await store.wait_for(outcome.revision, deadline)
            return outcome
        raise OutcomeUnknownError(
            "It was sent to ZooKeeper and the reply was lost: it may or may not be applied. It will be settled, and the"
            f" audit trail will then have the outcome of change {change_id}",
            change_id=str(change_id),
        )


async def conclude_committed(
    audit: AuditLog, store: ClusterStore, change_ids: Sequence[UUID], *, deadline: float
) -> set[UUID]:
    """Write the outcomes of changes that their markers show as committed; return those changes.

    The others have written nothing before the call. They may still be committed later, since nothing blocks them.

    Args:
        audit: The trail.
        store: The cluster's store.
        change_ids: Changes that had no outcome less than half a minute ago.
        deadline: The deadline, on the clock of ``time.monotonic()``.

    Raises:
        UnavailableError: ZooKeeper did not answer.
    """
    markers = await store.markers.commits(change_ids, deadline)
    if markers and await audit.conclude([await _outcome(audit, store, marker, 1, deadline) for marker in markers]):
        for marker in markers:
            store.markers.release(marker.change_id)
    return {marker.change_id for marker in markers}


def committed(outcome: Outcome, writes: Sequence[Write]) -> Committed:
    """Return the result that the lost reply would have had.

    Args:
        outcome: The outcome of a change that was settled as committed.
        writes: The writes of its transaction.
    """
    if outcome.revision is None or outcome.time_ms is None:
        raise ValueError("The change was not committed")
    nodes = tuple(
        Node(
            id=write.entity.id,
            items=tuple(part for pair in write.config.items() for part in pair),
            version=outcome.versions[write.path],
            czxid=outcome.revision if write.expected is None else outcome.remade.get(write.path, write.czxid or 0),
            mzxid=outcome.revision,
            mtime_ms=outcome.time_ms,
            extra=write.extra,
        )
        for write in writes
        if isinstance(write, EntityWrite)
    )
    return Committed(outcome.revision, outcome.time_ms, nodes, outcome.versions, outcome.remade)


async def _outcome(
    audit: AuditLog,
    store: ClusterStore,
    marker: Marker,
    attempt: int,
    deadline: float,
    writes: Sequence[Write] | None = None,
) -> Outcome:
    if not marker.committed:
        return Outcome(
            marker.change_id,
            attempt,
            store.name,
            committed=False,
            error_code=int(UnavailableError.code),
            error=ABORTED,
        )
    return Outcome(
        marker.change_id,
        attempt if marker.attempt is None else marker.attempt,
        store.name,
        committed=True,
        revision=marker.revision,
        time_ms=marker.time_ms,
        versions=marker.versions,
        incarnation=store.incarnation,
        remade=await _remade(audit, store, marker, deadline, writes),
    )


async def _remade(
    audit: AuditLog, store: ClusterStore, marker: Marker, deadline: float, writes: Sequence[Write] | None
) -> dict[str, int]:
    """Return the znodes that were deleted and created again between the read and the write, with their czxids.

    The lost reply would have had them. Of a znode that was deleted again since nothing is known.
    """
    if writes is None:
        record = await audit.get(store.name, marker.change_id)
        entities = () if record is None else record.intent.entities
        read = [(each.path, each.entity_id, each.czxid_read) for each in entities]
    else:
        read = [(each.path, each.entity.id, each.czxid) for each in writes if isinstance(each, EntityWrite)]
    remade = {}
    for tree in Tree:
        given = [
            (path, Entity.from_id(entity_id), czxid)
            for path, entity_id, czxid in read
            if czxid is not None and path in marker.versions and path.startswith(f"{tree.value}/")
        ]
        nodes = await store.read_many(tree, [entity for _, entity, _ in given], deadline) if given else ()
        for (path, _, czxid), node in zip(given, nodes, strict=True):
            if isinstance(node, Node) and czxid < node.czxid < (marker.revision or 0):
                remade[path] = node.czxid
    return remade
