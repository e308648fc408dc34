"""The reports of all clients in memory, within bounds, and in the order in which they are forgotten."""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from sortedcontainers import SortedDict

if TYPE_CHECKING:
    from confplane.services.ports.applied import AppliedReport, Refusal

MAX_PER_ENTITY: Final = 10_000
"""Maximum number of instances of one entity."""
_SHARE: Final = 8
"""A user with all of its client-ids gets at most this part of the instances, and of the characters."""
_SHARED: Final = 4_096
"""Maximum number of distinct lists of refusals that are stored once for all clients with the same list."""


class Instance(NamedTuple):
    """The last report of one running client."""

    report: AppliedReport
    reported_ms: int
    """The time of the report, in milliseconds since the epoch."""
    shared_ms: int
    """The time of the report that was last shared with the other replicas, in milliseconds since the epoch."""


class Room(Enum):
    """The answer to whether a report fits."""

    FREE = "free"
    USER_FULL = "user full"
    FULL = "full"


class _Usage(NamedTuple):
    """The instances of a user, and the characters of their refusals."""

    instances: int = 0
    characters: int = 0


class AppliedView:
    """The last reports by cluster, entity and instance.

    Args:
        max_instances: Maximum number of instances, of which a user gets an eighth.
        max_characters: Maximum number of characters of all refusals together, of which a user gets an eighth.
    """

    def __init__(self, max_instances: int, max_characters: int) -> None:
        self._max_instances = max_instances
        self._max_characters = max_characters
        self._clusters: dict[str, SortedDict[str, dict[str, Instance]]] = {}
        self._order: OrderedDict[tuple[str, str, str], int] = OrderedDict()
        """The number of characters of each instance's refusals. The instance with the oldest report is first."""
        self._characters = 0
        self._users: dict[tuple[str, str], _Usage] = {}

    def __len__(self) -> int:
        return len(self._order)

    def find(self, cluster: str, entity_id: str, instance_id: str) -> Instance | None:
        """Return the last report of an instance."""
        return self._instances(cluster, entity_id).get(instance_id)

    def room(self, cluster: str, entity_id: str, instance_id: str, report: AppliedReport) -> Room:
        """Return whether a report fits in place of the instance's last one."""
        key = cluster, entity_id, instance_id
        is_new = key not in self._order
        grown = _characters(report) - self._order.get(key, 0)
        usage = self._users.get((cluster, _user(entity_id)), _Usage())
        if is_new and (
            usage.instances >= max(1, self._max_instances // _SHARE)
            or len(self._instances(cluster, entity_id)) >= MAX_PER_ENTITY
        ):
            return Room.USER_FULL
        if grown > 0 and usage.characters + grown > self._max_characters // _SHARE:
            return Room.USER_FULL
        if self._characters + grown > self._max_characters or (is_new and len(self._order) >= self._max_instances):
            return Room.FULL
        return Room.FREE

    def put(self, cluster: str, entity_id: str, instance_id: str, given: Instance) -> bool:
        """Store a report in place of the instance's last one. Return False if there is no room."""
        key = cluster, entity_id, instance_id
        report = given.report
        if self.room(*key, report) is not Room.FREE:
            return False
        instances = self._clusters.setdefault(cluster, SortedDict()).setdefault(entity_id, {})
        instances[instance_id] = given._replace(report=report._replace(refused=_shared(report.refused)))
        size = _characters(report)
        self._count(cluster, entity_id, int(key not in self._order), size - self._order.get(key, 0))
        self._order[key] = size
        self._order.move_to_end(key)
        return True

    def _count(self, cluster: str, entity_id: str, instances: int, characters: int) -> None:
        self._characters += characters
        user = cluster, _user(entity_id)
        usage = self._users.get(user, _Usage())
        usage = _Usage(usage.instances + instances, usage.characters + characters)
        if usage.instances:
            self._users[user] = usage
        else:
            del self._users[user]

    def forget(self, before_ms: int) -> None:
        """Drop the reports from before a time, in milliseconds since the epoch."""
        while self._order:
            cluster, entity_id, instance_id = key = next(iter(self._order))
            entities = self._clusters[cluster]
            instances = entities[entity_id]
            if instances[instance_id].reported_ms >= before_ms:
                return
            self._count(cluster, entity_id, -1, -self._order.pop(key))
            del instances[instance_id]
            if not instances:
                del entities[entity_id]

    def entities(self, cluster: str, entity_id: str) -> list[str]:
        """Return the ids with reports: that of an entity and, if it is a user, those of the user's client-ids."""
        entities = self._clusters.get(cluster)
        if entities is None:
            return []
        # "-" is the character after ",".
        pairs = entities.irange(f"{entity_id},", f"{entity_id}-", inclusive=(True, False))
        return [*([entity_id] if entity_id in entities else []), *pairs]

    def of_entity(self, cluster: str, entity_id: str, since_ms: int) -> list[AppliedReport]:
        """Return the reports on an entity since a time, in milliseconds since the epoch."""
        return [each.report for each in self._instances(cluster, entity_id).values() if each.reported_ms >= since_ms]

    def _instances(self, cluster: str, entity_id: str) -> dict[str, Instance]:
        entities = self._clusters.get(cluster)
        return {} if entities is None else entities.get(entity_id, {})


def _user(entity_id: str) -> str:
    return entity_id.partition(",")[0]


def _characters(report: AppliedReport) -> int:
    return sum(len(refusal.key) + len(refusal.reason) for refusal in report.refused)


@lru_cache(_SHARED)
def _shared(refused: tuple[Refusal, ...]) -> tuple[Refusal, ...]:
    """Return one shared object for equal lists: thousands of clients of one release report the same refusals."""
    return refused
