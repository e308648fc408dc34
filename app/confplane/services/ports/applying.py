"""Alters of a Kafka cluster's client quotas and configs, and the durable states of what was sent.

The cluster is implemented by ``confplane.kraft``, the states by ``confplane.audit``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from uuid import UUID, uuid4

from confplane.domain.enums import StrEnum

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.services.ports.kafka import KraftEntityType
    from confplane.services.ports.trail import Intent

Values = dict[str, str | None]
"""Keys with their values as stored; None is a removal."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """The keys to set and to remove of one entity."""

    entity: Entity
    values: Mapping[str, str | None] = field(repr=False)
    """The values, which may be passwords in clear."""


@dataclass(frozen=True, slots=True)
class AlterApplied:
    """The cluster has the values."""


@dataclass(frozen=True, slots=True)
class AlterRefused:
    """The cluster refused the entity's values, for certain, and would do so again."""

    code: int
    """Kafka's number of the error."""
    text: str


@dataclass(frozen=True, slots=True)
class AlterUnknown:
    """The cluster may have the values, may get them later, or never: no answer came, or one that leaves it open."""

    reason: str
    code: int | None = None
    """Kafka's number of the answer, an error that does not pass by itself; None: no answer came, or one that passes."""


@dataclass(frozen=True, slots=True)
class AlterRetriable:
    """The cluster has not taken the values, for certain, and may later: a broker is away, or a right is missing."""

    reason: str


AlterOutcome = AlterApplied | AlterRefused | AlterUnknown | AlterRetriable


class WritableKafkaCluster(Protocol):
    """A Kafka cluster whose client quotas and configs are altered.

    The calls that alter send requests of a good size, one at a time, and return the ends in the order given. They take
    alterations of different entities, and raise:

    - ``UnavailableError``: no broker answers, and nothing was sent.
    - ``NotPermittedError``: the cluster refuses the login; nothing was altered.
    - ``OtherClusterError``: a broker belongs to another cluster; nothing was sent to it.

    ``deadline`` is on ``time.monotonic()``'s clock. ``validate_only`` has the cluster check everything, and change
    nothing.
    """

    async def alter_quotas(
        self, alterations: Sequence[Alteration], deadline: float, *, validate_only: bool = False
    ) -> list[AlterOutcome]:
        """Alter client quotas."""

    async def alter_configs(
        self, alterations: Sequence[Alteration], deadline: float, *, validate_only: bool = False
    ) -> list[AlterOutcome]:
        """Alter configs: of topics, groups, client metrics and the default of all brokers; or one broker's own.

        A broker's own configs are sent to that broker, and held while it is away.
        """

    async def topic_ids(self, names: Collection[str], deadline: float) -> Mapping[str, str]:
        """Return the ids of some topics by name; topics that do not exist, or are not shown, are left out."""

    async def barrier(self, deadline: float) -> int:
        """Return a metadata offset after all acknowledged changes: see ``services.ports.kafka.KafkaCluster``."""


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """The word of a Kafka cluster that would take the configs of an entity, or that could not be asked."""

    warning: str | None = None
    """The reason why it could not be asked; None where it would take them."""
    topic_id: str | None = None
    """The id of the topic at the time of the question; None of other entities, and where it is not shown."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The values of an entity that are about to be sent."""

    entity_id: str
    mzxid: int
    """The revision of the znode that they were read from."""
    values: Values
    """Keyed fingerprints in the place of passwords; the same below."""
    topic_id: str | None = None
    """The id of the topic; None of other entities."""
    id: UUID = field(default_factory=uuid4)
    """The identity of the sending."""


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """The certain end of a sending."""

    delivery: Delivery
    outcome: AlterApplied | AlterRefused | AlterRetriable
    """:class:`AlterRetriable` also of values that never went out."""
    offset: int | None = None
    """A metadata offset behind the end; None of values that the cluster has not taken."""


class DriftCause(StrEnum):
    """The reason for which a key differs in the cluster for longer."""

    CONTESTED = "contested"
    """Other writers set the key again and again, and it is put back no more."""
    EXTRA = "extra"
    """Another writer set the key, which was never set here."""


