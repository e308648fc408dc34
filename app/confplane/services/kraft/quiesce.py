"""A freeze of a cluster whose changes are applied to a Kafka cluster: nothing is sent once the freeze was answered.

Before the freeze its caller waits a moment, so that the Kafka cluster takes what was committed. Behind the freeze the
leader lets the requests under way end, begins no other, and says in its report that it is at rest. What the cluster has
not taken by then waits for the thaw, and is listed as drift.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.errors import UnavailableError
from confplane.services.kraft.report import parse
from confplane.services.ports.cluster_states import Freeze

if TYPE_CHECKING:
    from confplane.services.changes.callers import Caller
    from confplane.services.changes.freeze import FreezeResult, FreezeService
    from confplane.services.kraft.apply_status import ApplyWaiter
    from confplane.services.ports.store import ClusterStore

DRAIN_S: Final = 2.0
"""Seconds that a freeze waits for what was committed, at most."""
QUIESCE_S: Final = 5.0
"""Seconds that a freeze waits for the leader, at most."""
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class QuiesceResult:
    """The application of changes behind a freeze."""

    rested: bool
    """No request is under way, and none begins before the thaw. False: the leader did not say so in time."""
    pending: int | None
    """Entities with changes that the cluster has not taken; None where the leader did not say so in time."""


UNCONFIRMED: Final = QuiesceResult(rested=False, pending=None)


class Quiescer:
    """Freezes one cluster, in any process.

    Args:
        store: The cluster's store, started.
        standings: The standings of the cluster's entities.
    """

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
        """Freeze the cluster, and wait until nothing is sent any more; see :meth:`FreezeService.freeze`.

        Returns:
            The freeze, and what became of the application of changes: None where nothing is applied in any case.

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
            return found, UNCONFIRMED  # the freeze stands all the same

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
