"""The apply status of client changes in the Kafka cluster (applied, pending or refused), and waits for it.

Postgres has the state of each entity. The leader publishes a watermark
(:mod:`confplane.services.kraft.apply.queues`), which wakes all waits of a process at once. One query answers
them. Waits that begin are checked a few times a second, because most end with a later watermark.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import FacetName, Tree
from confplane.services.kraft.pending_entity import PendingEntity, describe_refusals
from confplane.services.ports.kafka import kraft_type_of
from confplane.services.znode_metadata import read_metadata

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from confplane.domain.changes import Node
    from confplane.services.ports.applying import RefusedValue, TargetState, TargetStates
    from confplane.services.ports.store import ClusterStore

POLL_S = 1.0
"""Seconds after which waits are checked again without a new watermark."""
_NEW_S: Final = 0.05
"""Seconds between two checks of new waits, whose changes may have been completed before."""
FACETS: Final = frozenset({FacetName.CLIENT_QUOTAS, FacetName.CONFIGS})
"""The facets that are applied to a Kafka cluster."""
_UNDONE: Final = "The change was undone before the cluster took it: the topic is gone, or the mode has ended"
_MOST: Final = 1_000
"""Entities in one query."""


class ChangeApplyState(StrEnum):
    """The states of a change in the Kafka cluster."""

    APPLIED = "applied"
    """The cluster has taken the change, or a later one of the same entity."""
    PENDING = "pending"
    """The change was not sent yet, or its outcome is unknown; it is sent later, or again."""
    REFUSED = "refused"
    """The cluster refused the entity's values, or the change was undone here before the cluster took it."""
    PARTLY_REFUSED = "partly-refused"
    """The cluster refused some keys of the entity, and has taken all others."""


@dataclass(frozen=True, slots=True)
class ApplyStatus:
    """The apply status of an entity's config in the Kafka cluster."""

    state: ChangeApplyState
    revision: int | None = None
    """The newest revision of the entity that the cluster has taken; None before the first client change."""
    code: int | None = None
    """Kafka's error code; None unless Kafka refused the change. Of several refused keys, the code of the first."""
    message: str | None = None
    """Kafka's error message, or the reason why the change was undone; None unless refused."""
    refused_keys: Mapping[str, RefusedValue] = field(default_factory=dict, hash=False)
    """The refused keys of an entity whose other keys the cluster has taken."""


PENDING: Final = ApplyStatus(ChangeApplyState.PENDING)
UNDONE: Final = ApplyStatus(ChangeApplyState.REFUSED, message=_UNDONE)


@dataclass(eq=False, slots=True)
class _Wait:
    """The wait of one request for one entity."""

    entity_id: str
    revision: int
    ended: asyncio.Future[ApplyStatus]
    last: ApplyStatus = PENDING
    is_new: bool = True
    """True until it is checked for the first time."""


