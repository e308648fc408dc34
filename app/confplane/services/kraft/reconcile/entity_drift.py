"""The drift of one entity: its keys that differ in a Kafka cluster, each with both values and the reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from confplane.domain.changes import stored
from confplane.services.ports.trail import EXTERNAL_PRINCIPAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.entities import Entity
    from confplane.domain.facets import Facet
    from confplane.domain.observed import ObservedRules
    from confplane.services.kraft.decisions import EntityObservation
    from confplane.services.kraft.pending_entity import PendingEntity
    from confplane.services.ports.applying import AlterRefused, Author, RefusedValue


class KeyDriftState(StrEnum):
    """The reason why a key differs."""

    PENDING = "pending"
    """The change is not applied yet, in one of the two directions."""
    REFUSED = "refused"
    """The cluster refused the value of the key, or all values of the entity."""
    CONTESTED = "contested"
    """The key is set externally again and again, and is no longer put back."""
    EXTRA = "extra"
    """The key was set externally, and never here."""


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


def waiting_keys(pending: PendingEntity) -> set[str]:
    """Return the keys that differ, as far as known without a poll."""
    return pending.unsettled_keys | pending.state.drift.keys()


def differing_keys(
    rules: ObservedRules, entity: Entity, pending: PendingEntity, observed: EntityObservation | None
) -> set[str]:
    """Return the keys that differ according to a poll; for an entity that no poll showed, its queued secrets.

    The cluster never shows the values of passwords, so these differ as long as they are queued.
    """
    facet = rules.facet_of(entity)
    secrets = {key for key in waiting_keys(pending) if facet.is_secret(entity, key)}
    if observed is None or observed.observation is None:
        return secrets
    ours = stored(pending.node)
    followed = rules.reconcile(entity, ours, observed.observation)
    return secrets | {key for key in ours.keys() | followed.keys() if ours.get(key) != followed.get(key)}


def build_entity_drift(
    rules: ObservedRules,
    entity: Entity,
    pending: PendingEntity,
    keys: set[str],
    authors: Mapping[tuple[str, str], Author],
    observed: EntityObservation | None,
    *,
    enforced: bool,
) -> EntityDrift:
    """Return an entity with the keys that differ.

    Args:
        rules: The rules of the cluster's configs.
        entity: The entity.
        pending: Its znode and its state.
        keys: Its keys that differ.
        authors: Entity id and key -> the author of the newest change here.
        observed: The entity in the cluster; None if no poll showed it.
        enforced: External changes are put back, and not followed.
    """
    ours = stored(pending.node)
    theirs = {} if observed is None or observed.observation is None else observed.observation.config
    facet = rules.facet_of(entity)
    refused = pending.all_refused_keys

    def of_key(key: str) -> KeyDrift:
        state, value = KeyDriftState.EXTRA, theirs.get(key)
        principal: str | None = EXTERNAL_PRINCIPAL
        since: int | None = None
        refusal = refused.get(key)
        alone = None if refusal is not None else pending.state.drift.get(key)
        if alone is not None:
            state, since = KeyDriftState(alone.cause.value), alone.since_ms
            value = alone.theirs if observed is None else value
        elif key in pending.pending_keys:
            state = KeyDriftState.PENDING if refusal is None else KeyDriftState.REFUSED
            author = authors.get((entity.id, key))
            principal = None if author is None else author.principal
            since = None if author is None else author.time_ms
        elif key in ours or not enforced:
            state = KeyDriftState.PENDING
        secret = facet.is_secret(entity, key)
        return KeyDrift(
            key, state, None if secret else ours.get(key), None if secret else value, secret, since, principal, refusal
        )

    return EntityDrift(
        entity,
        facet,
        tuple(of_key(key) for key in sorted(keys)),
        pending.refusal,
        None if observed is None else observed.observed_range.at_ms,
    )
