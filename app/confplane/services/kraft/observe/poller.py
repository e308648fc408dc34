"""Polls a cluster and compares it with the mirror: each entity that differs is an observation to follow."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import FacetName, Tree
from confplane.domain.observed import Observation
from confplane.services.cooperative_yielding import TimeSlice, free_in_slices
from confplane.services.kraft.decisions import EntityObservation
from confplane.services.ports.kafka import ENTITY_TYPES, KraftEntityType, kraft_type_of
from confplane.services.ports.observation_report import ListedNames
from confplane.services.ports.trail import ObservedRange
from confplane.services.znode_metadata import read_metadata

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from confplane.domain.changes import Node
    from confplane.services.kraft.decisions import ClusterDecisions
    from confplane.services.ports.kafka import KafkaCluster, Snapshot
    from confplane.services.ports.observation_report import EntityTypeReport
    from confplane.services.ports.store import ClusterStore

PIECE: Final = 100
"""Topics in one poll."""
_PAGE: Final = 1_000
_ONE_BY_ONE: Final = 50
"""Client entities that are described one by one. For more of them, a describe of all entities is cheaper."""
_AGAIN_S: Final = 0.02
_NO_BROKERS: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True)
class TopicList:
    """The topics of the cluster as of a metadata offset."""

    ids: Mapping[str, str]
    """Name -> id."""
    names: list[str]
    """In order: the names of these, and those that the mirror has configs of."""
    offset: int
    """A round over the names does not include topics that were created after this metadata offset."""
    at_ms: int


@dataclass(slots=True)
class PollResult:
    """The result of a poll."""

    after: int
    until: int
    at_ms: int
    differing: list[EntityObservation] = field(default_factory=list)
    """The entities that differ from the mirror."""
    entities: int = 0
    """The number of entities with declared configs."""
    unmanaged: dict[str, str] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)
    digest: bytes = b""
    unchanged: bool = False
    """True if the cluster's answer equals that of the previous poll. Only the times count then."""
    ineffective: dict[str, str] = field(default_factory=dict)
    """Keys that are set for a broker and that it does not use, by entity id and key, each with the reason."""
    denied: dict[str, str] = field(default_factory=dict)
    """Entities that the login may not describe, by entity id, each with the missing right. Nothing follows of them."""
    brokers: dict[str, int] = field(default_factory=dict)
    """The brokers that answered for their own configs, by entity id, each with ``after``."""

    def add_totals(self, piece: PollResult) -> None:
        """Add a poll of further entities, except for its differing entities. The offsets and the time stay."""
        self.entities += piece.entities
        self.unmanaged |= piece.unmanaged
        self.hidden |= piece.hidden
        self.ineffective |= piece.ineffective
        self.denied |= piece.denied
        self.brokers |= piece.brokers

    def report(self, report: EntityTypeReport, offset: int | None) -> EntityTypeReport:
        """Return the report on the entity type, brought up to date with this poll of all its entities."""
        return replace(
            report,
            observed_at=self.at_ms,
            offset=offset,
            entities=self.entities,
            unmanaged=ListedNames.of(self.unmanaged),
            hidden=ListedNames.of(self.hidden),
            denied=ListedNames.of(self.denied),
            ineffective=ListedNames.of(self.ineffective),
            problem="",
        )


