"""Drift: entities that clients write through Confplane, but whose values in the Kafka cluster differ.

The entities are known from the mirror and the durable states, so the list is complete even if the cluster is
unavailable. The values in the cluster come from a poll of the entities of one page.
"""

from __future__ import annotations

import logging
import time
from heapq import heapify, heappop
from typing import TYPE_CHECKING, Final

from confplane.domain.access.operations import Operation
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import UnavailableError, WriteOutcome
from confplane.domain.facets import Tree
from confplane.domain.ops import Op, OpType
from confplane.services.changes.edits import Edit
from confplane.services.kraft.pending_entity import PendingEntity
from confplane.services.kraft.reconcile.entity_drift import build_entity_drift, differing_keys, waiting_keys
from confplane.services.ports.applying import NO_STATE, DriftCause
from confplane.services.ports.cluster_states import TargetMode
from confplane.services.ports.kafka import NotPermittedError, kraft_type_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from confplane.domain.facets import FacetName
    from confplane.domain.observed import ObservedRules
    from confplane.services.access import Access
    from confplane.services.kraft.decisions import EntityObservation
    from confplane.services.kraft.observe.poller import Poller
    from confplane.services.kraft.reconcile.entity_drift import DriftSelection, EntityDrift
    from confplane.services.ports.applying import TargetState, TargetStates
    from confplane.services.ports.store import ClusterStore

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 1_000
"""Entities whose states are read in one query."""


