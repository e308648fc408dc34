"""Config resources: the names of entities in the RPCs about configs.

Source: clients/src/main/java/org/apache/kafka/common/config/ConfigResource.java.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import InvalidRequestError
from confplane.domain.texts import clipped


class KafkaResourceType(IntEnum):
    """Kafka's resource types, under the numbers of its RPCs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_ENTITY_TYPES: Final = {
    KafkaResourceType.TOPIC: EntityType.TOPIC,
    KafkaResourceType.BROKER: EntityType.BROKER,
    KafkaResourceType.CLIENT_METRICS: EntityType.CLIENT_METRICS,
    KafkaResourceType.GROUP: EntityType.GROUP,
}


def resource_type(given: int | str, *, pointer: str | None = None) -> KafkaResourceType:
    """Read a resource type: Kafka's number or its name.

    Raises:
        InvalidRequestError: The value is neither a number nor a name of a type.
    """
    try:
        return KafkaResourceType[given] if isinstance(given, str) else KafkaResourceType(given)
    except (KeyError, ValueError):
        names = ", ".join(f"{kind.name} ({kind.value})" for kind in KafkaResourceType)
        raise InvalidRequestError(
            f"Unknown resource type {clipped(str(given), 40)}; there are: {names}", pointer=pointer
        ) from None


def resource_entity(kind: KafkaResourceType, name: str, *, pointer: str | None = None) -> Entity:
    """Return the entity of a resource; the facet checks whether the entity can have configs.

    Args:
        kind: The resource's type.
        name: The resource's name; empty for the default of all brokers.
        pointer: JSON pointer of the type, for errors.

    Raises:
        InvalidRequestError: The configs of this type of resource are not managed here.
    """
    if kind not in _ENTITY_TYPES:
        served = ", ".join(known.name for known in _ENTITY_TYPES)
        raise InvalidRequestError(
            f"{kind.name} resources are not kept in ZooKeeper; {served} are served here", pointer=pointer
        )
    return Entity(((_ENTITY_TYPES[kind], name or None),))
