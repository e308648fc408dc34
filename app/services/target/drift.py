"""Drift: entities whose values in a Kafka cluster differ from those here, though callers write them here.

The entities are known from the mirror and from the durable states, so the list is whole while the cluster is away. The
values in the cluster are those of a look at the entities of one page.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from app.domain.access.operations import Operation
from app.domain.changes import stored
from app.domain.entities import Entity, EntityType
from app.domain.errors import UnavailableError, WriteOutcome
from app.domain.facets import Tree
from app.domain.ops import Op, OpType
from app.services.altered import altered
from app.services.changes.edits import Edit
from app.services.ports.applying import Cause
from app.services.ports.kafka import area_of
from app.services.recorder.recorded import PRINCIPAL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from app.domain.changes import Node
    from app.domain.facets import Facet, FacetName
    from app.domain.observed import Rules
    from app.services.access import Access
    from app.services.ports.applying import Author, Refused, TargetState, TargetStates
    from app.services.target.follow import Seen
    from app.services.target.looks import Looks
    from app.services.target.ports import ObservedStore

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 1_000
"""Entities whose states are read at once."""
_LOOK_S: Final = 5.0
"""Seconds that a page waits for the Kafka cluster, at most."""


class KeyState(StrEnum):
    """The reason for which a key differs."""

    PENDING = "pending"
    """The change is on its way: to the cluster, or from there."""
    REFUSED = "refused"
    """The cluster refused the entity's values."""
    CONTESTED = "contested"
    """Others set the key again and again, and it is put back no more."""
    EXTRA = "extra"
    """Others set the key in the cluster, and it was never set here."""


@dataclass(frozen=True, slots=True)
class DriftedKey:
    """One key of an entity with its two values as stored; None is absent, or a secret."""

    key: str
    state: KeyState
    ours: str | None
    theirs: str | None
    """None also where the cluster was not looked at."""
    secret: bool
    since_ms: int | None
    """The time of the change, milliseconds since the epoch; None: not known."""
    principal: str | None
    """The author of the change; None: not known."""


@dataclass(frozen=True, slots=True)
class Drifted:
    """One entity that differs."""

    entity: Entity
    facet: Facet
    """The facet of its keys."""
    keys: tuple[DriftedKey, ...]
    refused: Refused | None
    """The cluster's refusal of the entity's values."""
    observed_at: int | None
    """The time of the look that showed the values, milliseconds since the epoch; None: no look did."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """An entity of which a caller decides on the drift."""

    entity: Entity
    keys: frozenset[str] | None
    """The keys; None: all that differ."""

    def names(self, key: str) -> bool:
        """Say whether the decision is on a key."""
        return self.keys is None or key in self.keys


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An entity that may differ."""

    entity: Entity
    node: Node | None
    state: TargetState | None

    @property
    def refused(self) -> Refused | None:
        """The cluster's refusal of the present values."""
        current = self.state is not None and self.node is not None and self.state.sent_mzxid == self.node.mzxid
        return self.state.refused if self.state is not None and current else None

    @property
    def differs(self) -> bool:
        """True where something waits, was refused, or is left alone."""
        if self.state is not None and (self.state.is_open or self.state.drift):
            return True
        if self.node is None or not altered(self.node.extra):
            return False
        return self.state is None or self.state.applied_mzxid != self.node.mzxid

    @property
    def waiting(self) -> set[str]:
        """The keys that differ, as far as known without a look."""
        left = set() if self.state is None else {*self.state.drift, *self.state.reapply}
        if self.node is None:
            return left
        config, taken = self.node.config, {} if self.state is None else self.state.applied
        return left | {key for key in altered(self.node.extra) if key not in taken or taken[key] != config.get(key)}


