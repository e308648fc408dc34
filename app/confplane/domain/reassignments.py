"""Reassignments of partitions: the throttles that their tools set, and those that no reassignment uses.

``kafka-reassign-partitions.sh --execute --throttle`` sets them before the reassignment begins, and ``--verify`` removes
them after its end. If nobody runs it, they stay, and slow down replicas that catch up later.

Source: tools/src/main/java/org/apache/kafka/tools/reassign/ReassignPartitionsCommand.java (4.4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confplane.domain.entities import EntityType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from confplane.domain.entities import Entity

_LOG_DIRS: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
THROTTLES: Final = {
    EntityType.TOPIC: frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}),
    EntityType.BROKER: frozenset(
        {"leader.replication.throttled.rate", "follower.replication.throttled.rate", _LOG_DIRS}
    ),
}
"""The keys that tools set for the time of a reassignment."""


def throttles_of(entity: Entity, keys: Iterable[str]) -> list[str]:
    """Return the throttles among the keys of a topic or broker that a reassignment between brokers may use.

    Moves between the disks of a broker are not among the reassignments that clusters list, so their throttle does not
    count. Neither does the default of all brokers, which tools do not set.
    """
    [(kind, name)] = entity.components
    if name is None:
        return []
    known = THROTTLES.get(kind, frozenset())
    return sorted(key for key in keys if key in known and key != _LOG_DIRS)


def unused_throttles(
    throttles: Mapping[Entity, Collection[str]], reassigned: Collection[str]
) -> list[tuple[Entity, str]]:
    """Return the throttles that no reassignment uses, each with its entity.

    Args:
        throttles: The throttles by entity.
        reassigned: The topics with a reassignment in progress, which may use the rates of all brokers.
    """
    return [
        (entity, key)
        for entity, keys in throttles.items()
        if (not reassigned if entity.types[0] is EntityType.BROKER else entity.get(EntityType.TOPIC) not in reassigned)
        for key in keys
    ]
