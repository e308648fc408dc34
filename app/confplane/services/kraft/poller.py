"""Looks at a cluster, compared with the mirror: the entities that differ, as sights to be followed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import FacetName, Tree
from confplane.domain.observed import Sight
from confplane.services.altered import altered
from confplane.services.kraft import members
from confplane.services.kraft.verdicts import Seen
from confplane.services.pace import Pace, free_in_slices
from confplane.services.ports.kafka import KINDS, Area, area_of
from confplane.services.ports.trail import Sighting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from confplane.domain.changes import Node
    from confplane.domain.observed import Rules
    from confplane.services.kraft.follow import Decisions
    from confplane.services.ports.kafka import KafkaCluster, Look, Unmanaged
    from confplane.services.ports.store import ClusterStore

PIECE: Final = 100
"""Topics in one look."""
_PAGE: Final = 1_000
_ONE_BY_ONE: Final = 50
"""Client entities that are asked for one by one; a describe of all costs less than one of more."""
_AGAIN_S: Final = 0.02
_NO_BROKERS: Final[Mapping[str, int]] = {}


@dataclass(slots=True)
class Looked:
    """The result of a look."""

    after: int
    until: int
    at_ms: int
    seen: list[Seen] = field(default_factory=list)
    """The entities that differ from the mirror."""
    entities: int = 0
    """The number of entities with declared configs."""
    unmanaged: dict[str, str] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)
    digest: bytes = b""
    unchanged: bool = False
    """True where the cluster's answer is that of the look before; only the times count then."""
    brokers: dict[str, int] = field(default_factory=dict)
    """The brokers that answered for their own configs, by entity id, each with ``after``."""


