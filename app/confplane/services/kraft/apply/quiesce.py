"""Quiesces deliveries for a freeze: nothing is sent to the Kafka cluster after the response to the freeze.

1. Before the freeze, the request waits briefly for the Kafka cluster to accept the committed changes.
2. After the freeze, the leader lets the deliveries in flight finish, begins no other, and reports that it is quiesced.
3. Changes that the cluster has not accepted by then remain queued until the thaw, and are listed as drift.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.errors import UnavailableError
from confplane.domain.texts import rfc3339
from confplane.services.ports.cluster_states import Freeze
from confplane.services.ports.observation_report import parse

if TYPE_CHECKING:
    from confplane.services.changes.callers import Caller
    from confplane.services.changes.freeze import FreezeResult, FreezeService
    from confplane.services.kraft.apply.apply_status import ApplyWaiter
    from confplane.services.ports.store import ClusterStore

DRAIN_S: Final = 2.0
"""Maximum number of seconds that a freeze waits for committed changes to be applied."""
QUIESCE_S: Final = 5.0
"""Maximum number of seconds that a freeze waits for the leader."""
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class QuiesceResult:
    """The state of deliveries after a freeze."""

    rested: bool
    """No delivery is in flight, and none begins before the thaw. False: the leader did not confirm this in time."""
    pending: int | None
    """Entities with changes that the cluster has not taken; None if the leader did not report in time."""


def freeze_view(found: FreezeResult, quiesced: QuiesceResult | None = None) -> dict[str, Any]:
    """Return the result of a freeze or a thaw as the API shows it."""

    def view(freeze: Freeze | None) -> dict[str, Any] | None:
        if freeze is None:
            return None
        since = None if freeze.principal is None else rfc3339(datetime.fromtimestamp(freeze.since_ms / 1000, UTC))
        return {"reason": freeze.reason, "principal": freeze.principal, "since": since}

    return {
        "before": view(found.before),
        "after": view(found.after),
        "changeId": found.change_id,
        "revision": None if found.revision is None else str(found.revision),
        "applying": None if quiesced is None else {"rested": quiesced.rested, "pending": quiesced.pending},
    }


UNCONFIRMED: Final = QuiesceResult(rested=False, pending=None)


class Quiescer:
    """Freezes one cluster and waits until deliveries have stopped, in any process."""

    def __init__(self, store: ClusterStore, waiter: ApplyWaiter) -> None:
        self._store = store
        self._waiter = waiter

    @property
    def _applies(self) -> bool:
        target = self._store.target()
        return target is not None and target.applies and not target.paused

    async def freeze(
        self, freezes: FreezeService, reason: str, caller: Caller, *, validate_only: bool = False
    ) -> tuple[FreezeResult, QuiesceResult | None]:
        """Freeze the cluster, and wait until deliveries have stopped; see :meth:`FreezeService.freeze`.

        Returns:
            The freeze, and the state of deliveries; None for the state if no changes are applied anyway.

        Raises:
            ConfplaneError: The freeze failed.
        """
        caller.require(self._store.name, Operation.FREEZE, ResourceType.CLUSTER)
        if validate_only or not self._applies:
            return await freezes.freeze(self._store, reason, caller, validate_only=validate_only), None
        await self._drain(caller.deadline)
        found = await freezes.freeze(self._store, reason, caller)
        try:
            return found, await self._wait_for_leader(caller.deadline)
        except UnavailableError:
            return found, UNCONFIRMED  # the freeze is effective anyway

    async def _drain(self, deadline: float) -> None:
        if self._store.status().frozen is None:
            await self._waiter.wait_for_revision(self._store.journal.latest, min(deadline, time.monotonic() + DRAIN_S))

    async def _wait_for_leader(self, deadline: float) -> QuiesceResult:
        version = (await self._store.read_state(Freeze, deadline)).version
        until = min(deadline, time.monotonic() + QUIESCE_S)
        while time.monotonic() < until:
            report = parse(self._store.observation())
            if report is not None and report.applying is not None and report.applying.rested == version:
                return QuiesceResult(rested=True, pending=report.applying.pending)
            await asyncio.sleep(_POLL_S)
        return UNCONFIRMED