@dataclass(frozen=True, slots=True)
class DriftRecord:
    """One key that others set, and that is left alone."""

    cause: DriftCause
    theirs: str | None
    """The cluster's value when it was last seen; None is absent."""
    since_ms: int
    """The time from which on the key is left alone, milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class BaseValue:
    """A value of the cluster that the trail accounts for, of a key that waits to be sent."""

    value: str | None
    offset: int
    """A metadata offset that the look which showed the value had reached at its end."""


@dataclass(frozen=True, slots=True)
class Correction:
    """The decision on an entity that others changed in the cluster."""

    entity_id: str
    mzxid: int
    """The revision of the znode that the cluster had taken."""
    offset: int
    """The metadata offset of the look that showed the change."""
    reapply: tuple[str, ...]
    """The keys to be put back."""
    drift: Mapping[str, DriftRecord]
    """The keys that are left alone."""
    put_back_at: Mapping[str, Sequence[float]]
    """Key -> the times, seconds since the epoch, at which it was put back of late."""
    intent: Intent | None
    """The row of the trail; None where nothing is put back."""
    topic_id: str | None = None
    """The id of the topic; None of other entities."""
    late: Values = field(default_factory=dict)
    """Keys that have the values of sendings without a certain end, with these values. They are put back without a row;
    each counts for one of these sendings."""
    base: Mapping[str, BaseValue] = field(default_factory=dict)
    """The keys to be put back with the cluster's values."""


@dataclass(frozen=True, slots=True)
class LostUpdate:
    """Values that others set while changes of callers wait, which will replace them."""

    entity_id: str
    offset: int
    """The metadata offset of the look that showed the values."""
    was: Mapping[str, BaseValue]
    """:attr:`TargetState.base` as it was read; empty where there is no state."""
    base: Mapping[str, BaseValue]
    """The keys with the cluster's values."""
    intent: Intent | None
    """The row of the trail; None where the values are those that the changes were made on."""
    topic_id: str | None = None
    """The id of the topic; None of other entities."""


@dataclass(frozen=True, slots=True)
class TargetState:
    """The state of one entity in a Kafka cluster, as far as this service changed it."""

    entity_id: str
    sent_mzxid: int
    """The revision of the znode whose values were sent last."""
    applied_mzxid: int | None
    """The newest revision of the znode that the cluster has taken in whole; None: none yet. A refusal keeps it."""
    applied_offset: int
    """A metadata offset at which the cluster had it; -1: none yet."""
    applied: Values
    """The keys and values that the cluster has taken from this service."""
    sent: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    """Of each key the different values that were sent within a day, in order."""
    uncertain: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    """Of each key those among them of which some sending has no certain end: they may arrive yet."""
    refused: AlterRefused | None = None
    """The refusal of the values of ``sent_mzxid``; None where they were not refused."""

    reapply: frozenset[str] = frozenset()
    """Keys to be sent again, because others changed them."""
    drift: Mapping[str, DriftRecord] = field(default_factory=dict)
    """The keys that others set and that are left alone."""
    put_back_at: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Key -> the times, seconds since the epoch, at which it was put back of late."""
    topic_id: str | None = None
    """The id of the topic that the values were sent to; None of other entities, and where it is not known."""
    base: Mapping[str, BaseValue] = field(default_factory=dict)
    """Of keys that wait to be sent the cluster's values that the trail accounts for, as far as any look noted them."""
    taken_at: Mapping[str, int] = field(default_factory=dict)
    """Of keys in :attr:`applied` a metadata offset behind the end of their last sending, as far as it is known.

    A key is left out once another value was sent that may have arrived since."""
    under_way: bool = False
    """True where the newest sending has no certain end."""

    def is_of(self, topic_id: str | None) -> bool:
        """Say whether the state may be of a topic: not of an earlier one of the same name."""
        return None in {self.topic_id, topic_id} or self.topic_id == topic_id

    @property
    def took_last(self) -> bool:
        """True where the cluster has taken the last change from here."""
        return self.applied_mzxid == self.sent_mzxid and self.refused is None

    @property
    def is_applied(self) -> bool:
        """True where the cluster has the values of the last sending: an earlier one can only be late then."""
        return self.took_last and not self.reapply

    @property
    def is_open(self) -> bool:
        """True where the end of the last sending is not known."""
        return not self.is_applied and self.refused is None

    def is_settled(self, mzxid: int) -> bool:
        """Say whether nothing is to be sent of a znode's revision: the cluster has it, or refuses it."""
        return self.applied_mzxid == mzxid or (self.refused is not None and self.sent_mzxid == mzxid)


