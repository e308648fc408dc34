# ruff: noqa: ARG002 - the double answers before any deadline
"""A Kafka cluster without ZooKeeper in memory: what its brokers would show, and its metadata log.

It implements :class:`confplane.services.ports.kafka.KafkaCluster` and
:class:`confplane.services.ports.applying.WritableKafkaCluster`.
Writers call :meth:`KafkaDouble.alter` and the like; a broker can lag, be away, belong to another cluster, or
refuse an entity type.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import UnavailableError
from confplane.services.ports.applying import AlterApplied, AlterRefused, AlterRetriable, AlterUnknown
from confplane.services.ports.kafka import (
    ClusterIdentity,
    EntityTypePermission,
    GrantedPermission,
    KraftEntityType,
    LogChange,
    LogPage,
    NotPermittedError,
    ObservedEntity,
    Snapshot,
    Unmanaged,
    kraft_type_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence

    from confplane.services.ports.applying import Alteration, AlterOutcome


async def nothing() -> None:
    """Wait for nothing."""


CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"


@dataclass
class BrokerState:
    """The state of the metadata as one broker has it."""

    offset: int = 100
    configs: dict[Entity, dict[str, str]] = field(default_factory=dict)
    hidden: dict[Entity, set[str]] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    unmanaged: tuple[Unmanaged, ...] = ()

    def copied(self) -> BrokerState:
        return BrokerState(
            self.offset,
            {entity: dict(config) for entity, config in self.configs.items()},
            {entity: set(keys) for entity, keys in self.hidden.items()},
            dict(self.topics),
            self.unmanaged,
        )


class KafkaDouble:
    """One cluster. Attributes may be set at any time.

    Attributes:
        now: The metadata of the controller.
        behind: The metadata of the queried broker, while it lags.
        log: All records.
        page: Maximum number of records in a page of the log.
        log_begin: The first offset that the log still has.
        ids_of_configs: The log's records of topics' configs have the ids of the topics.
        down: The reason why no broker answers.
        away: Broker 1 does not answer for its own configs.
        denied: Entity types that the credentials may not describe.
        denied_entities: Topics and groups that the credentials may not describe.
        static: The values in the file of every broker.
        unanswered: Entity types whose describes are not answered.
        calls: Calls by name.
        cut: The next request of alters is not answered, and lost (``before``), applied (``after``), or applied when it
            arrives (``late``).
        requests: The alters that were sent.
        waiting: Requests that are late.
        refusals: Entities whose alters are refused, each with its result.
        refused_keys: Keys with the values that are refused, None for a removal. The whole entity is refused then.
        needed_keys: Keys with another key without which they are refused.
        opaque_keys: Keys whose values describes do not show.
        keeps_eligible_replicas: The cluster sets ``min.insync.replicas`` of brokers by itself.
        broker_answers: Cleared while broker 1 answers no alter of its own configs.
        after_request: Awaited between the work of a request of alters and its answer.
    """

    def __init__(self) -> None:
        self.cluster_id, self.release = CLUSTER_ID, "4.4"
        self.brokers: tuple[int, ...] = (1,)
        self.now = BrokerState()
        self.behind: BrokerState | None = None
        self.log: list[LogChange] = []
        self.page, self.log_begin = 1_000, 0
        self.ids_of_configs = False
        self.down: str | None = None
        self.away = False
        self.keeps_eligible_replicas = True
        self.denied: set[KraftEntityType] = set()
        self.denied_entities: set[Entity] = set()
        self.static: dict[str, str] = {}
        self.unanswered: set[KraftEntityType] = set()
        self.calls: Counter[str] = Counter()
        self.cut: str | None = None
        self.requests: list[dict[Entity, dict[str, str | None]]] = []
        self.waiting: list[dict[Entity, dict[str, str | None]]] = []
        self.refusals: dict[Entity, AlterRefused | AlterUnknown] = {}
        self.refused_keys: dict[str, set[str | None]] = {}
        self.needed_keys: dict[str, str] = {}
        self.opaque_keys: set[str] = set()
        self.after_request: Callable[[], Awaitable[None]] = nothing
        self.broker_answers = asyncio.Event()
        self.broker_answers.set()
        self._written, self._readable = asyncio.Event(), asyncio.Event()
        self._readable.set()
        self._ids = 0

    # -- writers

    def alter(self, entity: Entity, values: Mapping[str, str | None] | None = None, /, **more: str | None) -> int:
        """Set and remove keys, a record each; return the last offset."""
        config = self.now.configs.setdefault(entity, {})
        for key, value in {**(values or {}), **more}.items():
            if value is None:
                config.pop(key, None)
                self.now.hidden.get(entity, set()).discard(key)
            else:
                config[key] = value
            name = entity.get(EntityType.TOPIC)
            topic_id = self.now.topics.get(name) if name is not None and self.ids_of_configs else None
            self._append(entity, key, value, topic_id)
        if not config:
            del self.now.configs[entity]
        return self.now.offset

    def hide(self, entity: Entity, key: str, value: str = "hush") -> None:
        """Set a password."""
        self.now.hidden.setdefault(entity, set()).add(key)
        self._append(entity, key, value)

    def create_topic(self, name: str) -> str:
        """Make a topic; return its id."""
        self._ids += 1
        topic_id = self.now.topics[name] = f"id-{self._ids}"
        self._append(Entity.of(topic=name), None, "", topic_id)
        return topic_id

    def delete_topic(self, name: str) -> None:
        """Remove a topic with its configs."""
        topic_id = self.now.topics.pop(name)
        self.now.configs.pop(Entity.of(topic=name), None)
        self._append(Entity.of(topic=name), None, None, topic_id)

    def _append(self, entity: Entity, key: str | None, value: str | None, topic_id: str | None = None) -> None:
        self.now.offset += 1
        self.log.append(LogChange(self.now.offset, int(time.time() * 1000), entity, key, value, topic_id))
        self._written.set()

    @contextlib.contextmanager
    def lagging(self) -> Iterator[None]:
        """The queried broker does not advance during external writes."""
        self.behind = self.now.copied()
        try:
            yield
        finally:
            self.behind = None

    @contextlib.contextmanager
    def log_stopped(self) -> Iterator[None]:
        """The log returns nothing during external writes."""
        self._readable.clear()
        try:
            yield
        finally:
            self._readable.set()

    # -- alters of this service

    async def alter_quotas(
        self, alterations: Sequence[Alteration], deadline: float, *, validate_only: bool = False
    ) -> list[AlterOutcome]:
        self._asked("alter_quotas")
        return await self._alter(alterations, validate_only=validate_only)

    async def alter_configs(
        self, alterations: Sequence[Alteration], deadline: float, *, validate_only: bool = False
    ) -> list[AlterOutcome]:
        self._asked("alter_configs")
        [first, *others] = alterations
        if first.entity.types[0] is EntityType.BROKER and first.entity.components[0][1] is not None:
            assert not others
            if validate_only and not self.broker_answers.is_set():
                return [AlterUnknown("No answer came")]
            await self.broker_answers.wait()
            if int(first.entity.components[0][1]) not in self.brokers:
                return [AlterRetriable("The broker is not registered", unregistered=True)]
            if self.away:
                return [AlterRetriable("Broker 1 is not alive")]
        return await self._alter(alterations, validate_only=validate_only)

    async def static_values(
        self, keys: Collection[str], broker: int | None, deadline: float
    ) -> Mapping[int, Mapping[str, str] | None]:
        self._asked("static_values")
        static = {key: value for key, value in self.static.items() if key in keys}
        return dict.fromkeys(self.brokers if broker is None else (broker,), None if self.away else static)

    async def topic_ids(self, names: Collection[str], deadline: float) -> Mapping[str, str]:
        topics = self._asked("topic_ids", KraftEntityType.TOPICS).topics
        return {name: topics[name] for name in names if name in topics}

    async def _alter(self, alterations: Sequence[Alteration], *, validate_only: bool) -> list[AlterOutcome]:
        if validate_only:
            return [self._end(each) for each in alterations]
        self.requests.append({each.entity: dict(each.values) for each in alterations})
        cut, self.cut = self.cut, None
        if cut == "late":
            self.waiting.append(self.requests[-1])
        ends: list[AlterOutcome] = []
        for each in alterations:
            if cut is not None:
                ends.append(AlterUnknown("No answer came"))
            else:
                ends.append(self._end(each))
            if cut in {None, "after"} and isinstance(self._end(each), AlterApplied):
                self.alter(each.entity, each.values)
        await self.after_request()
        return ends

    def _end(self, alteration: Alteration) -> AlterOutcome:
        """The answer to a good request about an entity."""
        entity = alteration.entity
        name = entity.get(EntityType.TOPIC)
        if name is not None and name not in self.now.topics:
            return AlterRefused(3, f"The topic {name} does not exist")
        for key, value in alteration.values.items():
            if value in self.refused_keys.get(key, ()):
                return AlterRefused(40, f"Invalid value of {key}")
            needed = self.needed_keys.get(key)
            if needed is not None and needed not in {*alteration.values, *self.now.configs.get(entity, ())}:
                return AlterRefused(40, "Invalid combination")
        return self.refusals.get(entity, AlterApplied())

    def arrive(self) -> None:
        """Let the oldest late request arrive."""
        for entity, values in self.waiting.pop(0).items():
            self.alter(entity, values)

    # -- the port

    def _asked(self, name: str, *areas: KraftEntityType) -> BrokerState:
        self.calls[name] += 1
        if self.down is not None:
            raise UnavailableError(self.down)
        for area in areas:
            if area in self.denied:
                raise NotPermittedError(f"DESCRIBE_CONFIGS is missing for {area}")
            if area in self.unanswered:
                raise UnavailableError(f"No answer about {area}")
        return self.behind or self.now

    async def identity(self, deadline: float) -> ClusterIdentity:
        self._asked("identity")
        return ClusterIdentity(self.cluster_id, self.release, f"{self.release}-IV2", self.brokers)

    def _snapshot(self, shown: BrokerState, entities: Sequence[ObservedEntity], digest: bytes = b"") -> Snapshot:
        return Snapshot(tuple(entities), shown.unmanaged, shown.offset, shown.offset, int(time.time() * 1000), digest)

    def _observed(self, shown: BrokerState, entity: Entity) -> ObservedEntity:
        topic, config = entity.get(EntityType.TOPIC), shown.configs.get(entity, {})
        return ObservedEntity(
            entity,
            {key: value for key, value in config.items() if key not in self.opaque_keys},
            frozenset(shown.hidden.get(entity, ())) | self.opaque_keys & config.keys(),
            None if topic is None else shown.topics.get(topic),
        )

    async def quotas(self, digest: bytes, deadline: float) -> Snapshot:
        shown = self._asked("quotas", KraftEntityType.QUOTAS)
        found = [
            self._observed(shown, entity) for entity in shown.configs if kraft_type_of(entity) is KraftEntityType.QUOTAS
        ]
        # Like that of a broker, the digest is that of the content: a value that was put back gives the same digest.
        made = hashlib.sha256(repr(found).encode()).digest()
        if made == digest:
            return Snapshot((), (), shown.offset, shown.offset, int(time.time() * 1000), made, unchanged=True)
        return self._snapshot(shown, found, made)

    async def quotas_of(self, entities: Sequence[Entity], deadline: float) -> Snapshot:
        shown = self._asked("quotas_of", KraftEntityType.QUOTAS)
        return self._snapshot(shown, [self._observed(shown, entity) for entity in entities])

    async def topics(self, deadline: float) -> Mapping[str, str]:
        return dict(self._asked("topics", KraftEntityType.TOPICS).topics)

    async def names(self, area: KraftEntityType, deadline: float) -> tuple[list[Entity], list[Unmanaged]]:
        shown = self._asked("names", area)
        if area is KraftEntityType.BROKERS:
            alive = () if self.away else self.brokers
            return [Entity.of(broker=None), *(Entity.of(broker=str(each)) for each in alive)], []
        return [entity for entity in shown.configs if kraft_type_of(entity) is area], []

    async def configs(self, entities: Sequence[Entity], deadline: float) -> Snapshot:
        shown = self._asked("configs", *{kraft_type_of(entity) for entity in entities})
        found = [self._observed(shown, entity) for entity in entities if entity not in self.denied_entities]
        denied = {entity: "DESCRIBE_CONFIGS is missing" for entity in entities if entity in self.denied_entities}
        return replace(self._snapshot(shown, [each for each in found if self._is_there(each)]), denied=denied)

    def _is_there(self, observed: ObservedEntity) -> bool:
        kind, name = observed.entity.components[0]
        if kind is EntityType.BROKER and name is not None:
            return int(name) in self.brokers and not self.away
        return kind is not EntityType.TOPIC or observed.topic_id is not None

    async def barrier(self, deadline: float) -> int:
        self._asked("barrier")
        return self.now.offset

    async def unproven(self, deadline: float) -> str | None:
        self._asked("unproven")
        return None

    async def permissions(self, deadline: float) -> Mapping[KraftEntityType, GrantedPermission]:
        self._asked("permissions")
        granted = GrantedPermission(EntityTypePermission.READ_ONLY)
        denied = GrantedPermission(EntityTypePermission.NONE, "The right DESCRIBE_CONFIGS is missing")
        return {area: denied if area in self.denied else granted for area in KraftEntityType}

    async def follow(self, after: int | None) -> AsyncIterator[LogPage]:
        if after is None or after < self.log_begin:
            after = self.now.offset
            yield LogPage(after, reset=True)
        while True:
            self._asked("follow")
            await self._readable.wait()
            self._written.clear()
            found = [change for change in self.log if change.offset > after][: self.page]
            after = found[-1].offset if found else max(after, self.now.offset)
            yield LogPage(after, tuple(found))
            if not found:
                # wait_for() of Python 3.11 may lose a cancellation.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await self._written.wait()

    async def close(self) -> None:
        self.calls["close"] += 1
