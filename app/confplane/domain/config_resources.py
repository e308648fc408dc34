"""Config resources: the names of entities in the RPCs about configs.

Source: clients/src/main/java/org/apache/kafka/common/config/ConfigResource.java.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import InvalidRequestError
from confplane.domain.texts import clipped


class ConfigResourceType(IntEnum):
    """Kafka's resource types, under the numbers of its RPCs (``ConfigResource.Type``)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


RESOURCE_ENTITY_TYPES: Final = {
    ConfigResourceType.TOPIC: EntityType.TOPIC,
    ConfigResourceType.BROKER: EntityType.BROKER,
    ConfigResourceType.CLIENT_METRICS: EntityType.CLIENT_METRICS,
    ConfigResourceType.GROUP: EntityType.GROUP,
}
"""The entity types of the resources whose configs are served here."""


def resource_type(given: int | str, *, pointer: str | None = None) -> ConfigResourceType:
    """Read a resource type: Kafka's number or its name.

    Raises:
        InvalidRequestError: The value is neither a number nor a name of a type.
    """
    try:
        return ConfigResourceType[given] if isinstance(given, str) else ConfigResourceType(given)
    except (KeyError, ValueError):
        names = ", ".join(f"{kind.name} ({kind.value})" for kind in ConfigResourceType)
        raise InvalidRequestError(
            f"Unknown resource type {clipped(str(given), 40)}; there are: {names}", pointer=pointer
        ) from None


def resource_entity(kind: ConfigResourceType, name: str, *, pointer: str | None = None) -> Entity:
    """Return the entity of a resource; the facet checks whether the entity can have configs.

    Args:
        kind: The resource's type.
        name: The resource's name; empty for the default of all brokers.
        pointer: JSON pointer of the type, for errors.

    Raises:
        InvalidRequestError: The configs of this type of resource are not managed here.
    """
    if kind not in RESOURCE_ENTITY_TYPES:
        served = ", ".join(known.name for known in RESOURCE_ENTITY_TYPES)
        raise InvalidRequestError(
            f"{kind.name} resources are not kept in ZooKeeper; {served} are served here", pointer=pointer
        )
    return Entity(((RESOURCE_ENTITY_TYPES[kind], name or None),))