class DriftService:
    """The drift of one cluster.

    Args:
        store: The cluster's store, started.
        states: The states of entities in the Kafka cluster.
        rules: The rules of the cluster's configs.
        looks: The looks at the Kafka cluster; None where the settings name no brokers.
    """

    def __init__(self, store: ObservedStore, states: TargetStates, rules: Rules, looks: Looks | None) -> None:
        self._store = store
        self._states = states
        self._rules = rules
        self._looks = looks

    async def page(
        self, access: Access, *, page_size: int, after: str | None, deadline: float
    ) -> tuple[list[Drifted], str | None]:
        """Return a page of the entities that differ and that the caller may describe, by id, and the next cursor.

        Args:
            access: The caller's access.
            page_size: The most entities of a page; those that a look finds equal are left out.
            after: Only ids behind this one.
            deadline: Until when, on ``time.monotonic()``'s clock.

        Raises:
            UnavailableError: Postgres is away, or the mirror was never loaded.
        """
        found: list[_Candidate] = []
        async for candidate in self._candidates(access, after):
            if len(found) == page_size:
                return await self._shown(found, deadline), found[-1].entity.id
            found.append(candidate)
        return await self._shown(found, deadline), None

    async def _candidates(self, access: Access, after: str | None) -> AsyncIterator[_Candidate]:
        target, cluster = self._store.target(), self._store.name
        if target is None or not target.applies:
            return
        visible = None if access.unlimited else access.allowed(cluster, Operation.DESCRIBE_CONFIGS)
        ids = sorted(
            each
            for each in {*self._store.altered(), *await self._states.drifting(cluster)}
            if (after is None or each > after) and (visible is None or each in visible)
        )
        for start in range(0, len(ids), _AT_ONCE):
            some = ids[start : start + _AT_ONCE]
            known = await self._states.known(cluster, some)
            for each in some:
                candidate = _Candidate(Entity.from_id(each), self._store.get(Tree.CONFIG, each), known.get(each))
                if candidate.differs and target.applies_to(area_of(candidate.entity)):
                    yield candidate

    # -- decisions of callers

    async def edits(self, chosen: Sequence[Chosen], deadline: float) -> list[tuple[FacetName, Edit]]:
        """Return the edits that take over the values of the Kafka cluster as it has them now, in order, with facets.

        An entity that does not differ has an edit without ops, and so has every entity that is observed.

        Raises:
            UnavailableError: The Kafka cluster can't be looked at now.
        """
        applied = [each.entity for each in chosen if self._applies(each.entity)]
        seen = await self._look(applied, deadline) if applied else {}
        if seen is None:
            raise UnavailableError(
                f"The Kafka cluster of {self._store.name} can't be looked at now: it does not answer, or is paused",
                outcome=WriteOutcome.NOT_APPLIED,
                retry_after_s=1,
            )
        return [
            (
                self._rules.facet_of(each.entity).name,
                Edit(each.entity, self._ops(each, seen.get(each.entity.id)), pointer=f"/entities/{index}/id"),
            )
            for index, each in enumerate(chosen)
        ]

    def _ops(self, chosen: Chosen, seen: Seen | None) -> tuple[Op, ...]:
        if seen is None or seen.sight is None:
            return ()
        entity, theirs = chosen.entity, seen.sight.config
        candidate = _Candidate(entity, self._store.get(Tree.CONFIG, entity.id), None)
        # Of a key that it hides the cluster has no value to take over.
        keys = sorted(
            key for key in self._differing(candidate, seen) if chosen.names(key) and self._rules.governs(entity, key)
        )
        facet = self._rules.facet_of(entity)
        return tuple(
            Op(key, OpType.SET, facet.decode(entity, key, theirs[key])) if key in theirs else Op(key, OpType.DELETE)
            for key in keys
        )

    async def reapply(self, chosen: Sequence[Chosen], access: Access, *, validate_only: bool) -> dict[str, list[str]]:
        """Have what was refused, and what is contested, sent again; return the keys by entity id.

        Raises:
            ForbiddenError: The caller may not alter an entity; nothing is sent.
            UnavailableError: Postgres is away, or the mirror was never loaded.
        """
        for index, each in enumerate(chosen):
            access.require(self._store.name, Operation.ALTER_CONFIGS, each.entity.id, pointer=f"/entities/{index}/id")
        known = await self._states.known(self._store.name, [each.entity.id for each in chosen])
        keys = {each.entity.id: some for each in chosen if (some := self._reapplied(each, known.get(each.entity.id)))}
        if keys and not validate_only:
            await self._states.reapply(self._store.name, keys)
        return keys

    def _reapplied(self, chosen: Chosen, state: TargetState | None) -> list[str]:
        if state is None or not self._applies(chosen.entity):
            return []
        candidate = _Candidate(chosen.entity, self._store.get(Tree.CONFIG, chosen.entity.id), state)
        keys = {key for key, drift in state.drift.items() if drift.cause is Cause.CONTESTED}
        if candidate.refused is not None:
            keys |= candidate.waiting - state.drift.keys()
        return sorted(filter(chosen.names, keys))

    def _applies(self, entity: Entity) -> bool:
        target = self._store.target()
        return target is not None and target.applies_to(area_of(entity))

    # -- looks

    async def _shown(self, candidates: Sequence[_Candidate], deadline: float) -> list[Drifted]:
        seen = await self._look([each.entity for each in candidates], deadline)
        differing: dict[str, set[str]] = {}
        for each in candidates:
            found = None if seen is None else seen.get(each.entity.id)
            # A broker that is away is not among what was seen, nor is a broker that has what it should.
            unseen = seen is None or (found is None and each.entity.types[0] is EntityType.BROKER)
            keys = each.waiting if unseen else self._differing(each, found)
            if keys:
                differing[each.entity.id] = keys
        authors = await self._states.authors(self._store.name, differing)
        return [
            self._drifted(each, differing[each.entity.id], authors, (seen or {}).get(each.entity.id))
            for each in candidates
            if each.entity.id in differing
        ]

    async def _look(self, entities: Sequence[Entity], deadline: float) -> dict[str, Seen] | None:
        """Return the entities that differ in the Kafka cluster, by id; None where it can't be looked at now."""
        target = self._store.target()
        if self._looks is None or target is None or target.paused or not entities:
            return None
        try:
            looked = await self._looks.of(entities, None, min(deadline, time.monotonic() + _LOOK_S))
        except UnavailableError as error:
            logger.info(
                "Cluster %s: drift is shown without the values in the cluster: %s", self._store.name, error.detail
            )
            return None
        return {each.entity.id: each for part in looked for each in part.seen}

    def _differing(self, candidate: _Candidate, seen: Seen | None) -> set[str]:
        facet = self._rules.facet_of(candidate.entity)
        # Nobody sees the cluster's values of passwords.
        secrets = {key for key in candidate.waiting if facet.is_secret(candidate.entity, key)}
        if seen is None or seen.sight is None:
            return secrets
        ours = stored(candidate.node)
        followed = self._rules.followed(candidate.entity, ours, seen.sight)
        return secrets | {key for key in ours.keys() | followed.keys() if ours.get(key) != followed.get(key)}

    def _drifted(
        self, candidate: _Candidate, keys: set[str], authors: Mapping[tuple[str, str], Author], seen: Seen | None
    ) -> Drifted:
        entity, node = candidate.entity, candidate.node
        ours = stored(node)
        theirs = {} if seen is None or seen.sight is None else seen.sight.config
        written = set() if node is None else set(altered(node.extra))
        left = {} if candidate.state is None else candidate.state.drift
        facet = self._rules.facet_of(entity)

        def drifted(key: str) -> DriftedKey:
            state, value = KeyState.EXTRA, theirs.get(key)
            principal: str | None = PRINCIPAL
            since: int | None = None
            alone = left.get(key)
            if alone is not None:
                state, since = KeyState(alone.cause.value), alone.since_ms
                value = alone.theirs if seen is None else value
            elif key in written:
                state = KeyState.PENDING if candidate.refused is None else KeyState.REFUSED
                author = authors.get((entity.id, key))
                principal = None if author is None else author.principal
                since = None if author is None else author.time_ms
            elif key in ours:
                state = KeyState.PENDING
            secret = facet.is_secret(entity, key)
            return DriftedKey(
                key, state, None if secret else ours.get(key), None if secret else value, secret, since, principal
            )

        return Drifted(
            entity,
            facet,
            tuple(drifted(key) for key in sorted(keys)),
            candidate.refused,
            None if seen is None else seen.sighting.at_ms,
        )
