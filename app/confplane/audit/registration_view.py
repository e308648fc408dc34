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


_ENTRY_BYTES: Final = 250
"""Bytes of a registration, without its software."""
_SOFTWARE_BYTES: Final = 300
"""Bytes of a software version in addition to its texts, which the process shares as far as a catalog has them."""


class SoftwareVersion(NamedTuple):
    """A client software in one version, and the configs that it supports in that version."""

    name: str
    version: str
    supported_configs: tuple[str, ...]

    @property
    def size(self) -> int:
        """About the number of bytes that it takes in memory."""
        return _SOFTWARE_BYTES + len(self.name) + len(self.version) + sum(map(len, self.supported_configs))


class RegistrationView:
    """The software of each entity by cluster, each with the day (since the epoch) on which it was last seen.

    An entity's entry is one flat tuple (software, day, software, day, ...), and equal software is one object, which is
    freed with its last registration. Entities are ordered by id, so that the entities visible to a caller are found
    without reading all entities.

    Args:
        limit: Maximum number of registrations.
        most_bytes: Maximum number of bytes of all registrations and their software.
    """

    def __init__(self, limit: int, most_bytes: int = 256 * 1024 * 1024) -> None:
        self._limit = limit
        self._most_bytes = most_bytes
        self._clusters: dict[str, _Entities] = {}
        self._software: dict[SoftwareVersion, tuple[SoftwareVersion, int]] = {}
        """The shared object of each software, and the number of registrations that have it."""
        self._software_bytes = 0
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
        if known is not None and known >= day:
            return True
        if known is None:
            replaces = len(pairs) >= MAX_PER_ENTITY
            if not replaces and (self._size >= self._limit or not self._has_room(software)):
                return False
            if replaces:
                least = min(pairs, key=pairs.__getitem__)
                del pairs[least]
                self._release(least)
            software = self._shared(software)
        pairs[software] = day
        entities[entity_id] = tuple(part for pair in pairs.items() for part in pair)
        return True

    def clear(self, cluster: str, entity_id: str | None) -> int:
        """Forget an entity's registrations, or all of a cluster, and return their number."""
        entities = self._clusters.get(cluster)
        if entities is None:
            return 0
        cleared = list(entities.values()) if entity_id is None else [entities.get(entity_id, ())]
        if entity_id is None:
            entities.clear()
        else:
            entities.pop(entity_id, None)
        hidden = 0
        for entry in cleared:
            for software, _ in _pairs(entry):
                self._release(software)
                hidden += 1
        return hidden

    @property
    def bytes_held(self) -> int:
        """About the number of bytes of all registrations and their software."""
        return self._size * _ENTRY_BYTES + self._software_bytes

    def _has_room(self, software: SoftwareVersion) -> bool:
        more = _ENTRY_BYTES + (0 if software in self._software else software.size)
        return self.bytes_held + more <= self._most_bytes

    def _shared(self, software: SoftwareVersion) -> SoftwareVersion:
        """Return the shared object of a software for one more registration."""
        found, count = self._software.get(software, (software, 0))
        if not count:
            self._software_bytes += software.size
        self._software[found] = (found, count + 1)
        self._size += 1
        return found

    def _release(self, software: SoftwareVersion) -> None:
        """Take one registration from a software, and forget it after its last one."""
        found, count = self._software[software]
        self._size -= 1
        if count > 1:
            self._software[found] = (found, count - 1)
        else:
            del self._software[found]
            self._software_bytes -= found.size

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
