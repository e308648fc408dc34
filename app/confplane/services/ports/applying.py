"""Alters of a Kafka cluster's client quotas and configs, and the durable states of the deliveries.

The cluster is implemented by ``confplane.kraft``, the states by ``confplane.audit``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID, uuid4

from confplane.domain.enums import StrEnum
from confplane.services.ports.kafka import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from confplane.domain.entities import Entity
    from confplane.services.ports.kafka import KraftEntityType
    from confplane.services.ports.trail import Intent

Values = dict[str, str | None]
"""Keys with their stored values; None is a removal."""
FINGERPRINT: Final = "fingerprint "
"""The start of what the states have in place of a secret."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """The keys of one entity to set and to remove."""

    entity: Entity
    values: Mapping[str, str | None] = field(repr=False)
    """The values, which may include passwords in clear."""


@dataclass(frozen=True, slots=True)
class AlterRefused:
    """The cluster definitely refused the entity's values, and would refuse them again."""

    code: int
    """Kafka's error code."""
    text: str


@dataclass(frozen=True, slots=True)
class AlterApplied:
    """The cluster has the values."""

    refused: Mapping[str, AlterRefused] = field(default_factory=dict, hash=False)
    """The keys that it refused; it has all others."""


@dataclass(frozen=True, slots=True)
class AlterUnknown:
    """The cluster may have the values, get them later, or never: there was no answer, or an inconclusive one."""

    reason: str
    code: int | None = None
    """Kafka's error code, if the error is not transient; None if there was no answer, or a transient error."""


@dataclass(frozen=True, slots=True)
class AlterRetriable:
    """The cluster definitely has not taken the values, but may later: a broker is away, or a right is missing."""

    reason: str
    unregistered: bool = False
    """True if the cluster shows that the broker is not registered, and not only away."""


AlterOutcome = AlterApplied | AlterRefused | AlterUnknown | AlterRetriable


class WritableKafkaCluster(KafkaCluster, Protocol):
    """A Kafka cluster that is observed, and whose client quotas and configs are altered.

    The alter methods send requests of a suitable size, one at a time, and return the outcomes in the given order. They
    accept alterations of different entities, and raise:

    - ``UnavailableError``: no broker answers, and nothing was sent.
    - ``NotPermittedError``: the cluster refuses the login; nothing was altered.
    - ``OtherClusterError``: a broker belongs to another cluster; nothing was sent to it.

    ``deadline`` is on ``time.monotonic()``'s clock. With ``validate_only`` the cluster checks everything and changes
    nothing.
    """

    async def alter_quotas(
        self, alterations: Sequence[Alteration], deadline: float, *, validate_only: bool = False
    ) -> list[AlterOutcome]:
        """Alter client quotas."""

    async def alter_configs(
        self, alterations: Sequence[Alteration], deadline: float, *, validate_only: bool = False
    ) -> list[AlterOutcome]:
        """Alter configs of topics, groups, client metrics and the default of all brokers, or of one broker.

        A broker's own configs are sent to that broker. While it is away, their outcome is retriable.
        """

    async def static_values(
        self, keys: Collection[str], broker: int | None, deadline: float
    ) -> Mapping[int, Mapping[str, str] | None]:
        """Return the values of keys below the dynamic levels: those of a broker's own file, or Kafka's defaults.

        Args:
            keys: The keys.
            broker: A broker, or None for all registered brokers.
            deadline: The deadline.

        Returns:
            The values by broker; None for a broker that does not answer.
        """

    async def topic_ids(self, names: Collection[str], deadline: float) -> Mapping[str, str]:
        """Return the ids of some topics by name, without topics that do not exist or are hidden."""


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """The result of a dry run: the Kafka cluster accepts the configs of an entity, or could not be asked."""

    warnings: tuple[str, ...] = ()
    """The reason why it could not be asked, and what it refused of the entity before."""
    topic_id: str | None = None
    """The id of the topic at the time of the dry run; None for other entities, or if it is hidden."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The values of one entity that are about to be sent."""

    entity_id: str
    mzxid: int
    """The revision of the znode that they were read from."""
    values: Values
    """The values, with keyed fingerprints instead of passwords, as in all classes below."""
    topic_id: str | None = None
    """The id of the topic; None of other entities."""
    id: UUID = field(default_factory=uuid4)
    """The delivery id."""


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """The known outcome of a delivery."""

    delivery: Delivery
    outcome: AlterApplied | AlterRefused | AlterRetriable
    """:class:`AlterRetriable` also of values that never went out."""
    offset: int | None = None
    """A metadata offset after the outcome; None for values that the cluster has not taken."""
    drift: Mapping[str, DriftRecord] = field(default_factory=dict)
    """The refused keys of an applied delivery."""


