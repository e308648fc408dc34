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

from app.domain.errors import ConcurrentChangeError, ConfplaneError, ThrottledError
from app.services.changes.draft import Draft, Unchanged
from app.services.ports.store import ClusterStore
from app.services.ports.trail import IntentEntity
from app.services.ports.transactions import Removal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from app.domain.facets import Tree
    from app.services.changes.callers import Caller
    from app.services.changes.runner import ChangeRunner

_Removals = tuple[Removal, ...]

_FACETS: Final = {"/config": "client-quotas", "/confplane/client-configs": "client-configs"}
_CHANGE_S: Final = 30.0
"""Seconds for each entity."""
_PAUSE_S: Final = 5.0
"""Between two looks at whether the brokers have taken notice of enough changes."""


class CompactedStore(ClusterStore, Protocol):
    """A cluster's store with what compaction needs besides."""

    def seemingly_empty(self) -> list[tuple[Tree, str]]:
        """Return trees and ids of entities that hold nothing, by the mirror: a user's clients before the user."""

    async def emptiness(self, tree: Tree, entity_id: str, age_s: float, deadline: float) -> tuple[Removal, ...] | None:
        """Look at an entity in ZooKeeper; None where it is not empty, was touched, or has children.

        Args:
            tree: Which tree.
            entity_id: Which entity.
            age_s: How long it must not have been touched, by ZooKeeper's clock.
            deadline: Until when.

        Returns:
            What goes with it: its node, that of its user where that is left with nothing, and the folder between.
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

    def __init__(self, runner: ChangeRunner, store: CompactedStore) -> None:
        self._runner = runner
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
            if apply:
                yield await self._remove(tree, entity_id, caller, older_than_s)
            else:
                found = await self._store.emptiness(tree, entity_id, older_than_s, time.monotonic() + _CHANGE_S)
                yield None if found is None else CompactResult(_ids(found))

    async def _remove(self, tree: Tree, entity_id: str, caller: Caller, older_than_s: float) -> CompactResult | None:
        while True:
            deadline = time.monotonic() + _CHANGE_S

            async def decide(*, again: bool, deadline: float = deadline) -> Draft[_Removals] | Unchanged[_Removals]:
                del again  # it is always read from ZooKeeper
                found = await self._store.emptiness(tree, entity_id, older_than_s, deadline)
                return Unchanged(()) if found is None else _draft(tree, found)

            try:
                ended = await self._runner.run(self._store, decide, replace(caller, deadline=deadline))
            except ThrottledError:
                await asyncio.sleep(_PAUSE_S)
            except ConcurrentChangeError as error:
                return CompactResult((entity_id,), error=error)
            else:
                return None if ended.change_id is None else CompactResult(_ids(ended.decided), str(ended.change_id))


def _ids(removals: _Removals) -> tuple[str, ...]:
    return tuple(each.entity.id for each in removals if each.entity is not None)


def _draft(tree: Tree, removals: _Removals) -> Draft[_Removals]:
    return Draft(
        removals,
        writes=removals,
        entities=tuple(
            IntentEntity(
                entity_id=each.entity.id,
                facet=_FACETS[tree.value],
                path=each.path,
                version_read=each.expected,
                czxid_read=each.czxid,
                keys=(),
                ops=({"removeAll": True},),
                before={},
                after={},
            )
            for each in removals
            if each.entity is not None
        ),
    )
