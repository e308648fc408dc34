"""Compaction: config nodes that hold nothing, and were not touched for a while, are removed.

An alter never deletes a node, so that a version never starts again while anybody may remember it. This does, later, as
Kafka 3.5 and newer do at once: nodes of users, clients and ips, and the parents of a user's client that are left with
nothing. Topics' and brokers' nodes stay, as they do in Kafka.

Each entity is a change of its own (docs/architecture.md, "One write"): intent, transaction, outcome.

Source: AdminZkClient.tryCleanQuotaNodes.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from app.domain.errors import (
    ConcurrentChangeError,
    ConfplaneError,
    OutcomeUnknownError,
    ThrottledError,
    UnavailableError,
)
from app.services.outcomes import conclude_committed, conclude_rejected
from app.services.ports import ClusterStore, Committed, Conflict, Intent, IntentEntity, SessionEnded
from app.services.settle import settle_own

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

    from app.domain.entities import Entity
    from app.domain.facets import Tree
    from app.services.clusters import Caller
    from app.services.ports import AuditLog, CommitResult

_FACETS: Final = {"/config": "client-quotas", "/confplane/client-configs": "client-configs"}
_CHANGE_S: Final = 30.0
"""Seconds for each entity."""
_PAUSE_S: Final = 5.0
"""Between two looks at whether the brokers have taken notice of enough changes."""


@dataclass(frozen=True, slots=True)
class EmptyNode:
    """A config node that holds nothing, as ZooKeeper has it."""

    entity: Entity
    path: str
    """Below the chroot."""
    version: int
    czxid: int


@dataclass(frozen=True, slots=True)
class Emptiness:
    """What goes with one empty entity."""

    nodes: tuple[EmptyNode, ...]
    """Its own, and that of its user where that is left with nothing."""
    folders: tuple[str, ...] = ()
    """Paths of nodes between them that are no entity's, and have no other child."""


@dataclass(frozen=True, slots=True)
class Removal:
    """One attempt to remove what is empty."""

    change_id: UUID
    writer: str
    what: Emptiness
    principal: str
    request_id: str


class CompactedStore(ClusterStore, Protocol):
    """A cluster's store with what compaction needs besides."""

    def seemingly_empty(self) -> list[tuple[Tree, str]]:
        """Return trees and ids of entities that hold nothing, by the mirror: a user's clients before the user."""

    async def emptiness(self, tree: Tree, entity_id: str, age_s: float, deadline: float) -> Emptiness | None:
        """Look at an entity in ZooKeeper; None where it is not empty, was touched, or has children.

        Args:
            tree: Which tree.
            entity_id: Which entity.
            age_s: How long it must not have been touched, by ZooKeeper's clock.
            deadline: Until when.
        """

    async def remove(self, removal: Removal, deadline: float) -> CommitResult:
        """Remove nodes that are still as they were looked at, and notify the brokers, in one transaction.

        Raises:
            UnavailableError: Nothing was submitted, for certain.
            FrozenError: The same; the cluster is frozen.
            StaleControllerError: The same; brokers would refuse.
            ThrottledError: The same; too many notifications are waiting for the brokers.
        """


@dataclass(frozen=True, slots=True)
class CompactResult:
    """What became of one entity."""

    entity_ids: tuple[str, ...]
    """Whose nodes went, or would go."""
    change_id: str | None = None
    """None where nothing was removed."""
    error: ConfplaneError | None = None


class CompactService:
    """Compacts one cluster."""

    def __init__(self, audit: AuditLog, store: CompactedStore) -> None:
        self._audit = audit
        self._store = store

    def candidates(self) -> list[tuple[Tree, str]]:
        """Return what may be removed, as far as the mirror tells."""
        return self._store.seemingly_empty()

    async def run(
        self, candidates: Sequence[tuple[Tree, str]], caller: Caller, *, older_than_s: float, apply: bool
    ) -> AsyncIterator[CompactResult | None]:
        """Go through candidates one by one, and yield what became of each; None is one that stays as it is.

        Args:
            candidates: Of :meth:`candidates`.
            caller: Who asks; each entity has a deadline of its own.
            older_than_s: How long a node must not have been touched.
            apply: Remove; else only look.

        Raises:
            ConfplaneError: Nothing more can be done now: a store is away, the cluster is frozen. What was yielded is
                done.
        """
        for tree, entity_id in candidates:
            while True:
                now = replace(caller, deadline=time.monotonic() + _CHANGE_S)
                what = await self._store.emptiness(tree, entity_id, older_than_s, now.deadline)
                if what is None:
                    yield None
                    break
                ids = tuple(node.entity.id for node in what.nodes)
                try:
                    change_id = await _Change(self._audit, self._store, tree, what, now).run() if apply else None
                except ThrottledError:
                    await asyncio.sleep(_PAUSE_S)
                    continue
                except ConcurrentChangeError as error:
                    yield CompactResult(ids, error=error)
                else:
                    yield CompactResult(ids, change_id)
                break


class _Change:
    """The removal of one entity: one attempt, because what was touched meanwhile is not to go."""

    def __init__(self, audit: AuditLog, store: CompactedStore, tree: Tree, what: Emptiness, caller: Caller) -> None:
        self._audit = audit
        self._store = store
        self._tree = tree
        self._what = what
        self._caller = caller
        self._id = self._store.new_change_id()
        self._began = time.monotonic()
        self._settled = False

    async def run(self) -> str:
        """Remove it, and return the id of the change."""
        writer = self._store.writer()
        await self._audit.intend([self._intent(writer)])
        try:
            await self._remove(writer)
        except OutcomeUnknownError:
            raise  # its intent stays open until someone settles it
        except ConfplaneError as error:
            if not self._settled:
                await conclude_rejected(self._audit, self._store, self._id, 1, int(error.code), error.detail)
            raise
        return str(self._id)

    async def _remove(self, writer: str) -> None:
        caller = self._caller
        removal = Removal(self._id, writer, self._what, caller.principal, caller.request_id)
        result = await self._store.remove(removal, caller.deadline)
        if isinstance(result, Committed):
            await conclude_committed(self._audit, self._store, self._id, 1, result, {})
            return
        if isinstance(result, Conflict):
            raise ConcurrentChangeError("It was changed this moment, and stays")
        if isinstance(result, SessionEnded):
            raise UnavailableError(f"ZooKeeper refused: {result.reason}; nothing was removed")
        outcome = await settle_own(self._audit, self._store, self._id, 1, began=self._began, deadline=caller.deadline)
        self._settled = True
        if not outcome.committed:
            raise UnavailableError("ZooKeeper's reply was lost; it was settled as aborted. Nothing was removed")

    def _intent(self, writer: str) -> Intent:
        caller = self._caller
        return Intent(
            change_id=self._id,
            attempt=1,
            cluster=self._store.name,
            writer=writer,
            principal=caller.principal,
            source=caller.source,
            request_id=caller.request_id,
            reason=caller.reason,
            ticket=caller.ticket,
            entities=tuple(
                IntentEntity(
                    entity_id=node.entity.id,
                    facet=_FACETS[self._tree.value],
                    path=node.path,
                    version_read=node.version,
                    czxid_read=node.czxid,
                    keys=(),
                    ops=({"removeAll": True},),
                    before={},
                    after={},
                )
                for node in self._what.nodes
            ),
        )