class Poller:
    """Polls one cluster."""

    def __init__(self, cluster: KafkaCluster, store: ClusterStore, decisions: ClusterDecisions) -> None:
        self._cluster = cluster
        self._store = store
        self._decisions = decisions
        self._rules = decisions.rules

    async def poll_quotas(self, digest: bytes, since: int | None, deadline: float) -> PollResult:
        """Poll all client quotas.

        Args:
            digest: The digest of the previous poll; empty if there is none.
            since: A metadata offset at which the mirror equaled the cluster, for the trail.
            deadline: On ``time.monotonic()``'s clock.
        """
        snapshot = await self._cluster.quotas(digest, deadline)
        result, found = await self._compare(snapshot, since)
        result.digest, result.unchanged = snapshot.digest, snapshot.unchanged
        if not snapshot.unchanged:
            await self._add_gone(result, found, since)
        entities = list(snapshot.entities)
        del snapshot
        await free_in_slices(entities)
        return result

    async def poll_type(
        self,
        entity_type: KraftEntityType,
        since: int | None,
        deadline: float,
        *,
        brokers: Mapping[str, int] = _NO_BROKERS,
    ) -> PollResult:
        """Poll all brokers that are alive, all groups, or all client metrics; ``since`` as in :meth:`poll_quotas`.

        The mirror keeps the last configs of a broker that is unavailable. So ``since`` does not apply to a broker's own
        configs; ``brokers`` has an offset for each known broker, by entity id.
        """
        named_at = await self._offset(deadline)
        named, unmanaged = await self._cluster.names(entity_type, deadline)
        entities = {entity.id: entity for entity in named}
        if entity_type is not KraftEntityType.BROKERS and entity_type in ENTITY_TYPES:
            async for node in self._nodes(ENTITY_TYPES[entity_type]):
                entities.setdefault(node.id, Entity.from_id(node.id))
        snapshot = await self._cluster.configs(list(entities.values()), deadline)
        result, _ = await self._compare(snapshot, since, brokers)
        # An entity that got its first config after the names were listed was not polled.
        result.after = min(named_at, snapshot.after)
        result.unmanaged |= {each.name: each.reason for each in unmanaged}
        return result

    async def poll_topics(self, names: Sequence[str], since: int | None, deadline: float) -> PollResult:
        """Poll some topics. A topic that the cluster lacks is observed as gone. ``since`` as in :meth:`poll_quotas`.

        The ids of topics that differ are read again, because a topic may be recreated between the reads of its id and
        its configs. A topic with client changes counts as gone or recreated only if the brokers asked are current: a
        topic that was just created is not known to every broker.
        """
        entities = [Entity.of(topic=name) for name in names]
        behind: int | None = None
        while True:
            snapshot = await self._cluster.configs(entities, deadline)
            result, found = await self._compare(snapshot, since)
            seen = ObservedRange(since, snapshot.until, snapshot.at_ms)
            gone = [EntityObservation(each, seen, snapshot.after) for each in entities if each.id not in found]
            result.differing += [each for each in gone if self._decisions.differs(each)]
            if not result.differing:
                return result
            if any(self._waits_for_topic(each) for each in result.differing):
                if behind is None:
                    behind = await self._cluster.barrier(deadline)
                if result.after < behind:
                    await self.wait_for_broker(behind, deadline)
                    continue
            ids = await self._cluster.topics(deadline)
            if all(each.topic_id == ids.get(each.entity.get(EntityType.TOPIC) or "") for each in result.differing):
                return result

    def _waits_for_topic(self, observed: EntityObservation) -> bool:
        """Return whether a topic has client changes, but the poll shows it as gone or recreated."""
        node = self._store.get(Tree.CONFIG, observed.entity.id)
        if node is None or not (metadata := read_metadata(node.extra)).pending_keys:
            return False
        return observed.observation is None or observed.topic_id != metadata.topic_id

    async def poll_all(
        self, entity_type: KraftEntityType, since: int | None, until: Callable[[], float]
    ) -> AsyncIterator[tuple[PollResult, tuple[int, int]]]:
        """Poll all entities of a type, topics in pieces; each with the number of topics so far and in total."""
        if entity_type is KraftEntityType.QUOTAS:
            yield await self.poll_quotas(b"", since, until()), (1, 1)
        elif entity_type is not KraftEntityType.TOPICS:
            yield await self.poll_type(entity_type, since, until()), (1, 1)
        else:
            listed = await self.list_topics(until())
            for start in range(0, len(listed.names), PIECE):
                piece = listed.names[start : start + PIECE]
                result = await self.poll_topics(piece, since, until())
                done = start + len(piece)
                yield replace(result, after=min(listed.offset, result.after)), (done, len(listed.names))

    async def poll_entities(self, entities: Iterable[Entity], since: int | None, deadline: float) -> list[PollResult]:
        """Poll some entities of any types; ``since`` as in :meth:`poll_quotas`. For many quotas, all are polled.

        Entities that no cluster can have are left out: a request that names one may be refused as a whole.
        """
        by_type: dict[KraftEntityType, list[Entity]] = {}
        for entity in filter(self._rules.may_exist, entities):
            by_type.setdefault(kraft_type_of(entity), []).append(entity)
        found = []
        for entity_type, some in by_type.items():
            if entity_type is KraftEntityType.TOPICS:
                await self._cluster.topics(deadline)
                names = [each.get(EntityType.TOPIC) or "" for each in some]
                found.append(await self.poll_topics(names, since, deadline))
                continue
            if entity_type is KraftEntityType.QUOTAS and len(some) > _ONE_BY_ONE:
                found.append(await self.poll_quotas(b"", since, deadline))
                continue
            ask = self._cluster.quotas_of if entity_type is KraftEntityType.QUOTAS else self._cluster.configs
            result, _ = await self._compare(await ask(some, deadline), since)
            found.append(result)
        return found

    async def poll_current(self, entities: Sequence[Entity], deadline: float) -> list[PollResult]:
        """Poll some entities, after all changes that the cluster acknowledged before the call.

        Raises:
            UnavailableError: The broker asked does not catch up, or the cluster is unavailable.
        """
        offset = await self._cluster.barrier(deadline)
        while True:
            found = await self.poll_entities(entities, None, deadline)
            if all(each.after >= offset for each in found):
                return found
            await self.wait_for_broker(offset, deadline)

    async def wait_for_broker(self, offset: int, deadline: float) -> None:
        """Wait briefly for a broker that has not reached an offset.

        Raises:
            UnavailableError: The deadline has passed.
        """
        if time.monotonic() >= deadline:
            raise UnavailableError(
                f"Cluster {self._store.name}: the Kafka brokers asked are behind the metadata offset {offset}",
                retry_after_s=1,
            )
        await asyncio.sleep(_AGAIN_S)

    async def list_topics(self, deadline: float) -> TopicList:
        """List all topics that the cluster has."""
        offset, at_ms = await self._offset(deadline), int(time.time() * 1000)
        ids = await self._cluster.topics(deadline)
        names = set(ids)
        async for node in self._nodes(EntityType.TOPIC):
            names.add(Entity.from_id(node.id).get(EntityType.TOPIC) or "")
        return TopicList(ids, sorted(names), offset, at_ms)

    async def _offset(self, deadline: float) -> int:
        """Return a metadata offset that a broker has reached, by polling no entities."""
        return (await self._cluster.configs([], deadline)).after

    async def _compare(
        self, snapshot: Snapshot, since: int | None, brokers: Mapping[str, int] = _NO_BROKERS
    ) -> tuple[PollResult, set[str]]:
        """Return the result of a poll, with the entities that differ, and the ids of all entities that exist."""
        result, time_slice = PollResult(snapshot.after, snapshot.until, snapshot.at_ms), TimeSlice()
        of_all = ObservedRange(since, snapshot.until, snapshot.at_ms)
        result.denied |= {entity.id: reason for entity, reason in snapshot.denied.items()}
        result.unmanaged |= {each.name: each.reason for each in snapshot.unmanaged}
        ids = set(result.denied)
        for each in snapshot.entities:
            ids.add(each.entity.id)
            observation = Observation(each.config, each.hidden)
            result.entities += bool(each.config or each.hidden)
            uncompared = self._rules.uncompared(each.entity, observation)
            if uncompared:
                result.hidden |= {f"{each.entity.id} {key}": reason for key, reason in uncompared.items()}
            result.ineffective |= {f"{each.entity.id} {key}": reason for key, reason in each.ineffective.items()}
            observed_range = of_all
            if each.entity.types[0] is EntityType.BROKER and each.entity.components[0][1] is not None:
                observed_range = replace(of_all, after=brokers.get(each.entity.id))
                result.brokers[each.entity.id] = snapshot.after
            observed = EntityObservation(
                each.entity, observed_range, snapshot.after, observation, topic_id=each.topic_id
            )
            if self._decisions.differs(observed):
                result.differing.append(observed)
            if time_slice.due:
                await time_slice.pause()
        return result, ids

    async def _add_gone(self, result: PollResult, polled: AbstractSet[str], since: int | None) -> None:
        """Add the client entities that the cluster no longer has."""
        observed_range = ObservedRange(since, result.until, result.at_ms)
        nothing = Observation({}, frozenset())
        async for node in self._pages(FacetName.CLIENT_QUOTAS, ""):
            if node.id not in polled and node.defect is None:
                gone = EntityObservation(Entity.from_id(node.id), observed_range, result.after, nothing)
                if self._decisions.differs(gone):
                    result.differing.append(gone)

    def _nodes(self, kind: EntityType) -> AsyncIterator[Node]:
        """Iterate over the nodes of named entities of a type."""
        return self._pages(FacetName.CONFIGS, f"{kind}=")

    async def _pages(self, facet: FacetName, prefix: str) -> AsyncIterator[Node]:
        """Iterate over the nodes with keys of a facet, page by page."""
        after, time_slice = None, TimeSlice()
        while True:
            page = []
            for node in self._store.with_keys(Tree.CONFIG, facet.value, after=after, prefix=prefix):
                page.append(node)
                if len(page) == _PAGE:
                    break
            for node in page:
                yield node
            if len(page) < _PAGE:
                return
            after = page[-1].id
            if time_slice.due:
                await time_slice.pause()