class DriftService:
    """The drift of one cluster.

    Attributes:
        poll_s: Maximum number of seconds that a page waits for the Kafka cluster.
    """

    def __init__(self, store: ClusterStore, states: TargetStates, rules: ObservedRules, poller: Poller) -> None:
        self._store = store
        self._states = states
        self._rules = rules
        self._poller = poller
        self.poll_s = 5.0

    async def page(
        self, access: Access, *, page_size: int, after: str | None, deadline: float, only: Entity | None = None
    ) -> tuple[list[EntityDrift], str | None]:
        """Return a page of the entities that differ and that the caller may describe, by id, and the next cursor.

        Args:
            access: The caller's access.
            page_size: The maximum number of entities of a page; those that a poll finds equal are left out.
            after: Return only ids after this one.
            deadline: The deadline, on ``time.monotonic()``'s clock.
            only: Return at most this entity.
        """
        found: dict[Entity, PendingEntity] = {}
        async for entity, pending in self._candidates(access, after, only):
            if len(found) == page_size:
                return await self._entity_drifts(found, deadline), [*found][-1].id
            found[entity] = pending
        return await self._entity_drifts(found, deadline), None

    async def _candidates(
        self, access: Access, after: str | None, only: Entity | None
    ) -> AsyncIterator[tuple[Entity, PendingEntity]]:
        target, cluster = self._store.target(), self._store.name
        if target is None or not target.applies:
            return
        visible = None if access.unlimited else access.allowed(cluster, Operation.DESCRIBE_CONFIGS)
        known_ids = (
            {*self._store.entities_with_pending_keys(), *await self._states.drifting_entities(cluster)}
            if only is None
            else {only.id}
        )
        ids = [each for each in known_ids if (after is None or each > after) and (visible is None or each in visible)]
        # A page takes the first of perhaps very many, so they are not sorted.
        heapify(ids)
        while ids:
            some = [heappop(ids) for _ in range(min(_AT_ONCE, len(ids)))]
            known = await self._states.load(cluster, some)
            for each in some:
                entity, pending = Entity.from_id(each), PendingEntity(self._store.get(Tree.CONFIG, each), known[each])
                if pending.differs and target.applies_to(kraft_type_of(entity)):
                    yield entity, pending

    # -- decisions of clients

    async def edits(self, chosen: Sequence[DriftSelection], deadline: float) -> list[tuple[FacetName, Edit]]:
        """Return the edits that adopt the current values of the Kafka cluster, in order, with their facets.

        The poll shows everything that the cluster acknowledged before, because a lagging broker would show values that
        are older than ours.

        An entity that does not differ, and an entity of an observed type, has an edit without ops.

        Raises:
            UnavailableError: The Kafka cluster, or a broker that is named, can't be polled now.
        """
        applied = [each.entity for each in chosen if self._mode(each.entity) is not TargetMode.OBSERVE]
        observed, denied, answered = (
            await self._poll(applied, deadline, behind_all=True) if applied else ({}, {}, set())
        )
        if denied:
            raise NotPermittedError(next(iter(denied.values())), outcome=WriteOutcome.NOT_APPLIED)
        if observed is None:
            raise UnavailableError(
                f"The Kafka cluster of {self._store.name} can't be looked at now: it does not answer, or is paused",
                outcome=WriteOutcome.NOT_APPLIED,
                retry_after_s=1,
            )
        for each in applied:
            if each.types[0] is EntityType.BROKER and each.components[0][1] is not None and each.id not in answered:
                raise UnavailableError(
                    f"The configs of {each.id} can't be read now: the broker does not answer, or is not registered. To"
                    " give a change up, delete its keys or revert it",
                    outcome=WriteOutcome.NOT_APPLIED,
                    retry_after_s=1,
                )
        return [
            (
                self._rules.facet_of(each.entity).name,
                Edit(each.entity, self._ops(each, observed.get(each.entity.id)), pointer=f"/entities/{index}/id"),
            )
            for index, each in enumerate(chosen)
        ]

    def _ops(self, chosen: DriftSelection, observed: EntityObservation | None) -> tuple[Op, ...]:
        if observed is None or observed.observation is None:
            return ()
        entity, theirs = chosen.entity, observed.observation.config
        pending = PendingEntity(self._store.get(Tree.CONFIG, entity.id), NO_STATE)
        # The cluster does not show the value of a hidden key, so it cannot be adopted.
        keys = sorted(
            key
            for key in differing_keys(self._rules, entity, pending, observed)
            if chosen.includes(key) and self._rules.governs(entity, key)
        )
        facet = self._rules.facet_of(entity)
        return tuple(
            Op(key, OpType.SET, facet.decode(entity, key, theirs[key])) if key in theirs else Op(key, OpType.DELETE)
            for key in keys
        )

    async def reapply(
        self, chosen: Sequence[DriftSelection], access: Access, *, validate_only: bool
    ) -> dict[str, list[str]]:
        """Schedule refused and contested keys to be sent again; return the keys by entity id.

        Raises:
            ForbiddenError: The caller may not alter an entity; nothing is sent.
            UnavailableError: Postgres is unavailable, or the mirror was never loaded.
        """
        for index, each in enumerate(chosen):
            access.require(self._store.name, Operation.ALTER_CONFIGS, each.entity.id, pointer=f"/entities/{index}/id")
        target = self._store.target()
        if target is not None and target.applies and not target.states_by_key:
            raise UnavailableError(
                "Processes of an earlier release are running: repeat this once they have stopped",
                outcome=WriteOutcome.NOT_APPLIED,
                retry_after_s=10,
            )
        try:
            known = await self._states.load(self._store.name, [each.entity.id for each in chosen])
        except UnavailableError as error:
            error.outcome = error.outcome or WriteOutcome.NOT_APPLIED
            raise
        keys = {each.entity.id: some for each in chosen if (some := self._reapplied(each, known[each.entity.id]))}
        if keys and not validate_only:
            await self._states.reapply(self._store.name, keys)
        return keys

    def _reapplied(self, chosen: DriftSelection, state: TargetState) -> list[str]:
        if self._mode(chosen.entity) is TargetMode.OBSERVE:
            return []
        pending = PendingEntity(self._store.get(Tree.CONFIG, chosen.entity.id), state)
        contested = {key for key, drift in state.drift.items() if drift.cause is DriftCause.CONTESTED}
        keys = contested | pending.refused_keys.keys()
        if pending.refusal is not None:
            keys |= pending.unsettled_keys - state.drift.keys()
        return sorted(filter(chosen.includes, keys))

    def _mode(self, entity: Entity) -> TargetMode:
        target = self._store.target()
        return TargetMode.OBSERVE if target is None else target.mode_of(kraft_type_of(entity))

    # -- polls

    async def _entity_drifts(self, candidates: Mapping[Entity, PendingEntity], deadline: float) -> list[EntityDrift]:
        observed, denied, _ = await self._poll(list(candidates), deadline)
        shown = observed or {}
        differing: dict[str, set[str]] = {}
        for entity, pending in candidates.items():
            found = shown.get(entity.id)
            # The poll shows neither a broker that is unavailable nor one that is equal.
            unseen = observed is None or (found is None and entity.types[0] is EntityType.BROKER)
            unseen = unseen or entity.id in denied
            keys = waiting_keys(pending) if unseen else differing_keys(self._rules, entity, pending, found)
            if keys:
                differing[entity.id] = keys
        authors = await self._states.authors(self._store.name, differing)
        return [
            build_entity_drift(
                self._rules,
                entity,
                pending,
                differing[entity.id],
                authors,
                shown.get(entity.id),
                enforced=self._mode(entity) is TargetMode.ENFORCE,
            )
            for entity, pending in candidates.items()
            if entity.id in differing
        ]

    async def _poll(
        self, entities: Sequence[Entity], deadline: float, *, behind_all: bool = False
    ) -> tuple[dict[str, EntityObservation] | None, dict[str, str], set[str]]:
        """Return entities that differ in the Kafka cluster, the missing rights, and the brokers that answered, by id.

        The first is None if the cluster can't be polled now.
        """
        target = self._store.target()
        if target is None or target.paused or not entities:
            return None, {}, set()
        until = min(deadline, time.monotonic() + self.poll_s)
        try:
            if behind_all:
                results = await self._poller.poll_current(entities, until)
            else:
                results = await self._poller.poll_entities(entities, None, until)
        except UnavailableError as error:
            logger.info(
                "Cluster %s: drift is shown without the values in the cluster: %s", self._store.name, error.detail
            )
            return None, {}, set()
        return (
            {each.entity.id: each for part in results for each in part.differing},
            {entity_id: reason for part in results for entity_id, reason in part.denied.items()},
            {entity_id for part in results for entity_id in part.brokers},
        )
