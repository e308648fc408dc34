"""A Kafka cluster without ZooKeeper (KRaft), as it is observed. Implemented by ``confplane.kraft``.

Only describes are sent. Every call takes a deadline on ``time.monotonic()``'s clock, and raises
``UnavailableError`` while no broker answers, :class:`OtherClusterError` if a broker belongs to another cluster, and
:class:`NotPermittedError` if the cluster refuses the credentials or their rights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from confplane.domain.entities import EntityType
from confplane.domain.enums import StrEnum
from confplane.domain.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from confplane.domain.entities import Entity


class KraftEntityType(StrEnum):
    """The entity types of a KRaft cluster. The configs of one type are polled together."""

    QUOTAS = "client-quotas"
    TOPICS = "topics"
    BROKERS = "brokers"
    GROUPS = "groups"
    CLIENT_METRICS = "client-metrics"


ENTITY_TYPES: Final = {
    KraftEntityType.TOPICS: EntityType.TOPIC,
    KraftEntityType.BROKERS: EntityType.BROKER,
    KraftEntityType.GROUPS: EntityType.GROUP,
    KraftEntityType.CLIENT_METRICS: EntityType.CLIENT_METRICS,
}
"""The domain's entity type of each type except client quotas, which have several."""
_KRAFT_TYPES: Final = {kind: entity_type for entity_type, kind in ENTITY_TYPES.items()}


def kraft_type_of(entity: Entity) -> KraftEntityType:
    """Return the KRaft entity type of an entity."""
    return kraft_type_of_entity_type(entity.types[0])


def kraft_type_of_entity_type(kind: EntityType) -> KraftEntityType:
    """Return the KRaft entity type of entities whose first component has a type."""
    return _KRAFT_TYPES.get(kind, KraftEntityType.QUOTAS)


class EntityTypePermission(StrEnum):
    """The permission that the cluster grants this service for an entity type."""

    FULL = "full"
    """Described and altered. Only ``confplane target check`` tries this."""
    READ_ONLY = "read-only"
    NONE = "none"


class GrantedPermission(NamedTuple):
    """The permission for an entity type, by trying."""

    permission: EntityTypePermission
    reason: str = ""
    """The missing right, or what else is missing, in a sentence; empty if nothing is."""
    described: int = 0
    """The number of listed entities that may be described."""
    listed: int = 0
    """The number of entities that the cluster lists to this login; 0 for client quotas, which have no list."""


class OtherClusterError(UnavailableError):
    """A broker belongs to another cluster than the target; nothing was asked of it but its cluster's id."""


class NotPermittedError(UnavailableError):
    """The cluster refuses the login, or the right to describe; the text names the right that is missing."""


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """A cluster as its brokers name it."""

    cluster_id: str
    release: str
    """The oldest release among the brokers, such as ``4.4``, by the features that they support."""
    metadata_version: str
    """The finalized ``metadata.version``, such as ``4.4-IV2``."""
    brokers: tuple[int, ...]
    """The ids of the registered brokers that are alive."""


@dataclass(frozen=True, slots=True)
class ObservedEntity:
    """One entity's declared configs in the cluster."""

    entity: Entity
    config: Mapping[str, str]
    """The declared values as the cluster spells them. Quotas are spelled as this service stores them."""
    hidden: frozenset[str] = frozenset()
    """Declared keys whose values the cluster does not show: passwords."""
    topic_id: str | None = None
    """The id of a topic, in Kafka's base64 form. A topic that is made again has another id."""
    ineffective: Mapping[str, str] = field(default_factory=dict)
    """Keys that are set for a broker, or as the default of all brokers, and that the broker does not use, each with the
    reason. Brokers drop dynamic configs that do not fit to their files at a start."""


@dataclass(frozen=True, slots=True)
class Unmanaged:
    """A config of the cluster that has no place in ZooKeeper, and why."""

    entity_type: KraftEntityType
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The declared configs of an entity type, or of some of its entities, as one broker described them.

    The broker's metadata was at ``after`` or later when the poll began, and at ``until`` at most when it ended.
    """

    entities: tuple[ObservedEntity, ...]
    unmanaged: tuple[Unmanaged, ...]
    after: int
    """A metadata offset that the broker had reached before the poll."""
    until: int
    """The metadata offset that the broker had reached after the poll."""
    at_ms: int
    """The start of the poll by this process's clock, milliseconds since the epoch."""
    digest: bytes = b""
    """A digest of the answer, for quotas only."""
    unchanged: bool = False
    """True if the answer has the given digest: ``entities`` and ``unmanaged`` are then left out."""
    denied: Mapping[Entity, str] = field(default_factory=dict)
    """Topics and groups whose configs the login may not describe, each with the missing right."""