class DriftCause(StrEnum):
    """The reason why a key differs in the cluster permanently."""

    CONTESTED = "contested"
    """The key is set externally again and again, and is no longer put back."""
    EXTRA = "extra"
    """The key was set externally, and never here."""
    REFUSED = "refused"
    """The cluster refused the key while it accepted others of the entity."""


@dataclass(frozen=True, slots=True)
class RefusedValue:
    """A value that the cluster refused."""

    value: str | None
    """The value; of a secret, its fingerprint."""
    code: int
    text: str
    absent: bool = False
    """True if the cluster had no value of the key before, according to the trail."""


@dataclass(frozen=True, slots=True)
class DriftRecord:
    """One key that differs in the cluster and is left alone."""

    cause: DriftCause
    theirs: str | None
    """The cluster's value at the last poll that showed it; None is absent. Of a refused key, the value before the
    change, or None if it is unknown."""
    since_ms: int
    """The time since which the key is left alone, in milliseconds since the epoch."""
    refused: RefusedValue | None = None
    """The value that the cluster refused; None of an externally set key."""


@dataclass(frozen=True, slots=True)
class BaseValue:
    """The cluster's value of a queued key, which the trail accounts for."""

    value: str | None
    offset: int
    """A metadata offset that the poll which showed the value had reached at its end."""


@dataclass(frozen=True, slots=True)
class Correction:
    """The decision on an entity that was changed externally in the cluster."""

    entity_id: str
    mzxid: int
    """The revision of the znode that the cluster had taken."""
    offset: int
    """The metadata offset of the poll that showed the change."""
    put_back: Mapping[str, BaseValue]
    """The keys to put back, with the cluster's values."""
    drift: Mapping[str, DriftRecord]
    """The keys that are left alone."""
    put_back_at: Mapping[str, Sequence[float]]
    """Key -> the times, seconds since the epoch, at which it was put back of late."""
    intent: Intent | None
    """The row of the trail; None if nothing is put back."""
    topic_id: str | None = None
    """The id of the topic; None of other entities."""
    late: Values = field(default_factory=dict)
    """Keys to put back that are stale in-flight writes: values of deliveries without a known outcome. They have no row;
    each counts for one of these deliveries."""


@dataclass(frozen=True, slots=True)
class LostUpdate:
    """External values of one entity that queued client changes will replace."""

    entity_id: str
    offset: int
    """The metadata offset of the poll that showed the values."""
    was: Mapping[str, BaseValue]
    """:attr:`TargetState.base` as it was read."""
    base: Mapping[str, BaseValue]
    """The keys with the cluster's values."""
    intent: Intent | None
    """The row of the trail; None if the changes were based on these values."""
    topic_id: str | None = None
    """The id of the topic; None of other entities."""