class ApplyWaiter:
    """Reads and waits for the apply status of one cluster's entities."""

    def __init__(self, store: ClusterStore, states: TargetStates) -> None:
        self._store = store
        self._states = states
        self._waits: set[_Wait] = set()
        self._moved = asyncio.Event()
        self._risen = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        store.on_applied(self._on_applied)

    def _on_applied(self) -> None:
        self._moved.set()
        self._risen.set()

    @property
    def applies(self) -> bool:
        """True if client changes are applied to a Kafka cluster."""
        target = self._store.target()
        return target is not None and target.applies

    async def statuses(self, nodes: Iterable[Node]) -> dict[str, ApplyStatus]:
        """Return the apply status of nodes by entity id, except for observed entity types.

        Nodes without a client change need no query.
        """
        found: dict[str, ApplyStatus] = {}
        asked: dict[str, Node] = {}
        target = self._store.target()
        for node in nodes:
            if target is not None and not target.applies_to(kraft_type_of(Entity.from_id(node.id))):
                continue
            if (followed := _followed_status(node, node.mzxid)) is None:
                asked[node.id] = node
            else:
                found[node.id] = followed
        known = await self._known(asked)
        return found | {each: _status(known[each], node, node.mzxid) for each, node in asked.items()}

    def pending(self) -> list[str]:
        """Return the entities of the mirror with pending keys."""
        return self._store.entities_with_pending_keys()

    async def current(self, entity_ids: Collection[str]) -> dict[str, ApplyStatus]:
        """Return the apply statuses of entities that had pending keys.

        The changes of an entity that is gone, or that is only observed by now, were undone.
        """
        nodes = [self._store.get(Tree.CONFIG, each) for each in entity_ids]
        return dict.fromkeys(entity_ids, UNDONE) | await self.statuses(node for node in nodes if node is not None)

    async def wait(self, written: Mapping[str, int], deadline: float) -> dict[str, ApplyStatus]:
        """Wait until changes are applied or refused, or until the deadline; return their apply status.

        Args:
            written: Entity id -> the revision of its change.
            deadline: On the clock of ``time.monotonic()``.
        """
        loop = asyncio.get_running_loop()
        waits = [_Wait(each, revision, loop.create_future()) for each, revision in written.items()]
        self._waits.update(waits)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll(), name=f"apply-waiter-{self._store.name}")
        try:
            await asyncio.wait([each.ended for each in waits], timeout=max(0.0, deadline - time.monotonic()))
        finally:
            self._waits.difference_update(waits)
        return {each.entity_id: each.ended.result() if each.ended.done() else each.last for each in waits}

    async def wait_for_revision(self, revision: int, deadline: float) -> bool:
        """Wait until no change up to a revision is queued; return False at the deadline."""
        while (self._store.applied_revision() or 0) < revision:
            self._risen.clear()
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, POLL_S)):
                    await self._risen.wait()
        return True

    async def _poll(self) -> None:
        checked_at = float("-inf")
        while True:
            if self._moved.is_set() or time.monotonic() - checked_at >= POLL_S:
                self._moved.clear()
                checked_at = time.monotonic()
                waiting = list(self._waits)
            else:
                waiting = [each for each in self._waits if each.is_new]
            with contextlib.suppress(UnavailableError):  # Postgres comes back, or the waits end as they are
                await self._resolve(waiting)
            if not self._waits:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_NEW_S):
                    await self._moved.wait()

    async def _resolve(self, waiting: Collection[_Wait]) -> None:
        """Resolve the waits whose changes are completed."""
        for wait in waiting:
            wait.is_new = False
        # Read the states after the nodes: a znode follows the cluster only after the outcome of its delivery.
        mirrored, _ = self._store.freshness() or (0, None)
        nodes = {each.entity_id: self._store.get(Tree.CONFIG, each.entity_id) for each in waiting}
        known = await self._known(nodes)
        for wait in waiting:
            node = nodes[wait.entity_id]
            wait.last = _followed_status(node, wait.revision) or _status(known[wait.entity_id], node, wait.revision)
            # The mirror may not have the change of another process yet.
            waits = (node is not None and bool(read_metadata(node.extra).pending_keys)) or mirrored < wait.revision
            if wait.last.state is ChangeApplyState.PENDING and not waits:
                wait.last = replace(wait.last, state=ChangeApplyState.REFUSED, message=_UNDONE)
            if wait.last.state is not ChangeApplyState.PENDING and not wait.ended.done():
                wait.ended.set_result(wait.last)
                self._waits.discard(wait)

    async def _known(self, entity_ids: Collection[str]) -> dict[str, TargetState]:
        found: dict[str, TargetState] = {}
        ids = list(entity_ids)
        for first in range(0, len(ids), _MOST):
            found |= await self._states.load(self._store.name, ids[first : first + _MOST])
        return found


def _followed_status(node: Node | None, revision: int) -> ApplyStatus | None:
    """Return the apply status of a revision that follows the cluster; None for any other."""
    if node is None or node.mzxid != revision or read_metadata(node.extra).pending_keys:
        return None
    return ApplyStatus(ChangeApplyState.APPLIED, revision)


def _status(state: TargetState, node: Node | None, revision: int) -> ApplyStatus:
    """Return the apply status of a revision of an entity with pending keys.

    The refusal of a later revision does not affect one that the cluster took before. The current revision may be
    refused although it was taken once: the entity was changed externally, and the cluster refuses to put it back.
    """
    taken, sent = state.applied_mzxid or None, state.sent_mzxid
    if state.refused is not None and (sent == revision or sent > revision > (taken or 0)):
        return ApplyStatus(ChangeApplyState.REFUSED, taken, state.refused.code, state.refused.text)
    if taken is not None and taken >= revision:
        refused = PendingEntity(node, state).refused_keys
        if not refused:
            return ApplyStatus(ChangeApplyState.APPLIED, taken)
        code = refused[min(refused)].code
        return ApplyStatus(ChangeApplyState.PARTLY_REFUSED, taken, code, describe_refusals(refused), refused)
    return ApplyStatus(ChangeApplyState.PENDING, taken)
