"""Drift: entities that clients write through Confplane, but whose values in the Kafka cluster differ.

The entities are known from the mirror and the durable states, so the list is complete even if the cluster is
unavailable. The values in the cluster come from a poll of the entities of one page.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop
from typing import TYPE_CHECKING, Final

from confplane.domain.access.operations import Operation
from confplane.domain.changes import stored
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import UnavailableError, WriteOutcome
from confplane.domain.facets import shown_value
from confplane.domain.ops import Op, OpType
from confplane.services.changes.edits import Edit
from confplane.services.kraft.observe.poller import PollResult
from confplane.services.kraft.pending_entity import PendingEntity
from confplane.services.ports.applying import NO_STATE, DriftCause
from confplane.services.ports.cluster_states import TargetMode
from confplane.services.ports.kafka import NotPermittedError
from confplane.services.ports.trail import EXTERNAL_PRINCIPAL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from confplane.domain.facets import Facet, FacetName
    from confplane.services.access import Access
    from confplane.services.kraft.decisions import EntityObservation
    from confplane.services.kraft.reconcile.follow_writer import FollowParts
    from confplane.services.ports.applying import AlterRefused, Author, RefusedValue, TargetState
    from confplane.services.ports.store import ClusterStore

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 1_000
"""Entities whose states are read in one query."""


class KeyDriftState(StrEnum):
    """The reason why a key differs: a :class:`DriftCause`, or it waits."""

    PENDING = "pending"
    """The change is not applied yet, in one of the two directions."""
    REFUSED = DriftCause.REFUSED.value
    """The cluster refused the value of the key, or all values of the entity."""
    CONTESTED = DriftCause.CONTESTED.value
    EXTRA = DriftCause.EXTRA.value


@dataclass(frozen=True, slots=True)
class KeyDrift:
    """One key of an entity with its two values as stored; None is absent, or a secret."""

    key: str
    state: KeyDriftState
    ours: str | None
    theirs: str | None
    """None also if the cluster was not polled."""
    secret: bool
    since_ms: int | None
    """The time of the change, milliseconds since the epoch; None if unknown."""
    principal: str | None
    """The author of the change; None if unknown."""
    refused: AlterRefused | RefusedValue | None = None
    """The cluster's refusal of the key, or of the entity."""


@dataclass(frozen=True, slots=True)
class EntityDrift:
    """One entity that differs."""

    entity: Entity
    facet: Facet
    """The facet of its keys."""
    keys: tuple[KeyDrift, ...]
    refused: AlterRefused | None
    """The cluster's refusal of the entity's values."""
    observed_at: int | None
    """The time of the poll that showed the values, milliseconds since the epoch; None if no poll did."""


@dataclass(frozen=True, slots=True)
class DriftSelection:
    """An entity, with the keys whose drift a client decides on."""

    entity: Entity
    keys: frozenset[str] | None
    """The keys; None for all that differ."""

    def includes(self, key: str) -> bool:
        """Return True if a key is selected."""
        return self.keys is None or key in self.keys