def mzxid_of(node: Node | None, state: TargetState | None) -> int:
    """Return the revision of a znode for its state; of an absent one that of the last sending, or 0."""
    if node is not None:
        return node.mzxid
    return 0 if state is None else state.sent_mzxid


@dataclass(frozen=True, slots=True)
class Author:
    """The author of an entity's newest change of a key, by the trail."""

    principal: str
    time_ms: int
    """The time of the change, milliseconds since the epoch."""


class TargetStates(Protocol):
    """The states in Postgres. Every call raises ``UnavailableError`` while it is away."""

    async def load(self, cluster: str, entity_ids: Sequence[str]) -> dict[str, TargetState]:
        """Return the states of some entities, by id; entities without a state are left out."""

    async def begin(self, cluster: str, deliveries: Sequence[Delivery]) -> set[str]:
        """Make durable what is about to be sent; return the ids of the entities that may be sent.

        An entity of which a newer revision was sent is left out: another leader knows more. So is an entity of which
        nothing is to be sent any more, and a topic whose state is of another topic of the same name.
        """

    async def end(self, cluster: str, outcomes: Sequence[DeliveryOutcome]) -> None:
        """Write the certain ends of sendings, except those of entities of which another sending began meanwhile.

        A sending whose end is not written may arrive at any time, for a day.
        """

    async def correct(self, cluster: str, corrections: Sequence[Correction]) -> set[str]:
        """Decide what others changed: write the rows of the trail, and make durable what will be sent again.

        All of it is one statement. An entity is left out where another process decided first, or sent meanwhile.

        Returns:
            The ids of the entities whose corrections count.
        """

    async def record_lost_updates(self, cluster: str, changes: Sequence[LostUpdate]) -> set[str]:
        """Write the rows of the trail for values of others that will be replaced, and note these values.

        All of it is one statement. An entity is left out where another process was first, or its change was applied.

        Returns:
            The ids of the entities whose values are noted.
        """

    async def values_before(
        self, cluster: str, keys: Mapping[str, Collection[str]]
    ) -> dict[tuple[str, str], str | None]:
        """Return the values of keys before the changes of callers that the cluster has not taken yet.

        Args:
            cluster: The cluster.
            keys: Entity id -> keys.

        Returns:
            Entity id and key -> the value, None for absent; left out where the trail does not say.
        """

    async def keys_in_open_changes(self, cluster: str, keys: Mapping[str, Collection[str]]) -> set[tuple[str, str]]:
        """Return the keys that callers' changes name which the cluster has not taken yet.

        Args:
            cluster: The cluster.
            keys: Entity id -> keys; each entity has a state.

        Returns:
            Entity id and key, of changes whose outcome is not known too.
        """

    async def clear_drift(self, cluster: str, entity_ids: Collection[str]) -> None:
        """Drop the drift of some entities: they differ no more."""

    async def drop(self, cluster: str, topic_ids: Mapping[str, str]) -> None:
        """Drop the states of topics that are gone.

        Args:
            cluster: The cluster.
            topic_ids: Entity id -> the id of the topic; the state of a later topic of the same name stays.
        """

    async def reapply(self, cluster: str, keys: Mapping[str, Collection[str]]) -> None:
        """Have keys sent again: what was refused, too. Nothing of them is contested any more.

        Args:
            cluster: The cluster.
            keys: Entity id -> keys; entities without a state are left out.
        """

    async def undelivered(self, cluster: str) -> list[str]:
        """Return the ids of the entities of which something was or is to be sent without an end yet, in any order."""

    async def drifting_entities(self, cluster: str) -> list[str]:
        """Return the ids of the entities that are open, refused, or left alone, in any order."""

    async def authors(self, cluster: str, keys: Mapping[str, Collection[str]]) -> dict[tuple[str, str], Author]:
        """Return the authors of the newest committed changes of keys.

        Args:
            cluster: The cluster.
            keys: Entity id -> keys.

        Returns:
            Entity id and key -> the author; left out where the newest hundred changes of an entity do not name the key.
        """

    async def forget(self, cluster: str, entity_types: Collection[KraftEntityType]) -> None:
        """Drop the states of some of a cluster's entity types, but for the values that may arrive yet."""