@dataclass(frozen=True, slots=True)
class TargetState:
    """The state of one entity in a Kafka cluster, as far as this service changed it: by default, not at all."""

    sent_mzxid: int = 0
    """The revision of the znode whose values were sent last."""
    applied_mzxid: int = 0
    """The newest revision of the znode that the cluster has taken completely; 0 for none. A refusal keeps it."""
    applied_offset: int = -1
    """A metadata offset at which the cluster had it; -1: none yet."""
    applied: Values = field(default_factory=dict)
    """The keys and values that the cluster has taken from this service."""
    sent: frozenset[str] = frozenset()
    """The keys that were sent for ``sent_mzxid``, if the cluster has neither taken nor refused that revision."""
    uncertain: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    """Key -> the different values of the last day whose delivery has no known outcome, in order: they may still
    arrive."""
    refused: AlterRefused | None = None
    """The refusal of the values of ``sent_mzxid``; None if they were not refused."""

    reapply: frozenset[str] = frozenset()
    """Keys to send again, because they were changed externally."""
    drift: Mapping[str, DriftRecord] = field(default_factory=dict)
    """The keys that differ and are left alone."""
    put_back_at: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Key -> the times, seconds since the epoch, at which it was put back of late."""
    topic_id: str | None = None
    """The id of the topic that the values were sent to; None for other entities, or if it is unknown."""
    base: Mapping[str, BaseValue] = field(default_factory=dict)
    """Queued keys with the cluster's values that the trail accounts for, as far as a poll recorded them."""
    taken_at: Mapping[str, int] = field(default_factory=dict)
    """Keys in :attr:`applied` with a metadata offset after the outcome of their last delivery, as far as known.

    A key is left out once another value was sent that may have arrived since."""
    under_way: bool = False
    """True if the newest delivery has no known outcome."""
    refused_later: Mapping[str, frozenset[str | None]] = field(default_factory=dict)
    """Key -> those of its values in :attr:`uncertain` that the cluster refused after each of these deliveries."""
    absent: frozenset[str] = frozenset()
    """Keys that the cluster refused, of which it has taken no value, and that it never had according to the trail."""

    def is_of(self, topic_id: str | None) -> bool:
        """Return True if the state may belong to a topic, and not to an earlier one of the same name."""
        return None in {self.topic_id, topic_id} or self.topic_id == topic_id

    @property
    def took_last(self) -> bool:
        """True if the cluster has taken the last change from here."""
        return self.applied_mzxid == self.sent_mzxid and self.refused is None

    @property
    def is_applied(self) -> bool:
        """True if the cluster has the values of the last delivery: an earlier one can then only be a stale write."""
        return self.took_last and not self.reapply

    @property
    def is_open(self) -> bool:
        """True if the outcome of the last delivery is unknown."""
        return not self.is_applied and self.refused is None

    @property
    def refused_keys(self) -> dict[str, RefusedValue]:
        """The keys that the cluster refused while it accepted others."""
        return {key: each.refused for key, each in self.drift.items() if each.refused is not None}

    def is_settled(self, mzxid: int) -> bool:
        """Return True if a znode's revision needs no delivery: the cluster has it, or refuses it."""
        return self.applied_mzxid == mzxid or self.refusal_of(mzxid) is not None

    def refusal_of(self, mzxid: int) -> AlterRefused | None:
        """Return the refusal of a znode's revision as a whole."""
        return self.refused if self.sent_mzxid == mzxid else None


NO_STATE: Final = TargetState()
"""The state of an entity that this service never changed."""


@dataclass(frozen=True, slots=True)
class Author:
    """The author of an entity's newest change of a key, according to the trail."""

    principal: str
    time_ms: int
    """The time of the change, milliseconds since the epoch."""