@dataclass(frozen=True, slots=True)
class LogChange:
    """One record of the cluster's metadata log: a key of an entity was set or removed, or a topic made or removed."""

    offset: int
    at_ms: int
    """The time of the record by the controller's clock, milliseconds since the epoch."""
    entity: Entity | None
    """The entity; None for one that has no place in ZooKeeper, which ``unmanaged`` names."""
    key: str | None = None
    """The key; None if the topic itself was created (``value`` is empty) or removed (``value`` is None)."""
    value: str | None = field(default=None, repr=False)
    """The value as stored; None: removed. It may be a password, which the log has in plain text."""
    topic_id: str | None = None
    unmanaged: Unmanaged | None = None


@dataclass(frozen=True, slots=True)
class LogPage:
    """A piece of the metadata log: the committed records after the previous piece, up to an offset."""

    until: int
    """The offset of the last record in the piece, whatever it was about."""
    changes: tuple[LogChange, ...] = ()
    """The records about configs and topics, in the order of the log; there may be none."""
    reset: bool = False
    """True if the records up to ``until`` are not available: everything must be polled again. ``changes`` is empty
    then."""
    incomplete: bool = False
    """True if the deletion of a topic is missing in ``changes``, because only its id is known: a poll must follow."""


class KafkaCluster(Protocol):
    """One cluster, by its brokers."""

    @property
    def keeps_eligible_replicas(self) -> bool:
        """True if the last poll found eligible leader replicas (KIP-966), and before the first poll."""

    async def identity(self, deadline: float) -> ClusterIdentity:
        """Return the cluster's id, release and brokers."""

    async def quotas(self, digest: bytes, deadline: float) -> Snapshot:
        """Describe all client quotas; ``unchanged`` if the answer has this digest.

        The digest of an unchanged answer is known only from the same broker; another broker's answer is decoded.
        """

    async def quotas_of(self, entities: Sequence[Entity], deadline: float) -> Snapshot:
        """Describe the quotas of some entities; an entity without quotas is in the result with an empty config."""

    async def topics(self, deadline: float) -> Mapping[str, str]:
        """Return the ids of all topics by name."""

    async def names(self, entity_type: KraftEntityType, deadline: float) -> tuple[list[Entity], list[Unmanaged]]:
        """Return the entities of brokers, groups or client metrics that may have declared configs.

        For brokers these are the default of all brokers and each broker that is alive.
        """

    async def configs(self, entities: Sequence[Entity], deadline: float) -> Snapshot:
        """Describe the declared configs of topics, brokers, groups and client metrics, in requests of moderate size.

        A topic that does not exist is left out. A topic or group that may not be described is ``denied``. Broker n is
        asked for its own configs; while it is away, it is left out too, and :meth:`identity` does not name it. The ids
        of topics are those of :meth:`topics`.
        """

    async def barrier(self, deadline: float) -> int:
        """Return a metadata offset that all of the cluster's changes acknowledged before the call are within.

        It returns once the broker asked next has reached that offset. Where the right to describe the quorum is
        missing there is no proof: the broker's own offset is returned once the broker has heard of changes twice, a
        second later at least. (The active controller moves the offset each half second, and a broker that is cut off
        stands still; so equal offsets would show the opposite.)
        """

    async def unproven(self, deadline: float) -> str | None:
        """Return a sentence on the missing right to describe the quorum; None if :meth:`barrier` has its proof."""

    async def permissions(self, deadline: float) -> Mapping[KraftEntityType, GrantedPermission]:
        """Try each describe once; return the permission for each entity type."""

    def follow(self, after: int | None) -> AsyncIterator[LogPage]:
        """Follow the metadata log after an offset, if the settings name controllers.

        It yields a page for each fetch, an empty one too, so that ``until`` shows how far the log was read. A page is
        ``reset`` if the log begins later (a snapshot), or if ``after`` was None. Lost connections and changes of
        the active controller are waited out; the first failure is raised.
        """

    async def close(self) -> None:
        """Close the connections."""