class Looks:
    """Looks at one cluster.

    Args:
        cluster: The cluster.
        store: Its store.
        rules: The rules of its configs.
        decisions: Compares entities with the mirror.
    """

    def __init__(self, cluster: KafkaCluster, store: ClusterStore, rules: Rules, decisions: Decisions) -> None:
        self._cluster = cluster
        self._store = store
        self._rules = rules
        self._decisions = decisions

    async def quotas(self, digest: bytes, since: int | None, deadline: float) -> Looked:
        """Look at all client quotas.

        Args:
            digest: The digest of the look before; empty: none.
            since: A metadata offset at which the mirror was as the cluster, for the trail.
            deadline: Until when.
        """
        look = await self._cluster.quotas(digest, deadline)
        looked = Looked(look.after, look.until, look.at_ms, digest=look.digest, unchanged=look.unchanged)
        if not look.unchanged:
            await self._add_gone(looked, await self._compare(looked, look, since), since)
        entities = list(look.entities)
        del look
        await free_in_slices(entities)
        return looked

    async def area(
        self, area: Area, since: int | None, deadline: float, *, brokers: Mapping[str, int] = _NO_BROKERS
    ) -> Looked:
        """Look at all brokers that are alive, at all groups, or at all client metrics; ``since`` as in :meth:`quotas`.

        The last configs of a broker that is away stay. So ``since`` says nothing of a broker's own configs; ``brokers``
        has an offset for each that is known by its entity id.
        """
        named_at = await self._offset(deadline)
        named, unmanaged = await self._cluster.names(area, deadline)
        entities = {entity.id: entity for entity in named}
        if area is not Area.BROKERS and area in KINDS:
            async for node in self._nodes(KINDS[area]):
                entities.setdefault(node.id, Entity.from_id(node.id))
        look = await self._cluster.configs(list(entities.values()), deadline)
        # An entity that got its first config behind the names is not among those looked at.
        looked = Looked(min(named_at, look.after), look.until, look.at_ms)
        _note(looked, unmanaged)
        await self._compare(looked, look, since, brokers)
        return looked

    async def topics(self, names: Sequence[str], since: int | None, deadline: float) -> Looked:
        """Look at some topics; a topic that the cluster lacks is seen as gone. ``since`` as in :meth:`quotas`.

        The ids of topics that differ are asked again, because a topic may be made anew between id and configs. A topic
        that callers changed is gone, or another one, only where the brokers asked are as new as the look: a topic that
        was made a moment ago is not known to each of them.
        """
        entities = [Entity.of(topic=name) for name in names]
        behind: int | None = None
        while True:
            look = await self._cluster.configs(entities, deadline)
            looked = Looked(look.after, look.until, look.at_ms)
            found = await self._compare(looked, look, since)
            gone = [entity for entity in entities if entity.id not in found]
            looked.seen += self._differing(Seen(each, _sighting(look, since), look.after) for each in gone)
            if not looked.seen:
                return looked
            if any(self._waits_for_topic(each) for each in looked.seen):
                if behind is None:
                    behind = await self._cluster.barrier(deadline)
                if looked.after < behind:
                    await self.again(behind, deadline)
                    continue
            ids = await self._cluster.topics(deadline)
            if all(each.topic_id == ids.get(each.entity.get(EntityType.TOPIC) or "") for each in looked.seen):
                return looked

    def _waits_for_topic(self, seen: Seen) -> bool:
        """Say whether changes of callers are in a topic that a look shows as gone, or as another one."""
        node = self._store.get(Tree.CONFIG, seen.entity.id)
        if node is None or not altered(node.extra):
            return False
        return seen.sight is None or seen.topic_id != members.read(node.extra).topic_id

    async def whole(
        self, area: Area, since: int | None, until: Callable[[], float]
    ) -> AsyncIterator[tuple[Looked, tuple[int, int]]]:
        """Look at all of an area, topics in pieces, each with the number of topics by then and of all.

        Args:
            area: The area.
            since: As in :meth:`quotas`.
            until: Returns the deadline of the next look.
        """
        if area is Area.QUOTAS:
            yield await self.quotas(b"", since, until()), (1, 1)
        elif area is not Area.TOPICS:
            yield await self.area(area, since, until()), (1, 1)
        else:
            names, named_at = await self.topic_names(until())
            for start in range(0, len(names), PIECE):
                piece = names[start : start + PIECE]
                looked = await self.topics(piece, since, until())
                yield replace(looked, after=min(named_at, looked.after)), (start + len(piece), len(names))

    async def of(self, entities: Iterable[Entity], since: int | None, deadline: float) -> list[Looked]:
        """Look at some entities of any areas, at many client quotas with all; ``since`` as in :meth:`quotas`."""
        by_area: dict[Area, list[Entity]] = {}
        for entity in entities:
            by_area.setdefault(area_of(entity), []).append(entity)
        found = []
        for area, some in by_area.items():
            if area is Area.TOPICS:
                await self._cluster.topics(deadline)
                names = [each.get(EntityType.TOPIC) or "" for each in some]
                found.append(await self.topics(names, since, deadline))
                continue
            if area is Area.QUOTAS and len(some) > _ONE_BY_ONE:
                found.append(await self.quotas(b"", since, deadline))
                continue
            ask = self._cluster.quotas_of if area is Area.QUOTAS else self._cluster.configs
            look = await ask(some, deadline)
            looked = Looked(look.after, look.until, look.at_ms)
            await self._compare(looked, look, since)
            found.append(looked)
        return found

    async def behind_all(self, entities: Sequence[Entity], deadline: float) -> list[Looked]:
        """Look at some entities as :meth:`of` does, behind all changes that the cluster acknowledged before the call.

        Raises:
            UnavailableError: The broker asked stays behind, or the cluster is away.
        """
        offset = await self._cluster.barrier(deadline)
        while True:
            found = await self.of(entities, None, deadline)
            if all(each.after >= offset for each in found):
                return found
            await self.again(offset, deadline)

    async def again(self, offset: int, deadline: float) -> None:
        """Wait a moment for a broker that is behind an offset.

        Raises:
            UnavailableError: The deadline has passed.
        """
        if time.monotonic() >= deadline:
            raise UnavailableError(
                f"Cluster {self._store.name}: the Kafka brokers asked are behind the metadata offset {offset}",
                retry_after_s=1,
            )
        await asyncio.sleep(_AGAIN_S)

    async def topic_names(self, deadline: float) -> tuple[list[str], int]:
        """Return the names of all topics that the cluster has, or that the mirror has configs of, in order.

        With them comes a metadata offset that the names are not behind. A round over the names knows nothing of topics
        that were made behind that offset.
        """
        named_at = await self._offset(deadline)
        names = set(await self._cluster.topics(deadline))
        async for node in self._nodes(EntityType.TOPIC):
            names.add(Entity.from_id(node.id).get(EntityType.TOPIC) or "")
        return sorted(names), named_at

    async def _offset(self, deadline: float) -> int:
        """Return a metadata offset that a broker has reached, by a look at nothing."""
        return (await self._cluster.configs([], deadline)).after

    async def _compare(
        self, looked: Looked, look: Look, since: int | None, brokers: Mapping[str, int] = _NO_BROKERS
    ) -> set[str]:
        """Add what differs to the result of a look; return the ids of the entities seen."""
        of_all, pace = _sighting(look, since), Pace()
        ids: set[str] = set()
        _note(looked, look.unmanaged)
        for each in look.entities:
            ids.add(each.entity.id)
            sight = Sight(each.config, each.hidden)
            looked.entities += bool(each.config or each.hidden)
            uncompared = self._rules.uncompared(each.entity, sight)
            if uncompared:
                looked.hidden |= {f"{each.entity.id} {key}": reason for key, reason in uncompared.items()}
            sighting = of_all
            if each.entity.types[0] is EntityType.BROKER and each.entity.components[0][1] is not None:
                sighting = _sighting(look, brokers.get(each.entity.id))
                looked.brokers[each.entity.id] = look.after
            seen = Seen(each.entity, sighting, look.after, sight, topic_id=each.topic_id)
            if self._decisions.differs(seen):
                looked.seen.append(seen)
            if pace.due:
                await pace.rest()
        return ids

    def _differing(self, seen: Iterable[Seen]) -> list[Seen]:
        return [each for each in seen if self._decisions.differs(each)]

    async def _add_gone(self, looked: Looked, seen: AbstractSet[str], since: int | None) -> None:
        """Add the client entities that the cluster has no more."""
        sighting = Sighting(since, looked.until, looked.at_ms)
        nothing = Sight({}, frozenset())
        async for node in self._pages(FacetName.CLIENT_QUOTAS, ""):
            if node.id not in seen and node.defect is None:
                gone = Seen(Entity.from_id(node.id), sighting, looked.after, nothing)
                if self._decisions.differs(gone):
                    looked.seen.append(gone)

    def _nodes(self, kind: EntityType) -> AsyncIterator[Node]:
        """Iterate over the nodes of named entities of a type."""
        return self._pages(FacetName.CONFIGS, f"{kind}=")

    async def _pages(self, facet: FacetName, prefix: str) -> AsyncIterator[Node]:
        """Iterate over the nodes with keys of a facet, page by page."""
        after, pace = None, Pace()
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
            if pace.due:
                await pace.rest()


def _sighting(look: Look, since: int | None) -> Sighting:
    return Sighting(since, look.until, look.at_ms)


def _note(looked: Looked, unmanaged: Iterable[Unmanaged]) -> None:
    looked.unmanaged |= {each.name: each.reason for each in unmanaged}
