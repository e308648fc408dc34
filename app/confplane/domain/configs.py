"""The facet ``configs``: topics, brokers, their common default, groups, and subscriptions to client metrics.

The rules of topics (:mod:`confplane.domain.topics`), brokers (:mod:`confplane.domain.brokers`), groups
(:mod:`confplane.domain.groups`) and subscriptions (:mod:`confplane.domain.client_metrics`) decide the values. This
module decides the keys of the facet, and which of their values may be shown.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from confplane.domain.broker_keys import is_sensitive
from confplane.domain.definitions import ConfigKind
from confplane.domain.entities import EntityType, check_name
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import Facet, FacetName, Rank
from confplane.domain.texts import shown
from confplane.domain.topics import check_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confplane.domain.definitions import Catalog
    from confplane.domain.entities import Entity

_MAX_BROKER_ID: Final = 2**31 - 1
_NO_DEFAULT: Final = {
    EntityType.GROUP: "Default group resources are not allowed.",
    EntityType.CLIENT_METRICS: "Subscription name can't be empty",
}
"""Kafka's words for the types without a default entity."""
KINDS: Final[Mapping[tuple[EntityType, ...], ConfigKind]] = MappingProxyType(
    {
        (EntityType.TOPIC,): ConfigKind.TOPIC,
        (EntityType.BROKER,): ConfigKind.BROKER,
        (EntityType.GROUP,): ConfigKind.GROUP,
        (EntityType.CLIENT_METRICS,): ConfigKind.CLIENT_METRICS,
    }
)
"""The definitions of an entity's configs, by the entity's types."""


class ConfigsFacet(Facet):
    """The facet ``configs`` of one cluster. Stateless.

    Args:
        catalog: Returns the cluster's definitions, as they currently are.
    """

    name = FacetName.CONFIGS
    member = "configs"
    entity_types = frozenset(kind for types in KINDS for kind in types)
    has_secrets = True

    def __init__(self, catalog: Callable[[], Catalog]) -> None:
        self._catalog = catalog

    def check_entity(self, entity: Entity, *, pointer: str | None = None) -> None:
        """Refuse all entities except the default broker, and a topic, broker, group or subscription by its name.

        Raises:
            InvalidRequestError: Another type, a default that is not the brokers', a broker id that is not a number, or
                a name that no znode can have.
            InvalidTopicError: A name that no topic can have.
        """
        if entity.types not in KINDS:
            raise InvalidRequestError(
                f"Topics, brokers, groups and client-metrics have configs here, not {' and '.join(entity.types)}; "
                "see client-configs and client-quotas",
                pointer=pointer,
            )
        [(kind, name)] = entity.components
        if kind is EntityType.TOPIC:
            if name is None:
                raise InvalidRequestError("Default topic resources are not allowed.", pointer=pointer)
            check_topic_name(name, pointer=pointer)
        elif kind is EntityType.BROKER:
            if name is not None:
                check_broker_id(name, pointer=pointer)
        elif name is None:
            raise InvalidRequestError(_NO_DEFAULT[kind], pointer=pointer)
        else:
            check_name(kind, name, pointer=pointer)

    def rank(self, entity: Entity) -> Rank | None:
        """Return the rank: topics, the brokers, and the default of all brokers are levels of one scope.

        A topic is checked against the brokers' values, a broker against the default, the default against each broker. A
        group is checked against values that brokers read only from their files, and a subscription on its own.
        """
        [(kind, name)] = entity.components
        if kind in _NO_DEFAULT:
            return None
        return Rank("", f"default {kind}" if name is None else kind)

    def owns(self, entity: Entity, key: str) -> bool:
        """Return True: such a node contains only keys of this facet."""
        del key
        return entity.types in KINDS

    def is_secret(self, entity: Entity, key: str) -> bool:
        """Return True if a value is never shown: a password, or a value of unknown type, as in Kafka's describe.

        Source: core/src/main/scala/kafka/server/ConfigHelper.scala.
        """
        if entity.types == (EntityType.BROKER,):
            return is_sensitive(self._catalog(), key)
        definition = self._catalog().of(KINDS[entity.types]).get(key)
        return definition is None or definition.sensitive

    def decode(self, entity: Entity, key: str, stored: str) -> str | None:
        """Return the stored string unchanged, or None for a secret."""
        return None if self.is_secret(entity, key) else stored


def check_release(catalog: Catalog, entity: Entity, *, pointer: str | None = None) -> None:
    """Refuse an entity that the cluster's release can't have, as a broker in ZooKeeper mode does.

    Source: core/src/main/scala/kafka/server/metadata/ZkConfigRepository.scala (3.9).

    Raises:
        InvalidRequestError: A group or a subscription in a cluster of Kafka 3.9.
    """
    if not catalog.of(KINDS[entity.types]):
        raise InvalidRequestError(
            f"Config type {entity.types[0].plural} is only supported on KRaft clusters, from Kafka 4.0 on; this cluster"
            f" has Kafka {catalog.release}",
            pointer=pointer,
        )


def check_broker_id(name: str, *, pointer: str | None = None) -> int:
    """Return a broker's id.

    Raises:
        InvalidRequestError: The name is not a broker's decimal number in canonical form.
    """
    if name.isascii() and name.isdigit() and (name == "0" or name[0] != "0") and int(name) <= _MAX_BROKER_ID:
        return int(name)
    raise InvalidRequestError(
        f"A broker is named by its id, a whole number from 0 on, not by {shown(name)}; the default of all brokers has "
        "no name",
        pointer=pointer,
    )
