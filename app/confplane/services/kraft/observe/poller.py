"""Polls a cluster and compares it with the mirror: each entity that differs is an observation to follow."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from itertools import islice
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
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

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
_POLL_S: Final = 120.0
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
    wall_s: float = 0.0
    """The duration of the poll."""
    cpu_s: float = 0.0
    """CPU time of this process during the poll. It includes concurrent work, so it is an upper bound."""

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


@dataclass(slots=True)
class PollRound:
    """A complete poll of an entity type: one poll, or a poll for each piece of the topics."""

    entity_type: KraftEntityType
    listed: TopicList | None = None
    """All topics. None before they are listed, and for other entity types."""
    at: int = 0
    """The place of the next topic."""
    total: PollResult | None = None
    """The totals of the polls, as of the first one."""
    left: bool = False
    """Some poll left external changes alone."""

    @property
    def names(self) -> list[str]:
        """The names of all topics."""
        return [] if self.listed is None else self.listed.names

    @property
    def piece(self) -> list[str]:
        """The topics to poll next."""
        return self.names[self.at : self.at + PIECE]

    @property
    def ended(self) -> bool:
        """True after the last poll."""
        return self.total is not None and self.at >= len(self.names)

    def covers(self, topic: str) -> bool:
        """Return whether a topic is in the next piece, or would be if it was listed."""
        at = min(bisect_left(self.names, topic), len(self.names) - 1)
        return not self.names or self.at <= at < self.at + PIECE

    def add(self, result: PollResult, *, left: bool = False) -> None:
        """Add a poll, and continue with the next piece."""
        self.at += PIECE
        self.left = self.left or left
        if self.total is None:
            after = result.after if self.listed is None else min(self.listed.offset, result.after)
            self.total = PollResult(after, result.until, result.at_ms)
        self.total.add_totals(result)


class Poller:
    """Polls one cluster."""

    def __init__(self, cluster: KafkaCluster, store: ClusterStore, decisions: ClusterDecisions) -> None:
        self._cluster = cluster
        self._store = store
        self._decisions = decisions
        self._rules = decisions.rules

    async def poll_next(
        self,
        polls: PollRound,
        since: int | None,
        deadline: float,
        *,
        digest: bytes = b"",
        brokers: Mapping[str, int] = _NO_BROKERS,
    ) -> PollResult:
        """Make the next poll of a round, which the caller adds to the round.

        Args:
            polls: The round.
            since: A metadata offset at which the mirror equaled the cluster, for the trail. It does not apply to a
                broker's own configs, because the mirror keeps the last ones of a broker that is unavailable.
            deadline: On ``time.monotonic()``'s clock.
            digest: The digest of the previous poll of client quotas; empty if there is none.
            brokers: Such an offset for each known broker, by entity id.
        """
        if polls.entity_type is KraftEntityType.QUOTAS:
            return await self.poll_quotas(digest, since, deadline)
        if polls.entity_type is KraftEntityType.TOPICS:
            polls.listed = polls.listed or await self._list_topics(deadline)
            return await self._poll_topics(polls.piece, since, deadline)
        named_at = await self._offset(deadline)
        named, unmanaged = await self._cluster.names(polls.entity_type, deadline)
        entities = {entity.id: entity for entity in named}
        if polls.entity_type is not KraftEntityType.BROKERS:
            async for node in self._nodes(FacetName.CONFIGS, ENTITY_TYPES[polls.entity_type]):
                entities.setdefault(node.id, Entity.from_id(node.id))
        snapshot = await self._cluster.configs(list(entities.values()), deadline)
        result, _ = await self._compare(snapshot, since, brokers)
        # An entity that got its first config after the names were listed was not polled.
        result.after = min(named_at, snapshot.after)
        result.unmanaged |= {each.name: each.reason for each in unmanaged}
        return result

    async def poll_all(
        self, polls: PollRound, since: int | None, deadline: float | None = None
    ) -> AsyncIterator[PollResult]:
        """Make all polls of a round. Without a deadline each has its own."""
        while not polls.ended:
            result = await self.poll_next(polls, since, deadline or time.monotonic() + _POLL_S)
            polls.add(result)
            yield result if polls.listed is None else replace(result, after=min(polls.listed.offset, result.after))

    async def poll_quotas(self, digest: bytes, since: int | None, deadline: float) -> PollResult:
        """Poll all client quotas. Args as of :meth:`poll_next`."""
        snapshot = await self._cluster.quotas(digest, deadline)
        result, found = await self._compare(snapshot, since)
        result.digest, result.unchanged = snapshot.digest, snapshot.unchanged
        if not snapshot.unchanged:
            observed_range, nothing = ObservedRange(since, result.until, result.at_ms), Observation({}, frozenset())
            async for node in self._nodes(FacetName.CLIENT_QUOTAS):
                if node.id not in found and node.defect is None:
                    entity = Entity.from_id(node.id)
                    self._add(result, EntityObservation(entity, observed_range, result.after, nothing))
        entities = list(snapshot.entities)
        del snapshot
        await free_in_slices(entities)
        return result

    async def _poll_topics(self, names: Sequence[str], since: int | None, deadline: float) -> PollResult:
        """Poll some topics. A topic that the cluster lacks is observed as gone.

        The ids of topics that differ are read again, because a topic may be recreated between the reads of its id and
        its configs. A topic with client changes counts as gone or recreated only if the brokers asked are current: a
        topic that was just created is not known to every broker.
        """
        entities = [Entity.of(topic=name) for name in names]
        behind: int | None = None
        while True:
            snapshot = await self._cluster.configs(entities, deadline)
            result, found = await self._compare(snapshot, since)
            observed_range = ObservedRange(since, snapshot.until, snapshot.at_ms)
            for each in entities:
                if each.id not in found:
                    self._add(result, EntityObservation(each, observed_range, snapshot.after))
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
        node = self._decisions.node(observed.entity)
        metadata = read_metadata(None if node is None else node.extra)
        is_other = observed.observation is None or observed.topic_id != metadata.topic_id
        return bool(metadata.pending_keys) and is_other

    async def poll_entities(self, entities: Iterable[Entity], since: int | None, deadline: float) -> list[PollResult]:
        """Poll some entities of any types; ``since`` as of :meth:`poll_next`. For many quotas, all are polled.

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
                found.append(await self._poll_topics(names, since, deadline))
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

    async def _list_topics(self, deadline: float) -> TopicList:
        """List all topics that the cluster has."""
        offset, at_ms = await self._offset(deadline), int(time.time() * 1000)
        ids = await self._cluster.topics(deadline)
        names = set(ids)
        async for node in self._nodes(FacetName.CONFIGS, EntityType.TOPIC):
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
        result.denied = {entity.id: reason for entity, reason in snapshot.denied.items()}
        result.unmanaged = {each.name: each.reason for each in snapshot.unmanaged}
        ids = set(result.denied)
        for each in snapshot.entities:
            entity_id, observation = each.entity.id, Observation(each.config, each.hidden)
            observed_range = of_all
            ids.add(entity_id)
            result.entities += bool(each.config or each.hidden)
            uncompared = self._rules.uncompared(each.entity, observation)
            result.hidden |= {f"{entity_id} {key}": reason for key, reason in uncompared.items()}
            result.ineffective |= {f"{entity_id} {key}": reason for key, reason in each.ineffective.items()}
            if each.entity.types[0] is EntityType.BROKER and each.entity.components[0][1] is not None:
                observed_range = replace(of_all, after=brokers.get(entity_id))
                result.brokers[entity_id] = snapshot.after
            self._add(
                result,
                EntityObservation(each.entity, observed_range, snapshot.after, observation, topic_id=each.topic_id),
            )
            if time_slice.due:
                await time_slice.pause()
        return result, ids

    def _add(self, result: PollResult, observed: EntityObservation) -> None:
        """Add an entity if it differs."""
        if self._decisions.differs(observed):
            result.differing.append(observed)

    async def _nodes(self, facet: FacetName, kind: EntityType | None = None) -> AsyncIterator[Node]:
        """Iterate over the nodes with keys of a facet, page by page; those of named entities of a type if given."""
        after, prefix, time_slice = None, "" if kind is None else f"{kind}=", TimeSlice()
        while page := list(islice(self._store.with_keys(Tree.CONFIG, facet.value, after=after, prefix=prefix), _PAGE)):
            for node in page:
                yield node
            after = page[-1].id
            if time_slice.due:
                await time_slice.pause()