class TargetStates(Protocol):
    """The states in Postgres. Every call raises ``UnavailableError`` while it is unavailable."""

    async def load(self, cluster: str, entity_ids: Sequence[str]) -> dict[str, TargetState]:
        """Return the states of some entities by id."""

    async def begin(self, cluster: str, deliveries: Sequence[Delivery]) -> set[str]:
        """Make deliveries durable before they are sent; return the ids of the entities that may be sent.

        These entities are left out:

        - an entity with a newer delivered revision, because another leader is ahead;
        - an entity that needs no further delivery;
        - a topic whose state belongs to another topic of the same name.
        """

    async def end(self, cluster: str, outcomes: Sequence[DeliveryOutcome]) -> None:
        """Record the known outcomes of deliveries, except for entities with a newer delivery.

        A delivery without a recorded outcome may arrive at any time within a day.
        """

    async def correct(self, cluster: str, corrections: Sequence[Correction]) -> set[str]:
        """Record the decisions on external changes: write the rows of the trail, and mark the keys to send again.

        This is one statement. An entity is left out if another process decided first, or sent in the meantime.

        Returns:
            The ids of the entities whose corrections were recorded.
        """

    async def record_lost_updates(self, cluster: str, changes: Sequence[LostUpdate]) -> set[str]:
        """Write the rows of the trail for lost external updates, and record their values.

        This is one statement. An entity is left out if another process was first, or its change was applied.

        Returns:
            The ids of the entities whose values were recorded.
        """

    async def values_before(
        self, cluster: str, keys: Mapping[str, Collection[str]]
    ) -> dict[tuple[str, str], str | None]:
        """Return the values of keys before the client changes that the cluster has not taken yet.

        Args:
            cluster: The cluster.
            keys: Entity id -> keys.

        Returns:
            Entity id and key -> the value, None for absent; without keys that are unknown from the trail.
        """

    async def keys_in_open_changes(self, cluster: str, keys: Mapping[str, Collection[str]]) -> set[tuple[str, str]]:
        """Return the keys in client changes that the cluster has not taken yet.

        Args:
            cluster: The cluster.
            keys: Entity id -> keys.

        Returns:
            Entity id and key, including changes whose outcome is unknown.
        """

    async def clear_drift(self, cluster: str, revisions: Mapping[str, int | None], offset: int) -> None:
        """Drop the drift and the refusals of some entities that no longer differ, except for those of secrets.

        Args:
            cluster: The cluster.
            revisions: Entity id -> the revision of its znode that was compared; None if the znode is gone. The refusal
                of another revision stays.
            offset: The metadata offset of the poll that showed this. Entities with a later outcome are left out.
        """

    async def drop(self, cluster: str, topic_ids: Mapping[str, str]) -> None:
        """Drop the states of topics that are gone.

        Args:
            cluster: The cluster.
            topic_ids: Entity id -> the id of the topic; the state of a later topic of the same name stays.
        """

    async def reapply(self, cluster: str, keys: Mapping[str, Collection[str]]) -> None:
        """Mark keys to send again, including refused ones. They are no longer contested.

        Args:
            cluster: The cluster.
            keys: Entity id -> keys; entities without a state are left out.
        """

    async def undelivered(self, cluster: str) -> list[str]:
        """Return the ids of the entities with a delivery that is due or has no outcome yet, in any order."""

    async def drifting_entities(self, cluster: str) -> list[str]:
        """Return the ids of the entities that are open, refused, or left alone, in any order."""

    async def authors(self, cluster: str, keys: Mapping[str, Collection[str]]) -> dict[tuple[str, str], Author]:
        """Return the authors of the newest committed changes of keys.

        Args:
            cluster: The cluster.
            keys: Entity id -> keys.

        Returns:
            Entity id and key -> the author; without keys that are not in the newest hundred changes of the entity.
        """

    async def forget(
        self, cluster: str, entity_types: Collection[KraftEntityType], revisions: Mapping[str, int]
    ) -> None:
        """Drop the states of some of a cluster's entity types.

        Values that may still arrive are kept. So are the keys that the cluster has taken of an entity whose present
        revision it has taken completely: these are not sent again.

        Args:
            cluster: The cluster.
            entity_types: The entity types.
            revisions: Entity id -> the revision of its znode, of the entities with pending keys.
        """

    async def expire(self, cluster: str) -> None:
        """Remove the deliveries of more than 30 days ago."""

    async def move_earlier(self, cluster: str) -> int:
        """Move the states that an earlier release wrote into the present tables; return the number of entities.

        Call this only after no process of such a release can lead.
        """
