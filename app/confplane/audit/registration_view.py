"""The registrations of all entities in memory, in a compact form, because there may be a million of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, cast

from sortedcontainers import SortedDict

from confplane.services.ports.registrations import ClientRegistration

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from confplane.domain.access.ranges import NameRanges

    _Entities = SortedDict[str, tuple["SoftwareVersion | int", ...]]

MAX_PER_ENTITY: Final = 64
"""Maximum number of registrations per entity; a new one replaces the least recently seen one."""


class SoftwareVersion(NamedTuple):
    """A client software in one version, and the configs that it supports in that version."""

    name: str
    version: str
    supported_configs: tuple[str, ...]


class RegistrationView:
    """The software of each entity by cluster, each with the day (since the epoch) on which it was last seen.

    An entity's entry is one flat tuple (software, day, software, day, ...), and equal software is one object. Entities
    are ordered by id, so that the entities visible to a caller are found without reading all entities.

    Args:
        limit: Maximum number of registrations.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._clusters: dict[str, _Entities] = {}
        self._software: dict[SoftwareVersion, SoftwareVersion] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def last_seen(self, cluster: str, entity_id: str, software: SoftwareVersion) -> int | None:
        """Return the day on which a registration was last seen, or None for an unknown one."""
        entry = self._entry(cluster, entity_id)
        for index in range(0, len(entry), 2):
            if entry[index] == software:
                return cast("int", entry[index + 1])
        return None

    def add(self, cluster: str, entity_id: str, software: SoftwareVersion, day: int) -> bool:
        """Add a registration, or a later day for a known one. Return False if there is no room."""
        entities = self._clusters.get(cluster)
        if entities is None:
            entities = self._clusters[cluster] = SortedDict()
        pairs = dict(_pairs(entities.get(entity_id, ())))
        known = pairs.get(software)
        if known is None:
            if len(pairs) >= MAX_PER_ENTITY:
                del pairs[min(pairs, key=pairs.__getitem__)]
            elif self._size >= self._limit:
                return False
            else:
                self._size += 1
        elif known >= day:
            return True
        pairs[self._software.setdefault(software, software)] = day
        entities[entity_id] = tuple(part for pair in pairs.items() for part in pair)
        return True

    def clear(self, cluster: str, entity_id: str | None) -> int:
        """Forget an entity's registrations, or all of a cluster, and return their number."""
        entities = self._clusters.get(cluster)
        if entities is None:
            return 0
        if entity_id is None:
            hidden = sum(len(entry) for entry in entities.values()) // 2
            entities.clear()
        else:
            hidden = len(entities.pop(entity_id, ())) // 2
        self._size -= hidden
        if not self._size:
            self._software.clear()
        return hidden

    def entities(self, cluster: str, within: NameRanges | None = None) -> Collection[str]:
        """Return the ids of the entities with registrations, in these ranges: a view, valid until the next change."""
        entities = self._clusters.get(cluster)
        if entities is None:
            return ()
        if within is None:
            return entities.keys()
        return [each for start, end in within for each in entities.irange(start, end, inclusive=(True, False))]

    def of_entity(self, cluster: str, entity_id: str) -> list[ClientRegistration]:
        """Return an entity's registrations, ordered by software name and version."""
        entry = self._entry(cluster, entity_id)
        return [ClientRegistration(cluster, entity_id, *software) for software in sorted(dict(_pairs(entry)))]

    def _entry(self, cluster: str, entity_id: str) -> tuple[SoftwareVersion | int, ...]:
        entities = self._clusters.get(cluster)
        return () if entities is None else entities.get(entity_id, ())


def _pairs(entry: tuple[SoftwareVersion | int, ...]) -> Iterator[tuple[SoftwareVersion, int]]:
    # Software and day alternate.
    return zip(cast("tuple[SoftwareVersion, ...]", entry[::2]), cast("tuple[int, ...]", entry[1::2]), strict=True)