class DriftService:
    """The drift of one cluster.

    Attributes:
        poll_s: Maximum number of seconds that a page waits for the Kafka cluster.
    """

    def __init__(self, parts: FollowParts, store: ClusterStore) -> None:
        self._store = store
        self._states = parts.states
        self._decisions = parts.decisions
        self._rules = parts.decisions.rules
        self._poller = parts.poller
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
        cluster = self._store.name
        if not self._decisions.target.applies:
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
                entity = Entity.from_id(each)
                pending = self._pending(entity, known[each])
                if pending.differs and self._decisions.mode_of(entity) is not TargetMode.OBSERVE:
                    yield entity, pending

    def _pending(self, entity: Entity, state: TargetState) -> PendingEntity:
        return PendingEntity(self._decisions.node(entity), state)

    # -- decisions of clients

    async def edits(self, chosen: Sequence[DriftSelection], deadline: float) -> list[tuple[FacetName, Edit]]:
        """Return the edits that adopt the current values of the Kafka cluster, in order, with their facets.

        The poll shows everything that the cluster acknowledged before, because a lagging broker would show values that
        are older than ours.

        An entity that does not differ, and an entity of an observed type, has an edit without ops.

        Raises:
            UnavailableError: The Kafka cluster, or a broker that is named, can't be polled now.
        """
        applied = [each.entity for each in chosen if self._decisions.mode_of(each.entity) is not TargetMode.OBSERVE]
        polled = await self._poll(applied, deadline, behind_all=True)
        if polled is None:
            raise UnavailableError(
                f"The Kafka cluster of {self._store.name} can't be looked at now: it does not answer, or is paused",
                outcome=WriteOutcome.NOT_APPLIED,
                retry_after_s=1,
            )
        if polled.denied:
            raise NotPermittedError(next(iter(polled.denied.values())), outcome=WriteOutcome.NOT_APPLIED)
        for each in applied:
            kind, name = each.components[0]
            if kind is EntityType.BROKER and name is not None and each.id not in polled.brokers:
                raise UnavailableError(
                    f"The configs of {each.id} can't be read now: the broker does not answer, or is not registered. To"
                    " give a change up, delete its keys or revert it",
                    outcome=WriteOutcome.NOT_APPLIED,
                    retry_after_s=1,
                )
        observed = {each.entity: each for each in polled.differing}
        return [
            (
                self._rules.facet_of(each.entity).name,
                Edit(each.entity, self._ops(each, observed.get(each.entity)), pointer=f"/entities/{index}/id"),
            )
            for index, each in enumerate(chosen)
        ]

    def _ops(self, chosen: DriftSelection, observed: EntityObservation | None) -> tuple[Op, ...]:
        if observed is None or observed.observation is None:
            return ()
        entity, theirs = chosen.entity, observed.observation.config
        # The cluster does not show the value of a hidden key, so it cannot be adopted.
        keys = sorted(
            key
            for key in self._differing_keys(entity, self._pending(entity, NO_STATE), observed)
            if chosen.includes(key) and self._rules.governs(entity, key)
        )
        facet = self._rules.facet_of(entity)
        return tuple(
            Op(key, OpType.SET, shown_value(facet, entity, key, theirs[key]))
            if key in theirs
            else Op(key, OpType.DELETE)
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
        if self._decisions.has_earlier_states:
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
        if self._decisions.mode_of(chosen.entity) is TargetMode.OBSERVE:
            return []
        pending = self._pending(chosen.entity, state)
        contested = {key for key, drift in state.drift.items() if drift.cause is DriftCause.CONTESTED}
        keys = contested | pending.refused_keys.keys()
        if pending.refusal is not None:
            keys |= pending.unsettled_keys - state.drift.keys()
        return sorted(filter(chosen.includes, keys))

    # -- polls

    async def _entity_drifts(self, candidates: Mapping[Entity, PendingEntity], deadline: float) -> list[EntityDrift]:
        polled = await self._poll(list(candidates), deadline)
        observed = {} if polled is None else {each.entity: each for each in polled.differing}
        differing: dict[Entity, set[str]] = {}
        for entity, pending in candidates.items():
            # The poll shows neither a broker that is unavailable nor one that is equal.
            unseen = polled is None or entity.id in polled.denied
            unseen = unseen or (entity not in observed and entity.types[0] is EntityType.BROKER)
            keys = _waiting_keys(pending) if unseen else self._differing_keys(entity, pending, observed.get(entity))
            if keys:
                differing[entity] = keys
        authors = await self._states.authors(self._store.name, {each.id: keys for each, keys in differing.items()})
        return [
            self._entity_drift(entity, keys, candidates[entity], observed.get(entity), authors)
            for entity, keys in differing.items()
        ]

    def _differing_keys(self, entity: Entity, pending: PendingEntity, observed: EntityObservation | None) -> set[str]:
        """Return the keys that differ according to a poll; for an entity that no poll showed, its queued secrets.

        The cluster never shows the values of passwords, so these differ as long as they are queued.
        """
        facet = self._rules.facet_of(entity)
        secrets = {key for key in _waiting_keys(pending) if facet.is_secret(entity, key)}
        if observed is None or observed.observation is None:
            return secrets
        ours = stored(pending.node)
        followed = self._rules.reconcile(entity, ours, observed.observation)
        return secrets | {key for key in ours.keys() | followed.keys() if ours.get(key) != followed.get(key)}

    def _entity_drift(
        self,
        entity: Entity,
        keys: set[str],
        pending: PendingEntity,
        observed: EntityObservation | None,
        authors: Mapping[tuple[str, str], Author],
    ) -> EntityDrift:
        """Return an entity with its keys that differ, each with the author of the newest change here."""
        facet, enforced = self._rules.facet_of(entity), self._decisions.mode_of(entity) is TargetMode.ENFORCE
        ours, refused = stored(pending.node), pending.all_refused_keys
        theirs = {} if observed is None or observed.observation is None else observed.observation.config
        found = []
        for key in sorted(keys):
            state, value = KeyDriftState.EXTRA, theirs.get(key)
            principal: str | None = EXTERNAL_PRINCIPAL
            since: int | None = None
            refusal, author = refused.get(key), authors.get((entity.id, key))
            alone = None if refusal is not None else pending.state.drift.get(key)
            if alone is not None:
                state, since = KeyDriftState(alone.cause.value), alone.since_ms
                value = alone.theirs if observed is None else value
            elif key in pending.pending_keys:
                state = KeyDriftState.PENDING if refusal is None else KeyDriftState.REFUSED
                principal = None if author is None else author.principal
                since = None if author is None else author.time_ms
            elif key in ours or not enforced:
                state = KeyDriftState.PENDING
            secret = facet.is_secret(entity, key)
            shown = (None, None) if secret else (ours.get(key), value)
            found.append(KeyDrift(key, state, *shown, secret, since, principal, refusal))
        observed_at = None if observed is None else observed.observed_range.at_ms
        return EntityDrift(entity, facet, tuple(found), pending.refusal, observed_at)

    async def _poll(
        self, entities: Sequence[Entity], deadline: float, *, behind_all: bool = False
    ) -> PollResult | None:
        """Poll some entities of any types. Returns None if the cluster can't be polled now."""
        found = PollResult(-1, -1, 0)
        if not entities:
            return found
        if self._decisions.target.paused:
            return None
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
            return None
        for each in results:
            found.differing += each.differing
            found.add_totals(each)
        return found


def _waiting_keys(pending: PendingEntity) -> set[str]:
    """Return the keys that differ, as far as known without a poll."""
    return pending.unsettled_keys | pending.state.drift.keys()
