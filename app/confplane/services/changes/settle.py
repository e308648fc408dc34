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
from confplane.domain.errors import CorruptZnodeError, OutcomeUnknownError, UnavailableError
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
    audit: AuditLog, store: ClusterStore, change_id: UUID, attempt: int, *, open_at: float, deadline: float
) -> Outcome:
    """Settle one change, once, and return the outcome. Its row is written, or is kept and sent again.

    Args:
        audit: The trail.
        store: The cluster's store.
        change_id: The change.
        attempt: The change's last attempt, for an outcome of aborted.
        open_at: A time at which the change certainly had no outcome, on the clock of ``time.monotonic()``.
        deadline: The deadline, on the same clock.

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
        outcome = _outcome(store, marker, attempt)
        if await audit.conclude([outcome]) and marker.committed:
            store.markers.release(change_id)
        return outcome


async def settle_own(
    audit: AuditLog, store: ClusterStore, change_id: UUID, attempt: int, *, began: float, deadline: float
) -> Outcome:
    """Settle a change whose reply was lost to this process, trying until the deadline.

    Args:
        audit: The trail.
        store: The cluster's store.
        change_id: The change.
        attempt: The change's last attempt.
        began: The change's begin, on the clock of ``time.monotonic()``: before that it had no outcome.
        deadline: The deadline, on the same clock.

    Raises:
        OutcomeUnknownError: The change could not be settled in time. The reconciler will settle it.
    """
    while True:
        try:
            outcome = await settle(audit, store, change_id, attempt, open_at=began, deadline=deadline)
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
    if markers and await audit.conclude([_outcome(store, marker, 1) for marker in markers]):
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
            czxid=outcome.revision if write.expected is None else write.czxid or 0,
            mzxid=outcome.revision,
            mtime_ms=outcome.time_ms,
            extra=write.extra,
        )
        for write in writes
        if isinstance(write, EntityWrite)
    )
    return Committed(outcome.revision, outcome.time_ms, nodes, outcome.versions, outcome.remade)


def _outcome(store: ClusterStore, marker: Marker, attempt: int) -> Outcome:
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
    )
